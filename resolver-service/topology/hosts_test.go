package topology

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// asks is who asks from an address, in a word.
func (g *Graph) asks(address string) string {
	switch caller, ok := g.owners.callers.Get(netip.MustParseAddr(address)); {
	case !ok:
		return "nobody"
	case caller.Shared:
		return "shared"
	default:
		return caller.App.ID
	}
}

func TestWhoAsksIsTheAppWithAnInstanceAtTheAddress(t *testing.T) {
	for _, ip := range []string{"10.0.0.1", "fd00::1"} {
		a, b := netip.AddrPortFrom(netip.MustParseAddr(ip), 50002).String(), netip.AddrPortFrom(netip.MustParseAddr(ip), 50003).String()
		steps := []struct {
			what   string
			change Change
			want   string
		}{
			{"orders comes up", runs("orders", "1", a), "orders"},
			{"it drains", drains(runs("orders", "1", a)), "orders"},
			{"another source knows it too", from("other", runs("orders", "pod", a)), "orders"},
			{"one source knows it no more", stops("orders", "1"), "orders"},
			{"a second instance of it comes up there", runs("orders", "2", b), "orders"},
			{"ledger takes the second's address over", registers(1, runs("ledger", "1", b)), "shared"},
			{"and the first's", registers(1, runs("ledger", "2", a)), "ledger"},
			{"and leaves it again", stops("ledger", "2"), "shared"},
			{"ledger goes, and orders is back", stops("ledger", "1"), "orders"},
			{"orders moves", with(stops("orders", "2"), from("other", runs("orders", "pod", "10.9.9.9:1"))), "nobody"},
		}
		g := NewGraph(west)
		g.Apply(full())
		for _, step := range steps {
			revision := g.Revision()
			g.Apply(step.change)
			if got := g.asks(ip); got != step.want {
				t.Errorf("%s at %s: %s asks, want %s", step.what, ip, got, step.want)
			}
			if g.Revision() < revision {
				t.Errorf("revision %d after %d", g.Revision(), revision)
			}
		}
		if got := g.asks("10.9.9.9"); got != "orders" {
			t.Errorf("%s asks from where orders has gone", got)
		}
	}
}

func TestAnIPv4AddressInIPv6IsTheSameInstance(t *testing.T) {
	g := NewGraph(west)
	g.Apply(full())
	g.Apply(runs("orders", "1", "10.0.0.1:50002"))
	g.Apply(from("other", runs("orders", "1", "[::ffff:10.0.0.1]:50002")))
	if s := g.Stats(); s.Instances != 1 || g.asks("10.0.0.1") != "orders" {
		t.Errorf("%d instances, and %s asks from there", s.Instances, g.asks("10.0.0.1"))
	}
}

func TestNobodyIsKnownBeforeTheFullSet(t *testing.T) {
	top := running(t, west)
	top.must(t, runs("orders", "1", "10.0.0.1:50002"))
	if _, ok := top.Callers().Load(); ok {
		t.Error("who asks is said before the store's full set is in")
	}
	if _, ok := top.Clusters().Load(); ok {
		t.Error("gateways are said before the store's full set is in")
	}
	top.must(t, full(reaches("east", "gw.east.example:15443")))
	callers, _ := top.Callers().Load()
	if c, ok := callers.Get(netip.MustParseAddr("10.0.0.1")); !ok || c.App != app("orders") {
		t.Errorf("from the address of orders asks %+v", c)
	}
	gateways, _ := top.Clusters().Load()
	if got := fmt.Sprint(gateways.Addresses); got != "map[east:[gw.east.example:15443]]" || gateways.Domain != west.Domain {
		t.Errorf("gateways %s of %q", got, gateways.Domain)
	}
}

func TestClustersAreSaidWhenTheirGatewaysChange(t *testing.T) {
	g := NewGraph(west)
	g.Apply(full(reaches("east", "10.9.0.1:1")))
	net1 := reaches("east", "10.9.0.1:1")
	net1.Network = "net-1"
	for _, step := range []struct {
		what   string
		change Change
		want   string // nothing where it stays
	}{
		{"another cluster", objects(reaches("north", "10.9.1.1:1")), "map[east:[10.9.0.1:1] north:[10.9.1.1:1]]"},
		{"a network", objects(net1), ""},
		{"an instance", runs("orders", "1", "10.0.0.1:50002"), ""},
		{"another gateway", objects(reaches("east", "10.9.0.2:1")), "map[east:[10.9.0.2:1] north:[10.9.1.1:1]]"},
		{"a cluster gone", deletes(catalog.Key{Kind: catalog.KindCluster, Name: "east"}), "map[north:[10.9.1.1:1]]"},
	} {
		u := g.Apply(step.change)[0]
		got := ""
		if u.Clusters != nil {
			got = fmt.Sprint(u.Clusters.Addresses)
		}
		if got != step.want {
			t.Errorf("%s: told of %q, want %q", step.what, got, step.want)
		}
	}
}

func TestToKnowWhoAsksTakesLittleRoom(t *testing.T) {
	const apps, each = 2_000, 100
	edits := make([]catalog.CallerEdit, 0, apps*each)
	for i := range apps * each {
		edits = append(edits, catalog.CallerEdit{
			Address: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}),
			Caller:  catalog.Caller{App: app(fmt.Sprintf("app-%05d", i/each))},
		})
	}
	before := heapSize()
	var none *catalog.Callers
	all := none.With(edits...)
	size := heapSize() - before
	if perAddress := float64(size) / (apps * each); perAddress > 130 {
		t.Errorf("%.0f bytes for each address, want 130 or less", perAddress)
	}
	runtime.KeepAlive(edits)
	t.Logf("%d addresses, %d bytes each", all.Len(), size/(apps*each))
}
