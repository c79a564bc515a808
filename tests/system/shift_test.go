package system

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// holds tells whether the selection of an app's caller has a text.
func (m *mesh) holds(t *testing.T, id, want string) error {
	t.Helper()
	out, errs, err := m.isthmus(t, m.west, "", "get", "aep", id+"-caller", "-n", "shift", "-o", "yaml")
	if err == nil && !strings.Contains(out, want) {
		err = fmt.Errorf("the selection has not %q:\n%s%s", want, out, errs)
	}
	return err
}

// shiftRoutes are the routes to an app by two versions.
func shiftRoutes(app, local, east string) string {
	return "app: " + app + `, routes: [{cluster: local, weight: ` + local + `, versions: ["1.*"]}, {cluster: east, weight: ` + east + `, versions: ["2.*"]}]`
}

// Each app has a caller of its own, whose calls are shifted to the new version in the other cluster.
func TestCallsAreShiftedInSteps(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	app := func(id string) catalog.App { return catalog.App{Namespace: "shift", ID: id} }
	prepare := func(t *testing.T, id string, bad http.Handler) *sandbox.Sidecar {
		m.apply(t, m.east, export("shift", id, "west"))
		m.apply(t, m.west, selection("shift", id+"-caller", shiftRoutes(id, "90", "10")))
		m.versioned(t, m.west, app(id), "1.9", "")
		o := sandbox.SidecarOptions{App: app(id), Instance: "2.0", Component: map[string]any{"version": "2.0"}}
		if bad != nil {
			server := httptest.NewServer(bad)
			t.Cleanup(server.Close)
			o.AppAddress = strings.TrimPrefix(server.URL, "http://")
		}
		m.sidecar(t, m.east, o)
		caller := m.app(t, m.west, "shift", id+"-caller")
		m.says(t, m.west, "explain --from shift/"+id+"-caller "+id, "east", "10 %", "2.* of 2.0: 1")
		return caller
	}
	has := func(t *testing.T, id, want string) {
		t.Helper()
		if err := m.holds(t, id, want); err != nil {
			t.Error(err)
		}
	}

	t.Run("to the end", func(t *testing.T) {
		t.Parallel()
		caller := prepare(t, "orders", nil)
		l := startLoad(t, "calls are shifted", calling(caller, "orders"))
		l.answersFrom("east 2.0")
		out, errs, err := m.isthmus(t, m.west, "", "shift", "shift/orders", "--to", "east=100%", "--step", "45%", "--every", "20s", "--while", "success>99%,p99<10s")
		t.Logf("%s%s", out, errs)
		if err != nil || !strings.Contains(out, "step 2 of 2") || strings.Count(out, "success 100 %") != 2 {
			t.Errorf("isthmus shift: %v", err)
		}
		m.says(t, m.west, "top --from shift/orders-caller --once", "shift/orders", "east", "2.0: 1")
		has(t, "orders", `{cluster: east, weight: 100, versions: ["2.*"]}`)
		has(t, "orders", `{cluster: local, weight: 0, versions: ["1.*"]}`)
		l.onlyFrom("east 2.0")
		l.noneFailed()
	})

	t.Run("back, since the new version fails", func(t *testing.T) {
		t.Parallel()
		caller := prepare(t, "ledger", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasPrefix(r.URL.Path, "/dapr/") {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}))
		stop := callsAgain(t, caller, "ledger", meshtest.Attempt)
		defer stop()
		out, errs, err := m.isthmus(t, m.west, "", "shift", "shift/ledger", "--to", "east=100%", "--step", "40%", "--every", "40s", "--while", "success>99%")
		t.Logf("%s%s", out, errs)
		if err == nil || strings.Contains(out, "step 2") || !strings.Contains(errs, "so success>99% does not hold: the weights are set back to what they were") {
			t.Errorf("isthmus shift: %v", err)
		}
		has(t, "ledger", `{cluster: local, weight: 90, versions: ["1.*"]}`)
		has(t, "ledger", `{cluster: east, weight: 10, versions: ["2.*"]}`)
	})

	t.Run("no further, since nobody calls", func(t *testing.T) {
		t.Parallel()
		prepare(t, "stock", nil)
		for _, dry := range []string{"--dry-run", "--from=shift/stock-caller"} {
			out, errs, err := m.isthmus(t, m.west, "", "shift", "shift/stock", "--to", "east=50%", "--step", "20%", "--every", "20s", "--while", "success>99%", dry)
			t.Logf("%s%s", out, errs)
			switch {
			case dry == "--dry-run":
				if err != nil || !strings.Contains(out, "step 2 of 2: AppEndpoints shift/stock-caller: 50 % of the calls to shift/stock go to east, weights local (1.*) 50, east (2.*) 50") {
					t.Errorf("a dry run: %v", err)
				}
				has(t, "stock", "{cluster: east, weight: 10,")
			case err == nil || strings.Contains(out, "step 2") || !strings.Contains(errs, "no calls to shift/stock in east were seen within 20s") ||
				!strings.Contains(errs, "go back by: isthmus shift shift/stock --to east=10% --from shift/stock-caller"):
				t.Errorf("isthmus shift: %v", err)
			}
		}
		has(t, "stock", "{cluster: east, weight: 30,")
	})

	t.Run("no further, since somebody else writes", func(t *testing.T) {
		t.Parallel()
		prepare(t, "cart", nil)
		shift := func(every string, end func(*os.Process)) string {
			binary, err := sandbox.Binary("isthmus")
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(meshtest.Within(t, meshtest.Patience), binary, "shift", "shift/cart", "--to", "east=50%", "--step", "20%", "--every", every)
			cmd.Env = append(os.Environ(), m.west.CommandLine()...)
			var errs bytes.Buffer
			out := &firstLine{seen: make(chan struct{})}
			cmd.Stdout, cmd.Stderr = out, &errs
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			<-out.seen
			meshtest.Eventually(t, meshtest.Patience, func() error { return m.holds(t, "cart", "{cluster: east, weight: 30,") })
			end(cmd.Process)
			if err := cmd.Wait(); err == nil {
				t.Error("isthmus shift ends well")
			}
			return errs.String()
		}
		errs := shift("1m", func(p *os.Process) { _ = p.Signal(os.Interrupt) })
		if !strings.Contains(errs, "interrupted") || !strings.Contains(errs, "go back by: isthmus shift shift/cart --to east=10%") {
			t.Errorf("interrupted, it says:\n%s", errs)
		}
		has(t, "cart", "{cluster: east, weight: 30,")
		m.apply(t, m.west, selection("shift", "cart-caller", shiftRoutes("cart", "90", "10")))
		other := shiftRoutes("cart", "70", "30") + ", whenStale: serve"
		errs = shift("20s", func(*os.Process) { m.apply(t, m.west, selection("shift", "cart-caller", other)) })
		if !strings.Contains(errs, "was changed by somebody else meanwhile, and is not written over") {
			t.Errorf("beside another change, it says:\n%s", errs)
		}
		has(t, "cart", "whenStale: serve")
	})
}

// firstLine tells when something was written.
type firstLine struct {
	once sync.Once
	seen chan struct{}
}

func (f *firstLine) Write(b []byte) (int, error) {
	f.once.Do(func() { close(f.seen) })
	return len(b), nil
}
