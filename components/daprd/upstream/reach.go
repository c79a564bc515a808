package main

import (
	"fmt"
	"go/ast"
	"go/format"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/packages"
)

// reached is what the component's code reaches of ours.
type reached struct {
	byPath map[string]*packages.Package
	kept   map[string]bool // declarations, by key
	files  map[string]map[string][]byte
}

// declaration is one that is kept or left out as a whole.
type declaration struct {
	keys       []string
	start, end token.Pos
	keyword    string // that it needs before it, as the only one kept of a group
	node       ast.Node
}

// always are methods that are called without being named in our code.
var always = []string{"String", "Error", "Is", "As", "Unwrap"}

func reach(module string) (*reached, error) {
	list, err := run(module, "go", "list", "-deps", "-tags", "stablecomponents", "./upstream/isthmus")
	if err != nil {
		return nil, err
	}
	var patterns []string
	for pkg := range strings.FieldsSeq(string(list)) {
		if strings.HasPrefix(pkg, ours) {
			patterns = append(patterns, pkg)
		}
	}
	// Others are read as compiled, so that objects are compared by key.
	loaded, err := packages.Load(&packages.Config{
		Dir:  module,
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports | packages.NeedExportFile,
	}, patterns...)
	if err != nil {
		return nil, err
	}
	r := &reached{byPath: map[string]*packages.Package{}, kept: map[string]bool{}, files: map[string]map[string][]byte{}}
	byKey := map[string]*declaration{}
	for _, pkg := range loaded {
		if len(pkg.Errors) > 0 {
			return nil, pkg.Errors[0]
		}
		r.byPath[pkg.PkgPath] = pkg
		for _, file := range pkg.Syntax {
			for _, d := range declarations(pkg, file) {
				for _, key := range d.keys {
					byKey[key] = d
				}
			}
		}
	}
	var todo []string
	keep := func(key string) {
		if key != "" && !r.kept[key] {
			r.kept[key] = true
			todo = append(todo, key)
		}
	}
	for key := range byKey {
		if strings.HasPrefix(key, component+".") {
			keep(key)
		}
	}
	for len(todo) > 0 {
		key := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, method := range always {
			if _, ok := byKey[key+"."+method]; ok {
				keep(key + "." + method)
			}
		}
		d := byKey[key]
		if d == nil || strings.HasPrefix(key, messages+".") {
			continue
		}
		for _, other := range d.keys {
			keep(other)
		}
		pkg := r.byPath[packageOf(key)]
		ast.Inspect(d.node, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				keep(keyOf(pkg.TypesInfo.Uses[id]))
			}
			return true
		})
	}
	for pkgPath, pkg := range r.byPath {
		if pkgPath == messages {
			continue
		}
		files, err := r.emit(pkg)
		if err != nil {
			return nil, fmt.Errorf("package %s: %w", pkgPath, err)
		}
		r.files[pkgPath] = files
	}
	return r, nil
}

// keyOf names a declaration of a package of ours; empty for anything else.
func keyOf(of types.Object) string {
	if of == nil || of.Pkg() == nil || !strings.HasPrefix(of.Pkg().Path(), ours) {
		return ""
	}
	if f, ok := of.(*types.Func); ok {
		if recv := f.Signature().Recv(); recv != nil {
			t := recv.Type()
			if p, ok := t.(*types.Pointer); ok {
				t = p.Elem()
			}
			named, ok := t.(*types.Named)
			if !ok {
				return ""
			}
			return of.Pkg().Path() + "." + named.Obj().Name() + "." + f.Name()
		}
	}
	if of.Parent() != of.Pkg().Scope() {
		return ""
	}
	return of.Pkg().Path() + "." + of.Name()
}

// packageOf is the package of a key.
func packageOf(key string) string {
	dir, last := path.Split(key)
	name, _, _ := strings.Cut(last, ".")
	return dir + name
}

// declarations splits a file into what can be left out by itself.
func declarations(pkg *packages.Package, file *ast.File) (all []*declaration) {
	for _, decl := range file.Decls {
		start := decl.Pos()
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Doc != nil {
				start = decl.Doc.Pos()
			}
			all = append(all, &declaration{[]string{keyOf(pkg.TypesInfo.Defs[decl.Name])}, start, decl.End(), "", decl})
		case *ast.GenDecl:
			if decl.Doc != nil {
				start = decl.Doc.Pos()
			}
			switch {
			case decl.Tok == token.IMPORT:
			case decl.Tok == token.CONST || len(decl.Specs) == 1: // constants follow from those before
				d := &declaration{nil, start, decl.End(), "", decl}
				for _, spec := range decl.Specs {
					keys, end := named(pkg, spec)
					d.keys, d.end = append(d.keys, keys...), max(d.end, end)
				}
				all = append(all, d)
			default:
				for _, spec := range decl.Specs {
					keys, end := named(pkg, spec)
					all = append(all, &declaration{keys, spec.Pos(), end, decl.Tok.String() + " ", spec})
				}
			}
		}
	}
	return all
}

// named are the keys of a spec, and its end with the comment behind it.
func named(pkg *packages.Package, spec ast.Spec) (keys []string, end token.Pos) {
	var comment *ast.CommentGroup
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		keys, comment = []string{keyOf(pkg.TypesInfo.Defs[spec.Name])}, spec.Comment
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			if key := keyOf(pkg.TypesInfo.Defs[name]); key != "" {
				keys = append(keys, key)
			}
		}
		comment = spec.Comment
	}
	end = spec.End()
	if comment != nil {
		end = comment.End()
	}
	return keys, end
}

// emit returns the files of a package with what is kept.
func (r *reached) emit(pkg *packages.Package) (map[string][]byte, error) {
	files := map[string][]byte{}
	for i, file := range pkg.Syntax {
		text, err := os.ReadFile(pkg.GoFiles[i])
		if err != nil {
			return nil, err
		}
		at := func(pos token.Pos) int { return pkg.Fset.Position(pos).Offset }
		var body strings.Builder
		imports := map[string]bool{}
		for _, d := range declarations(pkg, file) {
			if !slices.ContainsFunc(d.keys, func(key string) bool { return r.kept[key] }) {
				continue
			}
			source := d.keyword + string(text[at(d.start):at(d.end)])
			fmt.Fprintf(&body, "\n%s\n", source)
			if strings.Contains(source, "//go:linkname") {
				imports[`_ "unsafe"`] = true
			}
			ast.Inspect(d.node, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					if name, ok := pkg.TypesInfo.Uses[id].(*types.PkgName); ok {
						line := strconv.Quote(name.Imported().Path())
						if name.Name() != name.Imported().Name() {
							line = name.Name() + " " + line
						}
						imports[line] = true
					}
				}
				return true
			})
		}
		if body.Len() == 0 && file.Doc == nil {
			continue
		}
		var all strings.Builder
		if file.Doc != nil {
			all.WriteString(string(text[at(file.Doc.Pos()):at(file.Doc.End())]) + "\n")
		}
		fmt.Fprintf(&all, "package %s\n", file.Name.Name)
		if len(imports) > 0 {
			lines := slices.Sorted(maps.Keys(imports))
			stock := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return strings.Contains(line, ".") })
			rest := slices.DeleteFunc(lines, func(line string) bool { return !strings.Contains(line, ".") })
			fmt.Fprintf(&all, "\nimport (\n%s\n\n%s\n)\n", strings.Join(stock, "\n"), strings.Join(rest, "\n"))
		}
		made, err := format.Source([]byte(all.String() + body.String()))
		if err != nil {
			return nil, err
		}
		files[filepath.Base(pkg.GoFiles[i])] = made
	}
	for _, other := range pkg.OtherFiles { // that functions without a body need
		text, err := os.ReadFile(other)
		if err != nil {
			return nil, err
		}
		files[filepath.Base(other)] = text
	}
	return files, nil
}
