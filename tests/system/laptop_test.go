package system

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// host is one cluster, west, that laptops join.
type host struct {
	*mesh
}

var orders = catalog.App{Namespace: "shop", ID: "orders"}

// hosting starts it, with more of isthmus.yaml.
func hosting(t *testing.T, settings map[string]any) *host {
	t.Helper()
	needsBinaries(t)
	s, err := sandbox.New(t.TempDir(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{&mesh{Sandbox: s}}
	t.Cleanup(func() {
		if err := h.close(); err != nil {
			t.Error(err)
		}
	})
	if h.authority, err = sandbox.NewAuthority(); err != nil {
		t.Fatal(err)
	}
	if h.west, err = s.Cluster(meshtest.Within(t, meshtest.Patience), sandbox.ClusterOptions{Name: "west", Authority: h.authority, Settings: settings}); err != nil {
		t.Fatal(err)
	}
	return h
}

// invite has an operator invite anna's laptop as shop/orders.
func (h *host) invite(t *testing.T, args ...string) string {
	t.Helper()
	out, errs, err := h.isthmus(t, h.west, "", append([]string{"dev", "invite", "anna-laptop", "--app", "shop/orders", "--gateway", h.west.Gateway}, args...)...)
	if err != nil {
		t.Fatalf("isthmus dev invite: %v\n%s", err, errs)
	}
	return strings.TrimSpace(out)
}

// join has the laptop join.
func (h *host) join(t *testing.T, invitation string, args ...string) *sandbox.Guest {
	t.Helper()
	g, err := h.Guest(meshtest.Within(t, meshtest.Patience), sandbox.GuestOptions{Name: "anna-laptop", App: orders, Invitation: invitation, Args: args, Env: []string{"TMPDIR=" + h.tmp(t)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s:\n%s", g.Process.Name(), g.Tail(60))
		}
	})
	return g
}

// tmp is where guests keep their files.
func (h *host) tmp(t *testing.T) string {
	t.Helper()
	dir := h.Dir() + "/tmp"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// gone waits until nothing of a guest is left, at either side.
func (h *host) gone(t *testing.T, g *sandbox.Guest) {
	t.Helper()
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if out, _, err := h.isthmus(t, h.west, "", "get", "cluster", "anna-laptop"); err == nil {
			return fmt.Errorf("the guest's object is there: %s", out)
		}
		if left, err := os.ReadDir(h.tmp(t)); err != nil || len(left) > 0 {
			return fmt.Errorf("left on the laptop: %v, %v", left, err)
		}
		return nil
	})
	if res, err := http.Get("http://" + g.HTTP + "/v1.0/healthz"); err == nil {
		res.Body.Close()
		t.Error("the guest's sidecar still runs")
	}
}

// A laptop joins, its app calls what orders may call and nothing else, and it leaves.
func TestALaptopJoins(t *testing.T) {
	t.Parallel()
	h := hosting(t, map[string]any{"guard": "enforce"})
	h.apply(t, h.west, selection("shop", "orders", "app: payments", "app: prices, as: tariffs"))
	h.apply(t, h.west, export("shop", "payments", "anna-laptop"), export("shop", "prices", "anna-laptop")) // TEMPORARY
	for _, id := range []string{"orders", "payments", "prices", "ledger"} {
		h.sidecar(t, h.west, sandbox.SidecarOptions{App: catalog.App{Namespace: "shop", ID: id}, Guard: true})
	}
	g := h.join(t, h.invite(t))
	answers(t, &sandbox.Sidecar{Daprd: g.Daprd}, "payments", "west")
	answers(t, &sandbox.Sidecar{Daprd: g.Daprd}, "tariffs", "west")
	for _, id := range []string{"ledger", "prices", "checkout"} {
		if reply, err := g.Invoke(meshtest.Within(t, meshtest.Attempt), id, "hello", nil); err == nil {
			t.Errorf("the laptop's app called %s: %+v", id, reply)
		}
	}
	if err := g.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	<-g.Process.Done()
	h.gone(t, g)
	events, _, err := h.isthmus(t, h.west, "", "events")
	for _, want := range []string{"guest joined", "anna-laptop", "shop/orders", "isthmus-cli", "guest ended"} {
		if err != nil || !strings.Contains(events, want) {
			t.Errorf("the events lack %q: %v\n%s", want, err, events)
		}
	}
}

var _ = syscall.SIGKILL
var _ = time.Second
