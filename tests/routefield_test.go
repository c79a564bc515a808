package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mostFieldFiles is how many files a field of a route may need, written by hand, until a sidecar
// has it and explain shows it. docs/how-to/development.md lists them.
const mostFieldFiles = 8

// elsewhere are the folders of other readers of a route, which need not know each field, and of
// SMI, where a field with the same name is another one.
var elsewhere = []string{"resolver-service/edges/admin", "resolver-service/edges/console", "configstore/smimcs", "tests", "bin", ".git"}

// TestAFieldOfARouteIsCarriedByFewFiles counts the files that define or copy a field of a route.
func TestAFieldOfARouteIsCarriedByFewFiles(t *testing.T) {
	for _, field := range []string{"Weight", "Priority"} {
		var found []string
		err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
			name := filepath.ToSlash(strings.TrimPrefix(path, "../"))
			switch {
			case err != nil:
				return err
			case d.IsDir() && below(name, elsewhere...):
				return fs.SkipDir
			case carries(t, path, field):
				found = append(found, name)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(found) > mostFieldFiles || len(found) < 5 {
			t.Errorf("%s is defined or copied in %d files, want 5 to %d:\n%s", field, len(found), mostFieldFiles, strings.Join(found, "\n"))
		}
	}
}

// carries tells whether a file that people write defines a field of a route, copies it, or has it in
// a table.
func carries(t *testing.T, path, field string) (carried bool) {
	t.Helper()
	text, err := os.ReadFile(path)
	switch {
	case strings.HasSuffix(path, "/isthmus/v1alpha1/objects.proto"), strings.HasSuffix(path, "/isthmus/v1alpha1/services.proto"):
		return err == nil && strings.Contains(string(text), " uint32 "+strings.ToLower(field)+" = ")
	case !strings.HasSuffix(path, ".go"), strings.HasSuffix(path, "_test.go"), strings.HasSuffix(path, ".pb.go"), strings.HasSuffix(path, "_templ.go"):
		return false
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeSpec:
			if s, ok := n.Type.(*ast.StructType); ok && n.Name.Name == "RouteSpec" {
				carried = carried || slices.ContainsFunc(s.Fields.List, func(f *ast.Field) bool { return f.Names[0].Name == field })
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && key.Name == field {
				carried = carried || reads(n.Value, field)
			}
		case *ast.AssignStmt:
			for i, to := range n.Lhs {
				if s, ok := to.(*ast.SelectorExpr); ok && s.Sel.Name == field && len(n.Rhs) == len(n.Lhs) {
					carried = carried || reads(n.Rhs[i], field)
				}
			}
		case *ast.BasicLit:
			carried = carried || n.Value == `"`+strings.ToUpper(field)+`"` || n.Value == `"Route.`+strings.ToLower(field)+`"`
		}
		return true
	})
	return carried
}

// reads tells whether an expression takes the field of something.
func reads(e ast.Expr, field string) (found bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			found = found || s.Sel.Name == field || s.Sel.Name == "Get"+field
		}
		return true
	})
	return found
}
