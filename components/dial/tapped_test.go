package dial

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
)

// looks has somebody look at single calls, and returns the text of the newest one.
func (w *testDialer) looks(t *testing.T) func() string {
	t.Cleanup(w.Tap.Set(traffic.MaxTapped, func(*traffic.Call) bool { return true }))
	return func() string {
		t.Helper()
		calls, _ := w.Tap.Take()
		if len(calls) == 0 {
			t.Fatal("no call is told of")
		}
		c := calls[len(calls)-1]
		text := fmt.Sprintf("%d in %q", c.Attempts, c.Cluster)
		for _, e := range c.Earlier {
			text += fmt.Sprintf(", after %s %s: %s", e.Cluster, e.Address, e.Failed)
		}
		for _, p := range c.Passed {
			text += fmt.Sprintf(", not %s: %s", p.Cluster, p.Why)
		}
		return text
	}
}

// TestATappedCallSaysWhyItWentThere has a call go by its first choice, and calls for which that fails in
// one way each.
func TestATappedCallSaysWhyItWentThere(t *testing.T) {
	good, bad := newTimedServer(0), newTimedServer(0)
	bad.fails.Store(true)
	gw := startGateway(t, good.register)
	east := map[string][]string{"east": {gw.Address}}
	dead := deadAddress(t)
	empty := catalog.Route{RouteSpec: catalog.RouteSpec{Cluster: "west", Weight: 1}, State: catalog.Empty, Local: true}
	failing, local := startGateway(t, bad.register).Address, startGateway(t, good.register).Address
	for _, c := range []struct {
		what     string
		gateways map[string][]string
		routes   []catalog.Route
		want     string
	}{
		{"all is well", east, []catalog.Route{localRoute(local), gatewayRoute("east", 1)}, `1 in "west"`},
		{"nothing is ready", east, []catalog.Route{empty, gatewayRoute("east", 1)}, `1 in "east", not west: no ready instance of default/orders`},
		{"nothing is connected", east, []catalog.Route{localRoute(dead), gatewayRoute("east", 1)}, `1 in "east", not west: …`},
		{"an instance is not connected", nil, []catalog.Route{localRoute(local, dead)}, `1 in "west", not west: 1 of 2 instances left out: …`},
		{"the second is no choice yet", east, []catalog.Route{localRoute(local), gatewayRoute("north", 1)}, `1 in "west"`},
		{"an attempt fails", nil, []catalog.Route{localRoute(local, failing)}, `2 in "west", after west ` + failing + `: Unavailable`},
		{"no way is left", nil, []catalog.Route{localRoute(dead)}, `0 in "", not : default/orders is in the view, but none…`},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := newTestDialer(t)
			w.retry = true
			newest := w.looks(t)
			w.setRoutes(c.gateways, c.routes...)
			conn := w.dial(t)
			start, more := strings.CutSuffix(c.want, "…")
			got := ""
			// An endpoint is first in turn every second time, and known not to be connected once it was tried.
			for end := time.Now().Add(20 * time.Second); got != c.want && !(more && strings.HasPrefix(got, start)); {
				if time.Now().After(end) {
					t.Fatalf("%q, want %q", got, c.want)
				}
				_ = invoke(t.Context(), conn, 10*time.Second)
				got = newest()
			}
			if strings.Contains(got, "not now") {
				t.Errorf("%q has the message of an app", got)
			}
		})
	}
}
