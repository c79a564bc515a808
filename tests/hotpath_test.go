package tests

import (
	"encoding/json"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// hotPath is what runs for each lookup, query, piece of bytes or update: some functions, and all that they
// call by name.
type hotPath struct {
	begin []string
	cold  []string          // is called seldom, and not followed
	may   map[string]string // writes that count, by a part of their text: why they cost no more on more cores
}

const (
	dnsEdge  = "resolver-service/edges/dns/"
	relayOf  = "resolver-service/edges/gateway/relay."
	streamOf = "resolver-service/edges/stream."
)

var hotPaths = map[string]hotPath{
	"a lookup": {
		begin: []string{"nameresolution.(*Resolver).ResolveID", "nameresolution.(*Resolver).Find", "catalog.(*Plan).Pick", "components/dial.(*Dialer).Name"},
		cold: []string{
			"nameresolution.(*Resolver).findSlow", "nameresolution.(*Resolver).traced", // waits, fails or is sampled
			"catalog.(*sequence).contend", "catalog.(*Plan).Keep", "components/dial.(*Dialer).callee", // once for an app
		},
		may: map[string]string{
			"next: t.shared.CompareAndSwap": "until two cores compete; then each has a sequence of its own",
			"use: s.used.Store":             "read first: once in the pause of a local resolver's searches",
		},
	},
	"a query": {
		begin: []string{dnsEdge + "transport.(*udpSocket).answer", dnsEdge + "transport.(*conn).answerAll", dnsEdge + "transport.(*conns).used", dnsEdge + "zone.(*Zone).Answer"},
		cold: []string{
			dnsEdge + "transport.(*worker).answerLater", dnsEdge + "transport.(*conn).wait", // for what is not known yet
			dnsEdge + "zone.(*lookup).awaitAnswer", // waits
			dnsEdge + "zone.(*Zone).firstView", dnsEdge + "zone.(*gateways).pack", "catalog.NewPlan", "catalog.(*Plan).Keep", "catalog.(*sequence).contend",
		},
		may: map[string]string{
			".tally.":                       "a socket's own, or one of 64 for connections",
			"(*tally).sent":                 "the same",
			"used: c.usedAt.Store":          "a connection's own",
			"write: c.writing.Lock":         "a connection's own",
			"(*limiter).take":               "a client network's and an answer's; none where the sender is proved",
			"Follow: v.state":               "once, before the first value",
			"(*counters).add":               "one of 32, by the goroutine",
			"view: a.asked.Store":           "read first: once a minute",
			"isSettled: z.settled.Store":    "once",
			"next: t.shared.CompareAndSwap": "until two cores compete",
		},
	},
	"bytes through a gateway": {
		begin: []string{relayOf + "(*Loop).advance", relayOf + "(*Loop).note"},
		may: map[string]string{
			".mu.Lock":        "a loop's own; others lock it to add a connection",
			"move: count.Add": "of an app, by two loops at most",
		},
	},
	"an update of a sidecar": {
		begin: []string{streamOf + "(*watch).send"},
		cold:  []string{streamOf + "(*knownEntries).release"}, // when a sidecar has connected
		may: map[string]string{ // an update takes 10 µs, most of them in the kernel
			"send: w.sending.Lock":     "a stream's own",
			"(*inFlight).":             "a stream's own",
			"(*prepared).":             "the message's; streams that send the same one hold it twice, for nanoseconds",
			"message: w.s.latest.Swap": "for a message that no other stream has made",
			"budget.(*Budget).":        "the same",
			"send: w.s.metrics.":       "three counters of the service",
			"deliveryOf: w.s.metrics.": "a histogram of the service",
		},
	},
}

// sharedWrites are the methods of the standard library and of metrics that write a line which others may
// write or read, by package.
var sharedWrites = map[string][]string{
	"sync/atomic": {"Add", "And", "CompareAndSwap", "Or", "Store", "Swap"},
	"sync":        {"Lock", "RLock", "Do", "LoadOrStore", "Wait"},
	"github.com/prometheus/client_golang/prometheus": {"Add", "Dec", "Inc", "Observe", "Set", "WithLabelValues"},
}

// function is what a function calls of ours, and what it writes.
type function struct{ calls, writes []string }

// A hot path writes no line that other cores write, except where this file says why.
func TestHotPathsWriteNoSharedLine(t *testing.T) {
	all := functions(t, "./nameresolution", "./components/dial", "./resolver-service/edges/dns/...", "./resolver-service/edges/gateway/relay", "./resolver-service/edges/stream")
	for name, path := range hotPaths {
		found, reached := map[string]bool{}, map[string]bool{}
		for next := slices.Clone(path.begin); len(next) > 0; next = next[1:] {
			f, ok := all[next[0]]
			if !ok && slices.Contains(path.begin, next[0]) {
				t.Errorf("%s: there is no %s", name, next[0])
			}
			if reached[next[0]] || slices.Contains(path.cold, next[0]) {
				continue
			}
			reached[next[0]] = true
			next = append(next, f.calls...)
			for _, w := range f.writes {
				found[next[0]+": "+w] = true
			}
		}
		unused := maps.Clone(path.may)
		for _, w := range slices.Sorted(maps.Keys(found)) {
			reasons := 0
			for part := range path.may {
				if strings.Contains(w, part) {
					reasons++
					delete(unused, part)
				}
			}
			if reasons == 0 {
				t.Errorf("%s writes what other cores may write: %s; keep it to one core, or say here why it costs nothing", name, w)
			}
		}
		for part := range unused {
			t.Errorf("%s no longer writes %s", name, part)
		}
		for _, f := range path.cold {
			if _, ok := all[f]; !ok {
				t.Errorf("%s: there is no %s", name, f)
			}
		}
	}
}

// functions reads the functions of packages and of what they import of this module.
func functions(t *testing.T, patterns ...string) map[string]function {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Dir,GoFiles,Export"}, patterns...)...)
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	type listed struct {
		ImportPath, Dir, Export string
		GoFiles                 []string
	}
	packages, files := map[string]listed{}, token.NewFileSet()
	for decoder := json.NewDecoder(strings.NewReader(string(out))); decoder.More(); {
		var p listed
		if err := decoder.Decode(&p); err != nil {
			t.Fatal(err)
		}
		packages[p.ImportPath] = p
	}
	imports := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(packages[path].Export) })
	all := map[string]function{}
	for path, p := range packages {
		if !strings.HasPrefix(path, module) {
			continue
		}
		var parsed []*ast.File
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			parsed = append(parsed, file)
		}
		info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
		if _, err := (&types.Config{Importer: imports}).Check(path, files, parsed, info); err != nil {
			t.Fatal(err)
		}
		for _, file := range parsed {
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
					all[nameOf(info.Defs[f.Name].(*types.Func))] = calling(info, f)
				}
			}
		}
	}
	return all
}

// calling lists what a function calls and writes, functions within it included.
func calling(info *types.Info, of *ast.FuncDecl) (f function) {
	ast.Inspect(of, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		at, _ := ast.Unparen(call.Fun).(*ast.SelectorExpr)
		id, _ := ast.Unparen(call.Fun).(*ast.Ident)
		if at != nil {
			id = at.Sel
		}
		callee, ok := info.Uses[id].(*types.Func)
		if !ok || callee.Pkg() == nil {
			return true
		}
		callee = callee.Origin()
		if strings.HasPrefix(callee.Pkg().Path(), module) {
			f.calls = append(f.calls, nameOf(callee))
		} else if slices.Contains(sharedWrites[callee.Pkg().Path()], callee.Name()) {
			f.writes = append(f.writes, types.ExprString(call.Fun))
		}
		return true
	})
	return f
}

// nameOf is a function's name with its package below the module.
func nameOf(f *types.Func) string {
	name := strings.ReplaceAll(f.FullName(), module+"/", "")
	if rest, ok := strings.CutPrefix(name, "(*"); ok { // (*a/b.T).m
		i := strings.LastIndex(rest[:strings.Index(rest, ")")], ".")
		return rest[:i] + ".(*" + rest[i+1:]
	}
	return name
}
