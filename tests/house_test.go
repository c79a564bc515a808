// Package tests holds the rules of the house: who may import whom, and what every
// package must have. Whole-system tests against real servers are in its folders.
package tests

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/isthmus-mesh/isthmus"

type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
	Standard   bool
}

// packages are this module's, by path below the module.
func packages(t *testing.T) map[string]pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Deps,Standard", "./...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string]pkg{}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); decoder.More(); {
		var p pkg
		if err := decoder.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all[strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")] = p
	}
	return all
}

// ours are the packages of this module among some import paths.
func ours(paths []string) []string {
	var found []string
	for _, path := range paths {
		if rest, ok := strings.CutPrefix(path, module+"/"); ok {
			found = append(found, rest)
		}
	}
	return found
}

func outside(paths []string) []string {
	return slices.DeleteFunc(slices.Clone(paths), func(path string) bool {
		first, _, _ := strings.Cut(path, "/")
		return !strings.Contains(first, ".") || strings.HasPrefix(path, module)
	})
}

// below tells whether a package is one of the folders or inside of one.
func below(path string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return path == folder || strings.HasPrefix(path, folder+"/")
	})
}

// TestImportsPointDown holds DESIGN: cmd, edges, topology, then configstore, catalog
// and live; the edges never import each other.
func TestImportsPointDown(t *testing.T) {
	allowed := map[string][]string{
		"catalog":                               {},
		"resolver-service/edges/console/login":  {"internal/atomicfile", "internal/settings", "internal/throttle"},
		"internal/live":                         {},
		"internal/addresses":                    {},
		"internal/throttle":                     {},
		"internal/traffic":                      {"api", "catalog"},
		"internal/atomicfile":                   {},
		"api":                                   {"api", "catalog", "internal/strict"},
		"internal/settings":                     {"internal/settings", "internal/strict"},
		"internal/strict":                       {"catalog"},
		"configstore/smimcs":                    {"catalog", "internal/strict"},
		"configstore":                           {"api", "internal/atomicfile", "catalog", "internal/live", "internal/settings", "configstore", "internal/strict"},
		"identity":                              {"api", "internal/atomicfile", "catalog", "internal/live", "identity", "internal/strict", "internal/throttle"},
		"components/actors":                     {"api", "catalog", "components/dial", "identity", "internal/addresses", "internal/live", "internal/strict", "internal/throttle", "nameresolution", "resolver-service/authz/trustbundle", "tracing"},
		"components/dial":                       {"catalog", "internal/live", "internal/traffic", "nameresolution", "resolver-service/sources/hosts/lookup", "tracing"},
		"tracing":                               {"api", "catalog", "internal/settings", "internal/strict", "tracing"},
		"resolver-service/topology":             {"catalog", "internal/live", "configstore", "internal/throttle", "resolver-service/topology/destination"},
		"resolver-service/topology/destination": {"catalog"},
		"resolver-service/limits":               {"resolver-service/limits"},
		"resolver-service/authz":                {"api", "catalog", "configstore/kubernetes/apiserver", "identity", "internal/live", "internal/strict", "internal/throttle", "resolver-service/authz"},
		"resolver-service/process":              {"identity", "internal/live", "internal/throttle", "resolver-service/edges/edge"},
		"nameresolution":                        {"api", "internal/atomicfile", "catalog", "internal/live", "configstore", "identity", "internal/addresses", "internal/settings", "internal/strict", "internal/throttle", "internal/traffic", "tracing", "nameresolution"},
	}
	edges := edgeFolders(t)
	for path, p := range packages(t) {
		for folder, may := range allowed {
			if !below(path, folder) {
				continue
			}
			for _, imported := range ours(p.Imports) {
				if !suite(path, imported) && !below(imported, may...) {
					t.Errorf("%s imports %s; %s may import %v", path, imported, folder, may)
				}
			}
		}
		for _, edge := range edges {
			if !below(path, edge) {
				continue
			}
			for _, other := range edges {
				if other != edge && slices.ContainsFunc(ours(p.Imports), func(i string) bool { return below(i, other) }) {
					t.Errorf("the edge %s imports the edge %s", edge, other)
				}
			}
		}
		for _, imported := range ours(p.Imports) {
			if below(imported, "cmd", "tests") && !below(path, "cmd", "tests") && !suite(path, imported) {
				t.Errorf("%s imports %s", path, imported)
			}
		}
	}
}

// TestRoomsOfTheServiceAreInNoCircle holds that the folders of the resolver service import each other
// in one direction, that only its root knows the answers to operators, and that few files are at the root.
func TestRoomsOfTheServiceAreInNoCircle(t *testing.T) {
	const service = "resolver-service/"
	imports := map[string]map[string]bool{}
	for path, p := range packages(t) {
		from, in := strings.CutPrefix(path, service)
		for _, imported := range ours(p.Imports) {
			to, ok := strings.CutPrefix(imported, service)
			if ok && below(to, "answers", "process") && path != "resolver-service" && !below(from, to) && !below(path, "tests") {
				t.Errorf("%s imports %s, which only the service itself may", path, imported)
			}
			if from, to := room(from), room(to); in && ok && from != to {
				if imports[from] == nil {
					imports[from] = map[string]bool{}
				}
				imports[from][to] = true
			}
		}
	}
	var leads func(from, to string, seen map[string]bool) bool
	leads = func(from, to string, seen map[string]bool) bool {
		for next := range imports[from] {
			if next == to || !seen[next] && func() bool { seen[next] = true; return leads(next, to, seen) }() {
				return true
			}
		}
		return false
	}
	for from := range imports {
		if leads(from, from, map[string]bool{}) {
			t.Errorf("%s%s is in a circle of imports; it imports %v", service, from, slices.Sorted(maps.Keys(imports[from])))
		}
	}
	files, err := filepath.Glob("../" + service + "*.go")
	if files = slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, "_test.go") }); err != nil || len(files) > 14 {
		t.Errorf("%d files are at the root of the service (%v); 14 are enough, and most lines have a room", len(files), err)
	}
}

// room is the folder of the resolver service that a package is in.
func room(path string) string {
	folder, _, _ := strings.Cut(path, "/")
	return folder
}

// suite tells of packages that are tests for other packages what they may have of the tests' own.
func suite(path, imported string) bool {
	return imported == "tests/sandbox/raced" && (path == "configstore/storetest" || strings.HasSuffix(path, "test"))
}

const edgesFolder = "resolver-service/edges/"

// edgeFolders are the folders of edges: those that describe one in edge.go, and those that the
// service joins itself.
func edgeFolders(t *testing.T) []string {
	t.Helper()
	all := []string{"resolver-service/objects", edgesFolder + "stream", edgesFolder + "gateway", edgesFolder + "peering", edgesFolder + "tunnel"}
	files, err := filepath.Glob("../" + edgesFolder + "*/edge.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no edge: %v", err)
	}
	for _, file := range files {
		if folder := filepath.Base(filepath.Dir(file)); folder != "edge" {
			all = append(all, edgesFolder+folder)
		}
	}
	return all
}

// TestForeignDocumentsKnowNoAddress holds that what reads documents of other standards and what
// knows instances do not meet: a document never gives an app an address.
func TestForeignDocumentsKnowNoAddress(t *testing.T) {
	for path, p := range packages(t) {
		for _, dep := range ours(p.Deps) {
			if path == "configstore/smimcs" && below(dep, "resolver-service") || below(path, "resolver-service/sources/instances") && dep == "configstore/smimcs" {
				t.Errorf("%s depends on %s", path, dep)
			}
		}
	}
}

func TestWhatStaysLightHasNoHeavyDependency(t *testing.T) {
	all := packages(t)
	for _, light := range []string{"catalog", "internal/live"} {
		if heavy := outside(all[light].Deps); len(heavy) > 0 {
			t.Errorf("%s depends on %v; it may use the standard library only", light, heavy)
		}
	}
	for path, p := range all {
		for _, dep := range p.Deps {
			if below(dep, "github.com/dapr/dapr") {
				t.Errorf("%s depends on %s; daprd's code stays in components/daprd", path, dep)
			}
			if below(dep, module+"/api/dapr") && !below(path, "api/dapr", "components/actors", "cmd", "tests") {
				t.Errorf("%s depends on %s; daprd, which links it, has Dapr's own messages of these names", path, dep)
			}
			if below(dep, "github.com/chromedp") && !below(path, "tests") {
				t.Errorf("%s depends on %s; a browser is for tests", path, dep)
			}
			if below(path, "nameresolution") && (slices.ContainsFunc([]string{"k8s.io/", "go.etcd.io/etcd", "github.com/hashicorp/consul", "github.com/dapr/", "github.com/jackc/", "github.com/redis/"}, func(p string) bool { return strings.HasPrefix(dep, p) }) ||
				strings.HasPrefix(dep, "github.com/envoyproxy/go-control-plane") || below(strings.TrimPrefix(dep, module+"/"), "resolver-service")) {
				t.Errorf("%s depends on %s; whoever links the component must not get it", path, dep)
			}
		}
	}
}

// source is a file of Go that nothing generated.
type source struct {
	path string
	text string
	file *ast.File
	set  *token.FileSet
}

// sources are all of this repository's, read once for all tests.
var sources = sync.OnceValues(func() (all []source, err error) {
	err = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || path == "../bin" || strings.HasPrefix(d.Name(), ".") && d.Name() != "..") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, text, parser.ParseComments)
		if err == nil && !ast.IsGenerated(file) {
			all = append(all, source{path, string(text), file, set})
		}
		return err
	})
	return all, err
})

// goFiles visits all sources.
func goFiles(t *testing.T, visit func(source)) {
	t.Helper()
	all, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		visit(s)
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	said := map[string]bool{}
	goFiles(t, func(s source) {
		path, file := s.path, s.file
		if strings.HasSuffix(path, "_test.go") && strings.HasSuffix(file.Name.Name, "_test") {
			return
		}
		dir := filepath.Dir(path)
		said[dir] = said[dir] || file.Doc != nil && len(file.Doc.Text()) > 20
	})
	for dir, ok := range said {
		if !ok {
			t.Errorf("%s has no package comment", dir)
		}
	}
}

func TestHouseRules(t *testing.T) {
	banned := []string{"util", "utils", "common", "helper", "helpers", "manager", "impl", "misc"}
	goFiles(t, func(s source) {
		path, file, set := s.path, s.file, s.set
		if slices.Contains(banned, file.Name.Name) {
			t.Errorf("%s: package name %s says nothing", path, file.Name.Name)
		}
		if lines := set.Position(file.End()).Line; lines > 500 {
			t.Errorf("%s has %d lines; 500 are enough", path, lines)
		}
		if strings.Contains(s.text, "testing."+"Short()") && !strings.HasPrefix(path, "../tests/sandbox/programs/programstest/") {
			t.Errorf("%s: programstest alone says what a short run leaves out", path)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s: init() runs behind everybody's back", set.Position(f.Pos()))
			}
			if f.Name.IsExported() && f.Doc == nil && !strings.HasSuffix(path, "_test.go") && exported(f) {
				t.Errorf("%s: %s has no comment", set.Position(f.Pos()), f.Name.Name)
			}
		}
	})
}

// exported tells whether a method's receiver can be named outside of its package.
func exported(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return true
	}
	kind := f.Recv.List[0].Type
	if star, ok := kind.(*ast.StarExpr); ok {
		kind = star.X
	}
	if index, ok := kind.(*ast.IndexExpr); ok {
		kind = index.X
	}
	name, ok := kind.(*ast.Ident)
	return ok && name.IsExported()
}
