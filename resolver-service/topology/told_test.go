package topology

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// run is instances of orders: as many as said, without the first ones that are gone, in a zone each.
func (g *Graph) run(at time.Duration, count, gone int, zone func(i int) (zone, version string)) {
	c := InstanceChange{Source: "test", Full: true}
	for i := gone; i < count+gone; i++ {
		instance := catalog.Instance{App: app("orders"), ID: fmt.Sprint(i), Address: netip.MustParseAddrPort(addressOf(i))}
		if zone != nil {
			instance.Zone, instance.Version = zone(i)
		}
		c.Put = append(c.Put, instance)
	}
	g.Apply(Change{Instances: []InstanceChange{c}, Now: at})
}

// TestPeersAreToldOfManyInstancesNowAndThen: at once what a caller would miss, the rest together.
func TestPeersAreToldOfManyInstancesNowAndThen(t *testing.T) {
	type step struct {
		at          time.Duration
		count, gone int
		labels      func(int) (zone, version string)
		told        string // how many, and the first that is gone
	}
	one := func(which int, zone, version string) func(int) (string, string) {
		return func(i int) (string, string) {
			if i == which {
				return zone, version
			}
			return "a", "v1"
		}
	}
	all := one(-1, "", "")
	for name, steps := range map[string][]step{
		"each of few":                     {{1 * second, 10, 0, nil, "10-0"}, {1100 * time.Millisecond, 10, 1, nil, "10-1"}, {1200 * time.Millisecond, 10, 2, nil, "10-2"}},
		"each of few, also with a time":   {{1 * second, 64, 0, nil, "64-0"}, {1100 * time.Millisecond, 64, 1, nil, "64-1"}},
		"the first of many after a quiet": {{1 * second, 200, 0, nil, "200-0"}, {7 * second, 200, 1, nil, "200-1"}},
		"one after the other of many": {{1 * second, 200, 0, nil, "200-0"}, {2 * second, 200, 1, nil, "200-0"}, {3 * second, 200, 2, nil, "200-0"},
			{5999 * time.Millisecond, 200, 2, nil, "200-0"}, {6 * second, 200, 2, nil, "200-2"}, {7 * second, 200, 3, nil, "200-2"}, {11 * second, 200, 3, nil, "200-3"}},
		"a tenth":                     {{1 * second, 200, 0, nil, "200-0"}, {2 * second, 200, 10, nil, "200-0"}, {3 * second, 200, 11, nil, "200-11"}},
		"many become few":             {{1 * second, 70, 0, nil, "70-0"}, {2 * second, 64, 6, nil, "64-6"}},
		"few become many":             {{1 * second, 64, 0, nil, "64-0"}, {2 * second, 65, 0, nil, "65-0"}},
		"none are left":               {{1 * second, 200, 0, nil, "200-0"}, {2 * second, 0, 0, nil, "0-0"}, {3 * second, 200, 0, nil, "200-0"}},
		"the first of a zone":         {{1 * second, 200, 0, all, "200-0"}, {2 * second, 200, 1, one(200, "b", "v1"), "200-1"}},
		"the last of a zone":          {{1 * second, 200, 0, one(0, "b", "v1"), "200-0"}, {2 * second, 200, 1, all, "200-1"}},
		"the first of a version":      {{1 * second, 200, 0, all, "200-0"}, {2 * second, 200, 1, one(200, "a", "v2"), "200-1"}},
		"one that comes and goes":     {{1 * second, 200, 0, nil, "200-0"}, {2 * second, 201, 0, nil, "200-0"}, {3 * second, 200, 0, nil, "200-0"}, {9 * second, 200, 0, nil, "200-0"}},
		"a clock that does not go on": {{1 * second, 200, 0, nil, "200-0"}, {1 * second, 200, 1, nil, "200-0"}, {1 * second, 200, 2, nil, "200-0"}},
	} {
		for _, network := range []string{"", "flat"} {
			cfg := west
			cfg.Network = network
			g := NewGraph(cfg)
			east := reaches("east", "10.9.0.1:15443")
			east.Network = network
			g.Apply(full(exports("orders", catalog.Allow{Cluster: "east", Namespace: "shop", App: "*"}), east))
			g.Peer("east", nil)
			for i, s := range steps {
				g.run(s.at, s.count, s.gone, s.labels)
				export, _ := g.Peer("east", nil).Exports.Get(app("orders"))
				want := s.told
				if network != "" { // where addresses are told, all is
					want = fmt.Sprintf("%d-%d", s.count, s.gone)
				}
				if got := toldOf(export, s.count+s.gone+10); got != want {
					t.Errorf("%s, network %q, step %d: %s is told, want %s", name, network, i, got, want)
				}
				late := network == "" && s.told != fmt.Sprintf("%d-%d", s.count, s.gone)
				if next, ok := g.NextStep(); late && (!ok || next <= s.at) || late && len(g.exports.telling.late) != 1 {
					t.Errorf("%s, network %q, step %d: the next step is at %s, %t, with %d late", name, network, i, next, ok, len(g.exports.telling.late))
				}
			}
		}
	}
}

// toldOf is how many instances are told, and the first of a run of them.
func toldOf(e *PeerExport, most int) string {
	for gone := range most {
		var ready []string
		for i := gone; i < gone+int(e.Ready); i++ {
			ready = append(ready, addressOf(i))
		}
		slices.Sort(ready)
		if len(e.Addresses) > 0 && slices.Equal(e.Addresses, ready) || len(e.Addresses) == 0 && slices.Equal(e.Instances, catalog.InstanceTokens(ready)) {
			return fmt.Sprintf("%d-%d", e.Ready, gone)
		}
	}
	return fmt.Sprintf("%d instances as %d names", e.Ready, len(e.Instances))
}

// TestATryDoesNotTellPeers of what is held back, and does not make it due.
func TestATryDoesNotTellPeers(t *testing.T) {
	g := NewGraph(west)
	g.Apply(full(exports("orders", catalog.Allow{Cluster: "east", Namespace: "shop", App: "*"}), reaches("east", "10.9.0.1:15443")))
	g.Peer("east", nil)
	g.run(1*second, 200, 0, nil)
	g.run(2*second, 200, 1, nil)
	view := g.Peer("east", nil)
	change := ObjectChange{Put: []catalog.Object{exports("orders", catalog.Allow{Cluster: "*", Namespace: "shop", App: "*"})}}
	if _, err := g.Try(change, func(Facts) {}); err != nil {
		t.Fatal(err)
	}
	if next, _ := g.NextStep(); g.Peer("east", nil) != view || next != 6*second {
		t.Errorf("after a try, the next step is at %s", next)
	}
	g.Apply(Change{Now: 6 * second})
	if e, _ := g.Peer("east", nil).Exports.Get(app("orders")); toldOf(e, 10) != "200-1" {
		t.Errorf("%s is told", toldOf(e, 10))
	}
	if _, ok := g.NextStep(); ok {
		t.Error("something is still due")
	}
}

// BenchmarkRollout is an app with so many instances that are replaced one by one, 20 a second, with a
// peer that follows it, and how many times the peer is told of all of them.
func BenchmarkRollout(b *testing.B) {
	for _, count := range []int{64, 1000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			g := NewGraph(west)
			g.Apply(full(exports("orders", catalog.Allow{Cluster: "east", Namespace: "shop", App: "*"}), reaches("east", "10.9.0.1:15443")))
			g.run(0, count, 0, nil)
			seen := g.Peer("east", nil)
			told, gone := 0, 0
			for b.Loop() {
				gone++
				g.run(time.Duration(gone)*50*time.Millisecond, count, gone, nil)
				if now := g.Peer("east", nil); now != seen {
					seen = now
					told++
				}
			}
			b.ReportMetric(float64(told)/float64(gone), "told/change")
		})
	}
}

func addressOf(i int) string { return fmt.Sprintf("10.0.%d.%d:50002", i/200, i%200+1) }
