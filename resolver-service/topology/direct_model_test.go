package topology

import (
	"maps"
	"slices"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func (w *world) takesExports(p PeerChange) {
	had := w.peers[p.Cluster]
	if had == nil {
		had = map[catalog.App]PeerExport{}
		w.peers[p.Cluster] = had
	}
	maps.DeleteFunc(had, func(a catalog.App, _ PeerExport) bool {
		named := slices.ContainsFunc(p.Put, func(e PeerExport) bool { return e.App == a })
		return p.Full && !named || slices.Contains(p.Delete, a)
	})
	for _, e := range p.Put {
		had[e.App] = e
	}
}

// tellExports tells another graph what all clusters export, one app after the other in any
// order.
func (w *world) tellExports(g *Graph) {
	for name, exports := range w.peers {
		for _, e := range exports {
			g.Apply(Change{Peers: []PeerChange{{Cluster: name, Put: []PeerExport{e}}}})
		}
		g.Apply(lease(name, Fresh))
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

// checkDirect holds what is kept of the addresses of peers to what they export: nothing of
// those that are not on our network.
func checkDirect(t *testing.T, g *Graph, what string) {
	t.Helper()
	for _, c := range g.clusters {
		kept, want := len(c.direct.one), 0
		for a, all := range c.direct.several {
			if kept += len(all); len(all) < 2 || c.direct.one[a] != nil {
				t.Fatalf("%s: %s is that of %d apps, and of %v", what, a, len(all), c.direct.one[a])
			}
		}
		for n := range c.exports {
			if export := n.remote.of(c.name); g.onNetwork(c) {
				for _, text := range ascending(export.Addresses) {
					if a, ok := canonical(text); ok && g.imports.refusesDirect(c, a) == nil {
						want++
					}
				}
			} else if export.left != nil {
				t.Fatalf("%s: of %s in %s, which is not on the network, %v are left", what, n.app, c.name, *export.left)
			}
		}
		if kept != want {
			t.Fatalf("%s: %d addresses of %s are kept of %d", what, kept, c.name, want)
		}
	}
	if len(g.owners.served) != 0 || len(g.imports.changed) != 0 {
		t.Fatalf("%s: of the change are kept %v, %v", what, g.owners.served, g.imports.changed)
	}
	for a, claims := range g.owners.contested {
		if strongest := slices.MaxFunc(claims, claim.compare); len(claims) < 2 || g.owners.owner(a) != strongest.node {
			t.Fatalf("%s: %s is that of %s, with the claims %v", what, a, g.owners.owner(a).app, claims)
		}
	}
}
