package system

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

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
	if !slices.Contains(args, "--gateway") {
		args = append(args, "--gateway", h.west.Gateway)
	}
	out, errs, err := h.isthmus(t, h.west, "", append([]string{"dev", "invite", "anna-laptop", "--app", "shop/orders"}, args...)...)
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

// The calls that a guest takes reach it, and nobody else's. When it is killed, they go on where they would.
func TestALaptopTakesCalls(t *testing.T) {
	t.Parallel()
	h := hosting(t, map[string]any{"guard": "enforce"})
	callers := map[string]*sandbox.Sidecar{}
	for _, id := range []string{"orders", "checkout", "checkout-dev", "payments"} {
		if id != "orders" {
			h.apply(t, h.west, selection("shop", id, "app: orders"))
		}
		callers[id] = h.sidecar(t, h.west, sandbox.SidecarOptions{App: catalog.App{Namespace: "shop", ID: id}, Guard: true})
	}
	g := h.join(t, h.invite(t, "--for", "caller=shop/checkout-dev", "--for", "header=x-dev:*"), "--for", "caller=shop/checkout-dev", "--for", "header=x-dev:anna")
	anna, bob := http.Header{"X-Dev": {"anna"}}, http.Header{"X-Dev": {"bob"}}
	leads := func(id string, header http.Header, want string) {
		t.Helper()
		meshtest.Eventually(t, meshtest.Patience, func() error {
			for range 100 { // in a row: not now and then
				reply, err := callers[id].Invoke(meshtest.Within(t, meshtest.Attempt), "orders", "hello", header)
				if err == nil && reply.Cluster == "west" && want != "west" { // a guest that does not answer for a moment has no calls then
					return fmt.Errorf("%s with %v is led to %s", id, header, reply.Cluster)
				}
				if err != nil || reply.Cluster != want {
					t.Fatalf("the call of %s with %v: %+v, %v; want %s", id, header, reply, err, want)
				}
			}
			return nil
		})
	}
	answers(t, callers["checkout-dev"], "orders", "anna-laptop")
	for _, id := range []string{"payments", "checkout"} {
		meshtest.Eventually(t, meshtest.Patience, func() error {
			reply, err := callers[id].Invoke(meshtest.Within(t, meshtest.Attempt), "orders", "hello", anna)
			if err == nil && reply.Cluster != "anna-laptop" {
				err = fmt.Errorf("the header leads %s to %s", id, reply.Cluster)
			}
			return err
		})
	}
	for _, c := range []struct {
		id     string
		header http.Header
		want   string
	}{
		{"checkout-dev", nil, "anna-laptop"}, {"checkout-dev", bob, "anna-laptop"},
		{"checkout", nil, "west"}, {"checkout", bob, "west"}, {"checkout", anna, "anna-laptop"},
	} {
		leads(c.id, c.header, c.want)
	}
	explained, _, err := h.isthmus(t, h.west, "", "explain", "--from", "shop/checkout-dev", "orders")
	if err != nil || !strings.Contains(explained, "anna-laptop") {
		t.Errorf("isthmus explain: %v\n%s", err, explained)
	}

	l := startLoad(t, "a guest that takes calls is killed", calling(callers["checkout-dev"], "orders"))
	l.answersFrom("anna-laptop")
	if err := g.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	l.answersFrom("west")
	l.noneFailed()
	leads("checkout-dev", nil, "west")
}

// A guest whose service is not honest exports another app, and its own to everybody. No call is led there.
func TestAGuestExportsNothingElse(t *testing.T) {
	t.Parallel()
	h := hosting(t, nil)
	payments, checkout := h.app(t, h.west, "shop", "payments"), h.app(t, h.west, "shop", "checkout")
	h.app(t, h.west, "shop", "orders")
	h.apply(t, h.west, selection("shop", "checkout", "app: payments", "app: orders", "app: ledger"))
	g := h.join(t, h.invite(t, "--for", "caller=shop/checkout-dev"))
	sockets, err := filepath.Glob(h.tmp(t) + "/isthmus-guest-*/operator.sock")
	if err != nil || len(sockets) != 1 {
		t.Fatal(sockets, err)
	}
	lies := func(objects ...string) {
		t.Helper()
		if _, errs, err := h.isthmus(t, h.west, strings.Join(objects, "---\n"), "apply", "-f", "-", "--socket", sockets[0]); err != nil {
			t.Fatalf("%v: %s", err, errs)
		}
	}
	instance := func(id string) string {
		return fmt.Sprintf("apiVersion: isthmus.dev/v1alpha1\nkind: AppInstance\nmetadata: {namespace: shop, name: %s}\nspec: {app: %[1]s, address: %q}\n", id, payments.Internal)
	}
	lies(export("shop", "payments", "west"), instance("payments"))
	lies(export("shop", "ledger", "west"), instance("ledger"))
	lies(export("shop", "orders", "west"))
	meshtest.Eventually(t, meshtest.Patience, func() error { // that its word has arrived
		out, _, err := h.isthmus(t, h.west, "", "status", "--peer", "anna-laptop")
		if err == nil && !strings.Contains(out, "connected") {
			err = errors.New(out)
		}
		return err
	})
	for range 30 {
		for _, id := range []string{"payments", "orders"} {
			reply, err := checkout.Invoke(meshtest.Within(t, meshtest.Attempt), id, "hello", nil)
			if err != nil || reply.Cluster != "west" {
				t.Fatalf("a call of %s: %+v, %v", id, reply, err)
			}
		}
		if reply, err := checkout.Invoke(meshtest.Within(t, meshtest.Attempt), "ledger", "hello", nil); err == nil {
			t.Fatalf("a call of an app that only the guest has: %+v", reply)
		}
	}
	if g.Behind.Calls() != 0 {
		t.Errorf("the guest had %d calls", g.Behind.Calls())
	}
}

// Killed, the command leaves nothing on the laptop at once, calls go elsewhere, and the object goes when the
// hours are over. Otherwise an operator, or the hours, end it.
func TestALaptopEnds(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(*testing.T, *host){
		"killed": func(t *testing.T, h *host) {
			g := h.join(t, h.invite(t, "--hours", "0.01"))
			answers(t, &sandbox.Sidecar{Daprd: g.Daprd}, "payments", "west")
			if err := g.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			h.gone(t, g) // by its hours, which are half a minute
		},
		"its time is over": func(t *testing.T, h *host) {
			g := h.join(t, h.invite(t, "--hours", "0.01"))
			<-g.Process.Done()
			if out := g.Tail(100); !strings.Contains(out, "the time of this guest is over") {
				t.Errorf("the laptop says:\n%s", out)
			}
			h.gone(t, g)
		},
		"deleted": func(t *testing.T, h *host) {
			g := h.join(t, h.invite(t))
			if _, errs, err := h.isthmus(t, h.west, "", "delete", "cluster", "anna-laptop"); err != nil {
				t.Fatalf("%v: %s", err, errs)
			}
			<-g.Process.Done()
			if out := g.Tail(100); !strings.Contains(out, "has this guest no longer") {
				t.Errorf("the laptop says:\n%s", out)
			}
			h.gone(t, g)
		},
		"killed and invited again": func(t *testing.T, h *host) { // which is no obstacle for the next of its name
			lost := h.join(t, h.invite(t))
			if err := lost.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			again := h.join(t, h.invite(t))
			answers(t, &sandbox.Sidecar{Daprd: again.Daprd}, "payments", "west")
			if err := again.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			<-again.Process.Done()
			h.gone(t, again)
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			h := hosting(t, nil)
			h.app(t, h.west, "shop", "payments")
			h.apply(t, h.west, selection("shop", "orders", "app: payments"))
			end(t, h)
		})
	}
}

// Each error says what was tried and what to do, and none but the last uses the invitation.
func TestALaptopThatCannotJoin(t *testing.T) {
	t.Parallel()
	h := hosting(t, nil)
	way := newRelay(t, h.west.Gateway)
	invitation := h.invite(t, "--gateway", way.address, "--for", "header=x-dev:*")
	unreachable := h.invite(t, "--gateway", "127.0.0.1:1")
	free := newClosedRelay(t, h.west.Gateway)
	fails := func(what, want string, args ...string) {
		t.Helper()
		out, errs, err := h.isthmus(t, h.west, "", append([]string{"dev", "join"}, args...)...)
		if err == nil || !strings.Contains(errs, want) {
			t.Errorf("%s: %v, without %q:\n%s%s", what, err, want, out, errs)
		}
		_, said, _ := strings.Cut(errs, "isthmus: ")
		t.Logf("%s: %s", what, strings.TrimSpace(said))
	}
	_, port, err := net.SplitHostPort(way.address) // something listens there
	if err != nil {
		t.Fatal(err)
	}
	_, nobody, err := net.SplitHostPort(free.address)
	if err != nil {
		t.Fatal(err)
	}
	fails("no invitation", "(malformed)", "isthmus-link-1.nonsense", "--port", port)
	fails("an altered one", "checksum", invitation[:40]+strings.ToUpper(invitation[40:60])+invitation[60:], "--port", port)
	fails("another app", "is not one of the apps that the invitation is for", invitation, "--port", port, "--app", "payments")
	fails("no app", "start it there, then join again; the invitation is not used yet", invitation, "--port", nobody)
	fails("no daprd", "--daprd /nowhere/daprd", invitation, "--port", port, "--daprd", "/nowhere/daprd")
	daprd, err := sandbox.Binary("daprd")
	if err != nil {
		t.Fatal(err)
	}
	fails("a gateway that can't be reached", "(unreachable)", unreachable, "--port", port, "--daprd", daprd)
	fails("a value that it may not choose", "(not-offered)", invitation, "--port", port, "--daprd", daprd, "--for", "caller=shop/checkout")
	if err := h.west.Sentry.Kill(); err != nil {
		t.Fatal(err)
	}
	fails("no Sentry", "(unsigned)", invitation, "--port", port, "--daprd", daprd)
	if err := h.west.Sentry.Restart(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
	g := h.join(t, invitation)
	fails("a second use", "(used)", invitation, "--port", port, "--daprd", daprd)
	if err := g.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	<-g.Process.Done()
	h.gone(t, g)
}
