package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// tree is the measure of the Go code below a folder, in all of its modules. Generated code counts
// only as generated lines, tests only as tests.
type tree struct {
	functions  []int // lines of each function, in order
	files      []int // lines of each file, in order
	inits      int
	commented  map[string]bool               // whether the package in a folder has a comment
	seen       map[string]bool               // methods; each operating system may have its own
	methods    map[string]int                // of each type, by folder and name
	interfaces map[string]*ast.InterfaceType // those with a name, by folder and name
	folders    map[string]lines
	all        lines
}

// lines are those of a folder. Code lines have more than a comment or a blank.
type lines struct{ all, code, tests, generated int }

func (l lines) plus(m lines) lines {
	return lines{l.all + m.all, l.code + m.code, l.tests + m.tests, l.generated + m.generated}
}

// measure reads the tree below root. It leaves out testdata, vendored code, hidden folders and bin.
// Folders are named by the first depth parts of their path.
func measure(root string, depth int) (*tree, error) {
	t := &tree{
		commented:  map[string]bool{},
		seen:       map[string]bool{},
		methods:    map[string]int{},
		interfaces: map[string]*ast.InterfaceType{},
		folders:    map[string]lines{},
	}
	top := os.DirFS(root)
	err := fs.WalkDir(top, ".", func(path string, d fs.DirEntry, err error) error {
		name := filepath.Base(path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains([]string{"testdata", "vendor", "bin"}, name) || name[0] == '.' && name != "."):
			return fs.SkipDir
		case filepath.Ext(path) != ".go":
			return nil
		}
		text, err := fs.ReadFile(top, path)
		if err != nil {
			return err
		}
		l, err := t.file(path, text)
		parts := strings.Split(filepath.Dir(path), "/")
		folder := strings.Join(parts[:min(depth, len(parts))], "/")
		t.folders[folder] = t.folders[folder].plus(l)
		t.all = t.all.plus(l)
		return err
	})
	if err == nil && len(t.functions) == 0 {
		err = fmt.Errorf("no Go code below %s; run it in the folder of the repository", root)
	}
	slices.Sort(t.functions)
	slices.Sort(t.files)
	return t, err
}

// file adds a file to the tree, except for its lines.
func (t *tree) file(path string, text []byte) (lines, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return lines{}, err
	}
	n := strings.Count(string(text), "\n")
	switch {
	case ast.IsGenerated(file):
		return lines{generated: n}, nil
	case strings.HasSuffix(path, "_test.go"):
		return lines{tests: n}, nil
	}
	dir := filepath.Dir(path)
	t.files = append(t.files, n)
	t.commented[dir] = t.commented[dir] || file.Doc.Text() != ""
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncDecl:
			t.functions = append(t.functions, set.Position(node.End()).Line-set.Position(node.Pos()).Line+1)
			if node.Recv == nil && node.Name.Name == "init" {
				t.inits++
			}
			if node.Recv != nil {
				of := dir + "." + receiver(node.Recv.List[0].Type)
				if method := of + "." + node.Name.Name; !t.seen[method] {
					t.seen[method] = true
					t.methods[of]++
				}
			}
		case *ast.TypeSpec:
			if i, ok := node.Type.(*ast.InterfaceType); ok {
				t.interfaces[dir+"."+node.Name.Name] = i
			}
		}
		return true
	})
	return lines{all: n, code: code(text)}, nil
}

// code counts the lines that have more than a comment or a blank.
func code(text []byte) int {
	file := token.NewFileSet().AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	for n, last := 0, 0; ; {
		pos, tok, literal := s.Scan()
		switch {
		case tok == token.EOF:
			return n
		case tok == token.SEMICOLON && literal == "\n":
			continue // added by the scanner
		}
		first := file.Line(pos)
		end := first + strings.Count(literal, "\n")
		n += end - max(first-1, last)
		last = end
	}
}

// receiver names the type of a receiver.
func receiver(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	}
	return fmt.Sprint(expr)
}

// size is the number of methods of an interface in dir. Those of an embedded interface count if
// it is of the same package.
func (t *tree) size(dir string, i *ast.InterfaceType) int {
	n := 0
	for _, field := range i.Methods.List {
		n += len(field.Names)
		if embedded := t.interfaces[dir+"."+fmt.Sprint(field.Type)]; embedded != nil && len(field.Names) == 0 {
			n += t.size(dir, embedded)
		}
	}
	return n
}

// contracts are how many methods each interface has, by folder and name.
func (t *tree) contracts() map[string]int {
	sizes := map[string]int{}
	for name, i := range t.interfaces {
		sizes[name] = t.size(strings.TrimSuffix(name, filepath.Ext(name)), i)
	}
	return sizes
}
