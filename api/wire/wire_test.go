package wire

import (
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

var orders = catalog.App{Namespace: "shop", ID: "orders"}

func example() *catalog.Entry {
	return catalog.NewEntry(orders, catalog.TextRule("AppEndpoints shop/checkout, spec.endpoints[0] (line 7)"), []catalog.Route{
		{RouteSpec: catalog.RouteSpec{Cluster: "west", Weight: 1}, Local: true, Ready: 2, Addresses: []string{"10.0.0.1:50002", "10.0.0.2:50002"}},
		{RouteSpec: catalog.RouteSpec{Cluster: "east", Priority: 1, Weight: 90}, Gateway: true, Ready: 3, Addresses: []string{"orders.shop.east.isthmus.internal:15443"}},
		{RouteSpec: catalog.RouteSpec{Cluster: "north", Priority: 1, Weight: 10}, State: catalog.LeaseExpired},
	})
}

// held is an entry with a route that is damped, which is held back unless it is the only one.
func held(others ...catalog.Route) *catalog.Entry {
	return catalog.NewEntry(orders, catalog.TextRule("a rule"), append(others,
		catalog.Route{RouteSpec: catalog.RouteSpec{Cluster: "east", Priority: 1, Weight: 1}, State: catalog.Damped, Gateway: true, Ready: 1, Addresses: []string{"orders.shop.east.isthmus.internal:15443"}}))
}

var here = catalog.Route{RouteSpec: catalog.RouteSpec{Cluster: "west", Weight: 1}, Local: true, Ready: 1, Addresses: []string{"10.0.0.1:50002"}}

// A sidecar that does not know of damping calls where one that does would.
func TestDampedIsSentSoThatOlderSidecarsDoWhatIsRight(t *testing.T) {
	for _, test := range []struct {
		entry *catalog.Entry
		state pb.ViewRoute_State
	}{{held(), pb.ViewRoute_STATE_READY}, {held(here), pb.ViewRoute_STATE_LEASE_EXPIRED}} {
		m := Entry(test.entry)
		last := m.Routes[len(m.Routes)-1]
		if last.State != test.state || !last.Damped {
			t.Errorf("sent as %v", last)
		}
		if back, err := ParseEntry(m); err != nil || !back.Same(test.entry) || Digest(back) != m.Digest {
			t.Errorf("came back as %+v, %v; was %+v", back, err, test.entry)
		}
	}
}

// ramping has shards, draining instances and ramps.
func ramping() *catalog.Entry {
	return catalog.NewEntry(orders, catalog.TextRule("a rule"), []catalog.Route{
		{RouteSpec: catalog.RouteSpec{Cluster: "west", Weight: 1}, Local: true, Ready: 1, Draining: 2, Ramp: 25, Addresses: []string{"10.0.0.1:50002"}},
		{RouteSpec: catalog.RouteSpec{Cluster: "east", Priority: 1, Weight: 90}, Gateway: true, Ready: 12, Draining: 1, Ramp: 50,
			Addresses: catalog.Domain("isthmus.internal").GatewayAddresses(orders, "east", "15443", 12)},
	})
}

// inZones has zones: of addresses, and of instances behind a gateway.
func inZones() *catalog.Entry {
	e := ramping()
	e.Routes[0].Zones = catalog.NewLabels([]string{"a"})
	e.Routes[1].Instances = []uint32{7, 1 << 31, 9}
	e.Routes[1].Zones = catalog.NewLabels([]string{"b", "", "a"})
	return e
}

func TestZonesComeBackAsTheyWere(t *testing.T) {
	b, err := proto.Marshal(Entry(inZones()))
	if err != nil {
		t.Fatal(err)
	}
	var m pb.ViewEntry
	if err := proto.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	back, err := ParseEntry(&m)
	if err != nil || !back.Same(inZones()) || m.Digest != Digest(back) {
		t.Fatalf("came back as %+v, %v", back, err)
	}
	if z := back.Routes[1].Zones; z.At(0) != "b" || z.At(1) != "" || z.At(2) != "a" {
		t.Errorf("instances are in %v", z)
	}
}

func TestShardsAreSentAsANumber(t *testing.T) {
	m := Entry(ramping())
	if r := m.Routes[1]; r.Shards != 12 || len(r.Addresses) != 1 || r.Addresses[0] != "orders.shop.east.isthmus.internal:15443" {
		t.Errorf("sent as %v", r)
	}
	back, err := ParseEntry(m)
	if err != nil || !back.Same(ramping()) {
		t.Fatalf("came back as %+v, %v", back, err)
	}
	if got := back.Routes[1].Addresses; len(got) != 12 || got[11] != "11.orders.shop.east.isthmus.internal:15443" {
		t.Errorf("addresses %q", got)
	}
	if m.Digest != Digest(back) {
		t.Errorf("digest %x of what was sent, %x of what came", m.Digest, Digest(back))
	}
}

func TestShardsThatAreNotTheAppsOwnAreRefused(t *testing.T) {
	edits := map[string]func(*pb.ViewRoute){
		"too many":          func(r *pb.ViewRoute) { r.Shards = catalog.MaxShards + 1 },
		"without a gateway": func(r *pb.ViewRoute) { r.Gateway = false },
		"of two addresses":  func(r *pb.ViewRoute) { r.Addresses = append(r.Addresses, r.Addresses[0]) },
		"of no address":     func(r *pb.ViewRoute) { r.Addresses, r.State = nil, pb.ViewRoute_STATE_EMPTY },
		"without a port":    func(r *pb.ViewRoute) { r.Addresses[0] = "orders.shop.east.isthmus.internal" },
		"of port 0":         func(r *pb.ViewRoute) { r.Addresses[0] = "orders.shop.east.isthmus.internal:0" },
		"of another app":    func(r *pb.ViewRoute) { r.Addresses[0] = "ledger.shop.east.isthmus.internal:15443" },
		"of another cluster": func(r *pb.ViewRoute) {
			r.Addresses[0] = "orders.shop.north.isthmus.internal:15443"
		},
		"of a shard":         func(r *pb.ViewRoute) { r.Addresses[0] = "0.orders.shop.east.isthmus.internal:15443" },
		"of no domain":       func(r *pb.ViewRoute) { r.Addresses[0] = "orders.shop.east.:15443" },
		"of a bad domain":    func(r *pb.ViewRoute) { r.Addresses[0] = "orders.shop.east.a_b:15443" },
		"of an address":      func(r *pb.ViewRoute) { r.Addresses[0] = "10.0.0.1:15443" },
		"of a local cluster": func(r *pb.ViewRoute) { r.Cluster = "local" },
	}
	for what, edit := range edits {
		m := Entry(ramping())
		edit(m.Routes[1])
		if _, err := ParseEntry(m); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
}

func TestAnEntryComesBackAsItWas(t *testing.T) {
	for _, pair := range states {
		e := example()
		routes := e.Routes
		routes[0].State = pair.value
		e = catalog.NewEntry(e.App, e.Rule, routes)
		bytes, err := proto.Marshal(Entry(e))
		if err != nil {
			t.Fatal(err)
		}
		var m pb.ViewEntry
		if err := proto.Unmarshal(bytes, &m); err != nil {
			t.Fatal(err)
		}
		back, err := ParseEntry(&m)
		if err != nil {
			t.Fatal(err)
		}
		if !back.Same(e) {
			t.Errorf("came back as %+v, was %+v", back, e)
		}
		if m.Digest != Digest(back) {
			t.Errorf("digest %x of what was sent, %x of what came", m.Digest, Digest(back))
		}
	}
}

// The digest is kept by sidecars across versions of the service: this number must
// never change, or every sidecar is sent its whole view after an upgrade.
func TestTheDigestIsTheSameInEveryProcess(t *testing.T) {
	if got, want := Digest(example()), uint64(0x77d0f71939af59c5); got != want {
		t.Errorf("digest %#x, want %#x", got, want)
	}
}

func shardsOf(n int) []string {
	return catalog.Domain("isthmus.internal").GatewayAddresses(orders, "east", "15443", n)
}

func TestTheDigestSeesEveryField(t *testing.T) {
	edits := map[string]func(*catalog.Entry){
		"namespace":    func(e *catalog.Entry) { e.App.Namespace = "finance" },
		"app-id":       func(e *catalog.Entry) { e.App.ID = "ledger" },
		"rule":         func(e *catalog.Entry) { e.Rule = catalog.TextRule("another") },
		"cluster":      func(e *catalog.Entry) { e.Routes[1].Cluster = "south" },
		"priority":     func(e *catalog.Entry) { e.Routes[1].Priority = 2 },
		"weight":       func(e *catalog.Entry) { e.Routes[1].Weight = 2 },
		"state":        func(e *catalog.Entry) { e.Routes[1].State = catalog.Lapsed },
		"local":        func(e *catalog.Entry) { e.Routes[1].Local = true },
		"gateway":      func(e *catalog.Entry) { e.Routes[1].Gateway = false },
		"ready":        func(e *catalog.Entry) { e.Routes[1].Ready = 4 },
		"address":      func(e *catalog.Entry) { e.Routes[1].Addresses = []string{"x:1"} },
		"one more":     func(e *catalog.Entry) { e.Routes[0].Addresses = append(e.Routes[0].Addresses, "10.0.0.3:50002") },
		"a route less": func(e *catalog.Entry) { e.Routes = e.Routes[:2] },
		"draining":     func(e *catalog.Entry) { e.Routes[1].Draining = 1 },
		"damped":       func(e *catalog.Entry) { e.Routes[2].State = catalog.Damped },
		"last resort":  func(e *catalog.Entry) { e.Routes[1].State = catalog.LastResort },
		"versions":     func(e *catalog.Entry) { e.Routes[1].Versions = "2.*" },
		"ramp":         func(e *catalog.Entry) { e.Routes[1].Ramp = 1 },
		"shards":       func(e *catalog.Entry) { e.Routes[1].Addresses = shardsOf(2) },
		"more shards":  func(e *catalog.Entry) { e.Routes[1].Addresses = shardsOf(3) },
		"zones":        func(e *catalog.Entry) { e.Routes[0].Zones = catalog.NewLabels([]string{"a", "b"}) },
		"other zones":  func(e *catalog.Entry) { e.Routes[0].Zones = catalog.NewLabels([]string{"b", "a"}) },
		"one zone":     func(e *catalog.Entry) { e.Routes[0].Zones = catalog.NewLabels([]string{"a", "a"}) },
		"a zone less":  func(e *catalog.Entry) { e.Routes[0].Zones = catalog.NewLabels([]string{"a", ""}) },
	}
	seen := map[uint64]string{Digest(example()): "nothing"}
	for what, edit := range edits {
		e := example()
		edit(e)
		d := Digest(e)
		if other, ok := seen[d]; ok {
			t.Errorf("the digest does not tell %q from %q", what, other)
		}
		seen[d] = what
	}
}

func TestAMessageThatTheRulesCantHandleIsRefused(t *testing.T) {
	edits := map[string]func(*pb.ViewEntry){
		"no app":                func(m *pb.ViewEntry) { m.App = nil },
		"a bad app-id":          func(m *pb.ViewEntry) { m.App.Id = "a.b" },
		"no state":              func(m *pb.ViewEntry) { m.Routes[0].State = 0 },
		"a state of tomorrow":   func(m *pb.ViewEntry) { m.Routes[0].State = 99 },
		"weights that overflow": func(m *pb.ViewEntry) { m.Routes[0].Weight = 1 << 31 },
		"a priority beyond any": func(m *pb.ViewEntry) { m.Routes[0].Priority = 1 << 31 },
		"ready but nowhere":     func(m *pb.ViewEntry) { m.Routes[0].Addresses = nil },
		"two gateway names":     func(m *pb.ViewEntry) { m.Routes[1].Addresses = []string{"a:1", "b:1"} },
		"a ramp beyond all":     func(m *pb.ViewEntry) { m.Routes[1].Ramp = 101 },
		"zones of fewer":        func(m *pb.ViewEntry) { m.Routes[0].Zones, m.Routes[0].ZoneOf = []string{"a"}, []byte{1} },
		"zones of no instances": func(m *pb.ViewEntry) { m.Routes[1].Zones, m.Routes[1].ZoneOf = []string{"a"}, []byte{1} },
		"an empty address":      func(m *pb.ViewEntry) { m.Routes[0].Addresses[1] = "" },
		"more routes than fit": func(m *pb.ViewEntry) {
			for len(m.Routes) <= maxRoutes {
				m.Routes = append(m.Routes, m.Routes[2])
			}
		},
	}
	for what, edit := range edits {
		m := Entry(example())
		edit(m)
		if _, err := ParseEntry(m); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
}

func TestGatewaysComeBackAsTheyWere(t *testing.T) {
	g := &catalog.Gateways{Domain: "isthmus.internal", Addresses: map[string][]string{"east": {"203.0.113.7:15443", "gw.east.example:15443"}, "north": {}}}
	back, err := ParseGateways(Gateways(g))
	if err != nil || !back.Equal(g) {
		t.Errorf("came back as %v, %v", back, err)
	}
	for _, bad := range []*pb.Gateways{
		{Domain: "-"},
		{Clusters: []*pb.ClusterGateways{{Cluster: "local"}}},
		{Clusters: []*pb.ClusterGateways{{Cluster: "east", Addresses: []string{"a:b:c"}}}},
	} {
		if _, err := ParseGateways(bad); err == nil {
			t.Errorf("%v: taken", bad)
		}
	}
}

func TestADecisionSaysAllOfItsRoutes(t *testing.T) {
	d := ramping().Explain()
	d.Revision = 41
	d.Routes[1].Peer, d.Routes[1].Unnamed = "connected since 10:14", "by 203.0.113.8:50002"
	m := Decision(&d)
	if m.GetOutcome() != d.Outcome.String() || m.GetAddress() != d.Address || m.GetRevision() != 41 || m.GetReason() != d.Reason || len(m.GetRoutes()) != len(d.Routes) {
		t.Errorf("%v of %+v", m, d)
	}
	for i, r := range d.Routes {
		got := m.GetRoutes()[i]
		want := &pb.RouteDecision{
			Cluster: r.Cluster, Priority: r.Priority, Weight: r.Weight, Ready: uint32(r.Ready), Taken: r.Taken || r.Share > 0, Reason: r.Reason,
			Shards: uint32(r.Shards), Draining: uint32(r.Draining), Ramp: uint32(r.Ramp), Peer: r.Peer, Unnamed: r.Unnamed, Zones: r.Zones, Share: r.Share, Fault: r.Fault,
		}
		if !proto.Equal(got, want) {
			t.Errorf("%v of %+v", got, r)
		}
	}
}
