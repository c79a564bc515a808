package topology

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// offering is an address that a cluster on our network exports an app with.
type offering struct {
	cluster string
	app     catalog.App
	address string
}

// near are the clusters on our network.
func (w *world) near() map[string]string {
	all := map[string]string{}
	for _, o := range w.objects {
		if c, ok := o.(*catalog.Cluster); ok && c.Network == w.network && w.network != "" {
			all[c.Name] = fmt.Sprint(c.NetworkRanges) // told by which it may name
		}
	}
	return all
}

// networksChange notes that the addresses of clusters which have come to our network, or may
// name others by now, were there before, and that those of clusters which have left it are not ours to look at.
func (w *world) networksChange(before map[string]string) {
	now := w.near()
	maps.DeleteFunc(w.offered, func(o offering, _ int) bool { return now[o.cluster] == "" })
	for name := range now {
		for a, e := range w.peers[name] {
			for _, address := range e.Addresses {
				if before[name] != now[name] {
					w.offered[offering{name, a, address}] = 0
				}
			}
		}
	}
}

func (w *world) takesExports(p PeerChange) {
	had, heard, near := w.peers[p.Cluster], w.leases[p.Cluster] != Unchanged, w.near()[p.Cluster] != ""
	if had == nil {
		had = map[catalog.App]PeerExport{}
		w.peers[p.Cluster] = had
	}
	put := func(a catalog.App, next PeerExport) {
		for _, address := range had[a].Addresses {
			if !slices.Contains(next.Addresses, address) {
				delete(w.offered, offering{p.Cluster, a, address})
			}
		}
		for _, address := range ascending(next.Addresses) {
			if near && !slices.Contains(had[a].Addresses, address) {
				w.claims++
				w.offered[offering{p.Cluster, a, address}] = w.claims
				if !heard {
					w.offered[offering{p.Cluster, a, address}] = 0
				}
			}
		}
		if had[a] = next; next.App == (catalog.App{}) {
			delete(had, a)
		}
	}
	for a := range maps.Clone(had) {
		named := slices.ContainsFunc(p.Put, func(e PeerExport) bool { return e.App == a })
		if p.Full && !named || slices.Contains(p.Delete, a) {
			put(a, PeerExport{})
		}
	}
	for _, e := range p.Put {
		put(e.App, e)
	}
}

// tellExports tells another graph what all clusters export: what was there before, and then
// each address as it came up.
func (w *world) tellExports(g *Graph) {
	near := w.near()
	for name, es := range w.peers {
		first := PeerChange{Cluster: name, Full: true}
		for _, e := range es {
			all := e.Addresses
			e.Addresses = slices.DeleteFunc(slices.Clone(all), func(address string) bool {
				return near[name] != "" && w.offered[offering{name, e.App, address}] > 0
			})
			first.Put = append(first.Put, e)
		}
		g.Apply(Change{Peers: []PeerChange{first}})
		g.Apply(lease(name, Fresh))
	}
	for _, o := range slices.SortedFunc(maps.Keys(w.offered), func(a, b offering) int { return w.offered[a] - w.offered[b] }) {
		if n := w.offered[o]; n > 0 {
			e := w.peers[o.cluster][o.app]
			e.Addresses = slices.DeleteFunc(slices.Clone(e.Addresses), func(address string) bool {
				return w.offered[offering{o.cluster, o.app, address}] > n
			})
			g.Apply(Change{Peers: []PeerChange{{Cluster: o.cluster, Put: []PeerExport{e}}}})
		}
	}
	for name := range w.peers {
		if last := w.leases[name]; last != Unchanged {
			g.Apply(lease(name, last))
		} else {
			g.Apply(lease(name, Forgotten))
		}
	}
	for name, last := range w.leases {
		if w.peers[name] == nil && last != Unchanged {
			g.Apply(lease(name, Fresh))
			g.Apply(lease(name, last))
		}
	}
}

// checkOffers holds what is kept of the addresses of peers to what they export: nothing of
// those that are not on our network.
func checkOffers(t *testing.T, g *Graph, what string) {
	t.Helper()
	for _, c := range g.clusters {
		kept, want := len(c.offers.top), 0
		for a, weaker := range c.offers.weaker {
			if kept += weaker.Len(); weaker.Len() == 0 || len(weaker.at) != weaker.Len() {
				t.Fatalf("%s: of %s %d offers are kept, of %d apps", what, a, weaker.Len(), len(weaker.at))
			}
			for at, o := range weaker.offers {
				if weaker.at[o.node] != at || c.offers.top[a].compare(o) <= 0 {
					t.Fatalf("%s: %s is offered with %s, which is not in its place", what, a, o.app)
				}
			}
		}
		for n := range c.exports {
			if export := n.remote.of(c.name); g.onNetwork(c) {
				for _, text := range ascending(export.Addresses) {
					if a, ok := canonical(text); ok && g.refusesDirect(c, a) == nil {
						want++
					}
				}
			} else if export.left != nil {
				t.Fatalf("%s: of %s in %s, which is not on the network, %v are left", what, n.app, c.name, *export.left)
			}
		}
		if kept != want {
			t.Fatalf("%s: %d offers of %s are kept of %d", what, kept, c.name, want)
		}
	}
	if len(g.addresses.taken) != 0 || len(g.moves) != 0 {
		t.Fatalf("%s: of the change are kept %v, %v", what, g.addresses.taken, g.moves)
	}
	for a, claims := range g.addresses.contested {
		if !slices.IsSortedFunc(claims, claimant.compare) {
			t.Fatalf("%s: the claims to %s are not in order: %s", what, a, fmt.Sprint(claims))
		}
	}
}
