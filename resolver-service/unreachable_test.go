package resolverservice

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/nameresolution"
)

// Three sidecars in west don't reach east, whose resolver service is heard all the while: it
// counts as stale for a fourth, which shows in its status and in what is explained, until one
// of the three reaches it.
func TestWhatCallersAgreeOnCountsForOthers(t *testing.T) {
	ca := identitytest.NewCA(t)
	east, west := start(t, configOf(t, "east", ca), ca), start(t, configOf(t, "west", ca), ca)
	east.apply(export("west") + "---\n" + clusterAt("west", west.Addr("gateway"), "1m"))
	east.sidecar(orders, "127.0.0.1:50002")
	west.apply(clusterAt("east", east.Addr("gateway"), "1m") + "---\n" + selectsOrders)
	west.within("heard", func() bool { return strings.HasPrefix(west.resolve(checkout, orders), "ok ") })
	var all []*nameresolution.Resolver
	for i := range 3 {
		app := catalog.App{Namespace: "shop", ID: fmt.Sprint("caller-", i)}
		west.apply("---\n" + strings.ReplaceAll(selectsOrders, "checkout", app.ID))
		files := ca.Config(app).Files
		r := nameresolution.New(nameresolution.Options{Logger: west.log})
		err := r.Init(t.Context(), map[string]any{
			"resolver": west.Addr("resolver").String(), "cluster": "west",
			"identity": map[string]any{"files": map[string]any{"cert": files.Cert, "key": files.Key, "ca": files.CA}},
		}, nameresolution.Instance{App: app, Address: "127.0.0.1", Port: 50100 + i})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		all = append(all, r)
	}
	report := func(r *nameresolution.Resolver) {
		r.ReportUnreached([]nameresolution.Unreached{{Cluster: "east", Gateway: east.Addr("gateway").String(), Why: net.ErrClosed.Error()}})
	}
	status := func() *v1alpha1.PeerStatus { return west.status().Peers[0] }
	report(all[0])
	report(all[1])
	west.within("two say so, which is too few", func() bool { p := status(); return p.UnreachedBy == 2 && p.Callers == 3 && p.State == "connected" })
	report(all[2])
	west.within("stale", func() bool { return west.resolve(checkout, orders) == "stale" })
	const why = "3 of 3 callers don't reach it; shop/caller-"
	if got := west.links.Describe("east"); !strings.Contains(got, why) {
		t.Errorf("explained as %q, want %q", got, why)
	}
	if _, text := west.get("/metrics"); !strings.Contains(text, `isthmus_peer_unreached_callers{peer="east"} 3`) {
		t.Error("metrics don't say that three callers don't reach east")
	}
	if p := status(); p.State != "stale" || p.UnreachedBy != 3 || !strings.HasSuffix(p.UnreachedWhy, net.ErrClosed.Error()) {
		t.Errorf("status %v", p)
	}
	all[1].ReportUnreached(nil)
	west.within("relied on again", func() bool { return strings.HasPrefix(west.resolve(checkout, orders), "ok ") })
}
