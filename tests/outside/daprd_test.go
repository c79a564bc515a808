package outside

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

var (
	wanted  = flag.String("daprds", "", "build and try the daprd of these versions of Dapr, such as 1.17.5,1.18.3; all: those of the table")
	instead = flag.String("instead", "", "a module that the proxy lacks, and a folder to take in its stead: path=folder")
)

const page = "../../docs/how-to/own-daprd.md"

// programs are those that the page shows, the first one first.
func programs(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range strings.Split(string(text), "```go\n")[1:] {
		program, _, _ := strings.Cut(block, "```")
		all = append(all, program)
	}
	if len(all) < 3 {
		t.Fatalf("%s has %d programs", page, len(all))
	}
	return all
}

// newDaprd is an outsider with a daprd of their own.
func newDaprd(t *testing.T, program string) *outsider {
	t.Helper()
	o := newOutsider(t, program)
	programstest.World(t, "sentry", "isthmus")
	o.go_("get", isthmus+"/"+daprd+"@"+published.version)
	o.go_("mod", "tidy")
	return o
}

// build builds it, as a release is built, so that little is to compile.
func (o *outsider) build() (path string) {
	o.t.Helper()
	path = filepath.Join(o.dir, "daprd")
	o.go_("build", "-mod=mod", "-tags", tags(), "-ldflags", "-s -w", "-o", path, ".")
	return path
}

// lacks matches what Go says of a version that a proxy does not have, or does not give out.
var lacks = regexp.MustCompile(`reading \S+: (403|404|410) .*`)

// has downloads the modules that the program links, and tells of one that no proxy has.
func (o *outsider) has() error {
	o.t.Helper()
	cmd := exec.CommandContext(o.t.Context(), "go", "list", "-mod=mod", "-tags", tags(), "-deps", ".")
	cmd.Dir, cmd.Env = o.dir, append(os.Environ(), o.env...)
	out, err := cmd.CombinedOutput()
	if lack := lacks.FindString(string(out)); err != nil && lack != "" {
		return errors.New(lack)
	}
	return nil // Go says the rest when it builds
}

// tags are those that daprd is built with.
func tags() string { return cmp.Or(os.Getenv("DAPRD_TAGS"), "stablecomponents") }

func TestADaprdOfYourOwn(t *testing.T) {
	shown := programs(t)
	o := newDaprd(t, shown[0])
	for _, m := range []string{isthmus, isthmus + "/" + daprd} {
		if line := m + " " + published.version; !strings.Contains(o.read("go.mod"), line) {
			t.Errorf("go.mod lacks %s:\n%s", line, o.read("go.mod"))
		}
	}
	linked := func(packages ...string) (modules []string) {
		modules = strings.Fields(o.go_(append([]string{"list", "-tags", "stablecomponents", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}"}, packages...)...))
		slices.Sort(modules)
		return slices.Compact(modules)
	}
	own := linked("github.com/dapr/dapr/cmd/daprd/app")
	if more := slices.DeleteFunc(linked("."), func(m string) bool {
		return slices.Contains(own, m) || strings.HasPrefix(m, isthmus) || m == "example.com/outside"
	}); !slices.Equal(more, []string{"go.etcd.io/bbolt"}) { // as docs/explanation/architecture.md says
		t.Errorf("a daprd links %v of Isthmus beyond Dapr's own", more)
	}
	for _, program := range shown[1:] {
		o.write("main.go", program)
		o.go_("mod", "tidy")
		o.go_("list", "-export", "-tags", "stablecomponents", ".") // compiles it, and links nothing
	}
	program, err := os.ReadFile("testdata/main.go")
	if err != nil {
		t.Fatal(err)
	}
	o.write("main.go", string(program))
	w := start(t, o.build())
	dapr := strings.TrimPrefix(strings.TrimSpace(o.go_("list", "-m", "-f", "{{.Version}}", "github.com/dapr/dapr")), "v")
	w.callsAreMade(t, dapr)
	w.partsAreLeftOut(t, dapr)
}

// release is one of Dapr's, with the modules that go with it.
type release struct{ dapr, contrib, kit, durabletask, redis string }

// releases are those that are supported. Where the proxies of some networks lack a version that Dapr's
// go.mod names, they have the nearest one.
var releases = []release{
	{"1.17.0", "1.17.3", "0.17.0", "0.11.0", "9.6.3"},
	{"1.17.5", "1.17.3", "0.17.0", "0.11.0", "9.6.3"},
	{"1.18.0", "1.18.3", "0.18.2", "0.12.2-0.20260720132056-79042da5fe61", "9.21.0"},
	{"1.18.1", "1.18.3", "0.18.2", "0.12.2-0.20260720132056-79042da5fe61", "9.21.0"},
	{"1.18.2", "1.18.3", "0.18.2", "0.12.2-0.20260720132056-79042da5fe61", "9.21.0"},
	{"1.18.3", "1.18.4", "0.18.3", "0.12.2-0.20260720132056-79042da5fe61", "9.21.0"},
}

// row is the release in the table of the page.
func (r release) row() string {
	short, _, _ := strings.Cut(r.durabletask, "-")
	return "| " + strings.Join([]string{r.dapr, r.contrib, r.kit, short, r.redis}, " | ") + " |"
}

// replace has an outsider's module take the release.
func (r release) replace(o *outsider) {
	for path, version := range map[string]string{
		"dapr/dapr": r.dapr, "dapr/components-contrib": r.contrib, "dapr/kit": r.kit, "dapr/durabletask-go": r.durabletask, "redis/go-redis/v9": r.redis,
	} {
		o.go_("mod", "edit", "-replace", "github.com/"+path+"=github.com/"+path+"@v"+version)
	}
}

// TestDaprds builds a daprd with each version of Dapr, one after the other, and makes calls with it.
func TestDaprds(t *testing.T) {
	if *wanted == "" {
		t.Skip("builds daprd several times: make test-daprds")
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("testdata/main.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range releases {
		if row := r.row(); !strings.Contains(string(text), "\n"+row+"\n") {
			t.Errorf("%s lacks the row\n%s", page, row)
		}
		if *wanted != "all" && !strings.Contains(","+*wanted+",", ","+r.dapr+",") {
			continue
		}
		t.Run(r.dapr, func(t *testing.T) {
			began := time.Now()
			o := newDaprd(t, string(program))
			r.replace(o)
			if *instead != "" {
				o.go_("mod", "edit", "-replace", *instead)
			}
			if err := o.has(); err != nil {
				t.Skipf("the proxy lacks a module of Dapr %s: %v", r.dapr, err)
			}
			path := o.build()
			t.Logf("built after %s", time.Since(began).Round(time.Second))
			w := start(t, path)
			w.callsAreMade(t, r.dapr)
			w.partsAreLeftOut(t, r.dapr)
		})
	}
}

// world is two clusters of a daprd.
type world struct {
	*sandbox.Sandbox
	west, east *sandbox.Cluster
	logs       string // the directory
}

func start(t *testing.T, daprd string) *world {
	t.Helper()
	t.Setenv("ISTHMUS_DAPRD", daprd)
	w := &world{logs: t.TempDir()}
	var err error
	if w.Sandbox, err = sandbox.New(w.logs, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	authority, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	ctx := meshtest.Within(t, meshtest.Patience)
	if w.west, err = w.Cluster(ctx, sandbox.ClusterOptions{Name: "west", Authority: authority}); err != nil {
		t.Fatal(err)
	}
	if w.east, err = w.Cluster(ctx, sandbox.ClusterOptions{Name: "east", Authority: authority}); err != nil {
		t.Fatal(err)
	}
	w.isthmus(t, w.west, meshtest.Cluster("east", w.east.Gateway)+"---\n"+
		meshtest.Selection("shop", "checkout", "app: orders", "app: ledger")+"---\n"+meshtest.Selection("billing", "report", "app: orders, namespace: shop"), "apply", "-f", "-")
	w.isthmus(t, w.east, meshtest.Cluster("west", w.west.Gateway)+"---\n"+meshtest.Export("shop", "ledger", "west"), "apply", "-f", "-")
	return w
}

// isthmus runs the command line against a cluster.
func (w *world) isthmus(t *testing.T, c *sandbox.Cluster, stdin string, args ...string) string {
	t.Helper()
	binary, err := sandbox.Binary("isthmus")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(meshtest.Within(t, meshtest.Patience), binary, args...)
	cmd.Env, cmd.Stdin = append(os.Environ(), c.CommandLine()...), strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("isthmus %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// sidecar starts a sidecar without a part, which ends with the test.
func (w *world) sidecar(t *testing.T, c *sandbox.Cluster, namespace, id, without string, component map[string]any) *sandbox.Sidecar {
	t.Helper()
	s, err := c.Sidecar(meshtest.Within(t, meshtest.Patience), sandbox.SidecarOptions{
		App: catalog.App{Namespace: namespace, ID: id}, Instance: without, Component: component, Env: map[string]string{"WITHOUT": without},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s:\n%s", s.Name(), s.Tail(15))
		}
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// answered waits until an app of a cluster answers a call.
func answered(t *testing.T, from *sandbox.Sidecar, id, cluster string) {
	t.Helper()
	meshtest.Eventually(t, meshtest.Patience, func() error {
		reply, err := from.Invoke(meshtest.Within(t, meshtest.Attempt), id, "hello", nil)
		if err == nil && reply.Cluster != cluster {
			err = fmt.Errorf("%s in %s answers, want %s", id, reply.Cluster, cluster)
		}
		return err
	})
}

// callsAreMade has a caller reach apps of its own cluster and of another one, by lookup and dialer,
// and the guard refuse another caller.
func (w *world) callsAreMade(t *testing.T, dapr string) {
	t.Run("with everything", func(t *testing.T) {
		w.sidecar(t, w.west, "shop", "orders", "", map[string]any{"guard": "enforce"})
		w.sidecar(t, w.east, "shop", "ledger", "", nil)
		checkout, report := w.sidecar(t, w.west, "shop", "checkout", "", nil), w.sidecar(t, w.west, "billing", "report", "", nil)
		answered(t, checkout, "orders", "west")
		answered(t, checkout, "ledger", "east")
		if metrics := get(t, checkout); !strings.Contains(metrics, `dapr_isthmus_calls_total{callee="ledger",callee_namespace="shop",cluster="east"}`) {
			t.Errorf("the dialer has counted no call of ledger in east: %s", metrics)
		}
		meshtest.Eventually(t, meshtest.Patience, func() error {
			if _, err := report.Invoke(meshtest.Within(t, meshtest.Attempt), "orders.shop", "hello", nil); err == nil || !strings.Contains(err.Error(), "ERR_ISTHMUS_DENIED") {
				return fmt.Errorf("the guard lets report in: %v", err)
			}
			return nil
		})
		w.say(t, "daprd "+dapr)
	})
}

// partsAreLeftOut has a daprd go on without the dialer and the guard, where its gRPC lacks their hooks
// or its program wants none.
func (w *world) partsAreLeftOut(t *testing.T, dapr string) {
	for without, want := range map[string]string{"hooks": "without dialer and guard", "dialer": "without dialer", "guard": "without guard"} {
		t.Run("without "+without, func(t *testing.T) {
			component := map[string]any{}
			if without == "dialer" {
				component["guard"] = "enforce"
			}
			orders := w.sidecar(t, w.west, "shop", "orders", without, component)
			checkout, report := w.sidecar(t, w.west, "shop", "checkout", without, nil), w.sidecar(t, w.west, "billing", "report", without, nil)
			answered(t, checkout, "orders", "west")
			meshtest.Eventually(t, meshtest.Patience, func() error {
				_, err := report.Invoke(meshtest.Within(t, meshtest.Attempt), "orders.shop", "hello", nil)
				if refused := err != nil && strings.Contains(err.Error(), "ERR_ISTHMUS_DENIED"); refused != (without == "dialer") || err != nil && !refused {
					return fmt.Errorf("a caller that nothing lets in: %v", err)
				}
				return nil
			})
			w.say(t, "daprd "+dapr+" "+want)
			meshtest.Eventually(t, meshtest.Patience, func() error {
				out := w.isthmus(t, w.west, "", "calls", "shop/orders", "-o", "json")
				if unseen := strings.Contains(out, "are without it"); unseen != (without != "dialer") {
					return fmt.Errorf("operators read that no guard sees the calls of orders: %t\n%s", unseen, out)
				}
				return nil
			})
			if lost := strings.Count(orders.Tail(1000), "has no hook"); lost > 0 != (without == "hooks") {
				t.Errorf("the log says %d times that gRPC lacks a hook", lost)
			}
		})
	}
}

// say waits until operators see that all sidecars of west run this, with our version.
func (w *world) say(t *testing.T, runtime string) {
	t.Helper()
	meshtest.Eventually(t, meshtest.Patience, func() error {
		var answer struct {
			Items []struct{ App, Runtime, Version string }
		}
		out := w.isthmus(t, w.west, "", "sidecars", "-o", "json")
		if err := json.Unmarshal([]byte(out), &answer); err != nil || len(answer.Items) == 0 {
			return fmt.Errorf("isthmus sidecars: %w: %s", err, out)
		}
		for _, s := range answer.Items {
			if s.Runtime != runtime || s.Version != published.version {
				return fmt.Errorf("%s runs %q with Isthmus %q, want %q with %q", s.App, s.Runtime, s.Version, runtime, published.version)
			}
		}
		return nil
	})
}

// get reads a sidecar's metrics.
func get(t *testing.T, s *sandbox.Sidecar) string {
	t.Helper()
	req, err := http.NewRequestWithContext(meshtest.Within(t, meshtest.Attempt), http.MethodGet, "http://"+s.Metrics+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return string(text)
}
