package stream_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

func TestAnOperatorIsToldOfTheSidecars(t *testing.T) {
	s := start(t, stream.Config{}, "127.0.0.1:0", selection(checkout, orders))
	has := func(when string, want ...string) {
		t.Helper()
		notes := s.explain(checkout, orders).GetNotes()
		if len(notes) != len(want) || !slices.EqualFunc(notes, want, strings.HasPrefix) {
			t.Errorf("%s:\n%s\nwant\n%s", when, strings.Join(notes, "\n"), strings.Join(want, "\n"))
		}
	}
	const nobody = "no sidecar of shop/checkout is connected here: this is what one would get"
	elsewhere := catalog.App{Namespace: "default", ID: orders.ID}
	has("nobody is there", nobody, "no sidecar of shop/orders is connected here, and no other source has an instance of it")
	d := s.dial().send(helloOf(elsewhere, "10.0.0.9:50002"))
	d.until(func(m *pb.WatchResponse) bool { return m.Revision > 0 })
	has("it runs in another namespace", nobody, "no sidecar of shop/orders", "default/orders runs here: call it as orders.default if that is meant")

	c := helloOf(checkout, "10.0.0.2:50002")
	c.GetHello().PlainText = true
	s.dial().send(c).until(func(m *pb.WatchResponse) bool { return m.Revision > 0 })
	w := s.dial().send(helloOf(orders, ""))
	w.until(func(m *pb.WatchResponse) bool { return m.Revision > 0 })
	const plain = "1 sidecar of shop/checkout is without mTLS: calls from there can't pass a gateway"
	has("its app does not listen yet", plain, "1 sidecar of shop/orders is waiting for the app: daprd is not ready", "default/orders runs here")
	w.close()
	o := s.dial().send(helloOf(orders, "10.0.0.1:50002"))
	o.until(func(m *pb.WatchResponse) bool { return m.Revision > 0 })
	serverstest.Await(t, "all is well but for mTLS", func() bool { return len(s.explain(checkout, orders).GetNotes()) == 1 })
	has("it runs", plain)
	o.send(drainRequest()).until(func(m *pb.WatchResponse) bool { return m.Drained })
	has("it drains", plain, "1 sidecar of shop/orders is draining: it stops, or the health check of its app fails")
}

// What a caller's sidecars find of a route with minReady is in no view: the calls show it.
func TestAnOperatorIsToldOfCallsThatGoElsewhere(t *testing.T) {
	went := map[string]uint64{"west": 10, "east": 90}
	object := selection(checkout, orders)
	object.Endpoints[0].Routes = []catalog.RouteSpec{{Cluster: "local", Weight: 1, MinReady: 1}, {Cluster: "east", Weight: 1, Priority: 1}}
	s := start(t, stream.Config{Went: func(_, _ catalog.App, _ time.Time) map[string]uint64 { return went }}, "127.0.0.1:0", object)
	s.dial().send(helloOf(orders, "10.0.0.1:50002")).until(func(m *pb.WatchResponse) bool { return m.Revision > 0 })
	const note = "lately 90 % of the calls went to east: unless routes have just changed, the caller's sidecars find that others refuse calls"
	notes := func() string { return strings.Join(s.explain(checkout, orders).GetNotes(), "\n") }
	serverstest.Await(t, "the instance is ready", func() bool { return s.explain(checkout, orders).GetOutcome() == "ok" })
	if !strings.Contains(notes(), note) {
		t.Errorf("no %q in\n%s", note, notes())
	}
	went = map[string]uint64{"west": 97, "east": 3}
	if strings.Contains(notes(), "lately") {
		t.Errorf("three calls of a hundred are no news:\n%s", notes())
	}
}

// Callers here reach a cluster that only dials out by this cluster's own gateway.
func TestAnOperatorIsToldOfAGatewayWithoutAnAddress(t *testing.T) {
	s := start(t, stream.Config{}, "127.0.0.1:0", selection(checkout, orders), &catalog.Cluster{Name: "north", Tunnel: catalog.TunnelAccept})
	s.apply(topology.Change{Peers: []topology.PeerChange{{
		Cluster: "north", Full: true, Lease: topology.Fresh, Put: []topology.PeerExport{{App: orders, Ready: 1, Allow: []catalog.Allow{{Cluster: "west"}}}},
	}}})
	d := s.explain(checkout, orders)
	if i := slices.IndexFunc(d.GetRoutes(), func(r *pb.RouteDecision) bool { return r.GetCluster() == "north" }); i < 0 || !strings.Contains(d.GetRoutes()[i].GetFault(), "write gateway.internal into isthmus.yaml") {
		t.Errorf("%+v", d)
	}
}

// What is said of an app that is called by another name is said of the app.
func TestAnOperatorIsToldOfTheAppThatANameMeans(t *testing.T) {
	object := selection(checkout, orders)
	object.Endpoints[0].As = "pay"
	s := start(t, stream.Config{}, "127.0.0.1:0", object)
	for _, hello := range []*pb.WatchRequest{helloOf(orders, "10.0.0.1:50002"), helloOf(checkout, "10.0.0.2:50002")} {
		s.dial().send(hello).until(func(m *pb.WatchResponse) bool { return m.Revision > 0 })
	}
	pay := catalog.App{Namespace: checkout.Namespace, ID: "pay"}
	serverstest.Await(t, "the instance is ready", func() bool { return s.explain(checkout, pay).GetOutcome() == "ok" })
	if notes := s.explain(checkout, pay).GetNotes(); len(notes) != 1 || !strings.HasPrefix(notes[0], "shop/pay is the caller's name for shop/orders") {
		t.Errorf("%q", notes)
	}
}

func TestAnOperatorAsksForACallerOfAnotherCluster(t *testing.T) {
	s := start(t, stream.Config{}, "127.0.0.1:0", &catalog.Cluster{Name: "east"},
		&catalog.AppExport{App: orders, Allow: []catalog.Allow{{Cluster: "east", Namespace: "shop"}, {Cluster: "north"}}, Source: catalog.Source{File: "x.yaml", Line: 7}})
	from := func(cluster string, caller, app catalog.App) *pb.Decision {
		t.Helper()
		return s.ask(&pb.ResolveRequest{Cluster: cluster, Caller: &pb.App{Namespace: caller.Namespace, Id: caller.ID}, App: &pb.App{Namespace: app.Namespace, Id: app.ID}})
	}
	billing := catalog.App{Namespace: "finance", ID: "billing"}
	check := func(d *pb.Decision, outcome, reason, note string) {
		t.Helper()
		if d.Outcome != outcome || !strings.Contains(d.Reason, reason) || (note == "") != (len(d.Notes) == 0) || !strings.Contains(strings.Join(d.Notes, "\n"), note) {
			t.Errorf("%s, %q, %q; want %s, %q, %q", d.Outcome, d.Reason, d.Notes, outcome, reason, note)
		}
	}
	const gone = "no sidecar of shop/orders is connected here"
	check(from("east", checkout, orders), "unavailable", "exported to the caller, but no instance of shop/orders here may be called through the gateway", gone)
	s.apply(topology.Change{Instances: []topology.InstanceChange{{Source: "test", Put: []catalog.Instance{{ID: "1", App: orders, Address: netip.MustParseAddrPort("10.0.0.1:50002")}}}}})
	d := from("east", checkout, orders)
	check(d, "ok", "exported to the caller; the gateway leads orders.shop.west.isthmus.internal to 1 ready", "")
	if d.Rule != "AppExport shop/orders (x.yaml:7)" || d.Address != "10.0.0.1:50002" || len(d.Routes) != 1 || !d.Routes[0].Taken {
		t.Errorf("%+v", d)
	}
	check(from("east", billing, orders), "denied", "the AppExport does not allow finance/billing of east; add {cluster: east, namespace: finance, app: billing} to its spec.allow", "")
	check(from("north", billing, orders), "ok", "exported to the caller", "no Cluster object north here")
	check(from("east", checkout, ledger), "denied", "no AppExport finance/ledger: this cluster exports the app to nobody", "")
	check(from("west", checkout, orders), "denied", "west is this cluster; ask without it", "")
}
