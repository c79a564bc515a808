package topology

import (
	"cmp"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// exportTo is an app and a cluster that may be told of it.
type exportTo struct {
	cluster string
	app     catalog.App
}

// allowedTo is who may call each app in each other cluster and, from other namespaces, in this one;
// of the apps and clusters that a change of objects reaches.
func (g *Graph) allowedTo(c *ObjectChange) map[exportTo][]catalog.Allow {
	all := map[exportTo][]catalog.Allow{}
	add := func(cluster string, n *node) {
		if n == nil || cluster == g.cfg.Cluster {
			return
		}
		if c := g.clusters[cluster]; c.guest() != nil {
			if allow := g.guestCallers(n, c); len(allow) > 0 {
				all[exportTo{cluster, n.app}] = allow
			}
			return
		}
		if n.export == nil {
			return
		}
		for _, a := range n.export.Allow {
			if a.ForCluster(cluster) && cluster != catalog.LocalCluster || cluster == catalog.LocalCluster && g.consentsAcross(n, a) {
				to := exportTo{cluster, n.app}
				all[to] = append(all[to], catalog.Allow{Cluster: cluster, Namespace: a.Namespace, App: a.App})
			}
		}
	}
	var clusters []string
	for key := range c.keys() {
		if key.Kind == catalog.KindCluster {
			clusters = append(clusters, key.Name)
		}
	}
	for _, name := range clusters {
		if cl := g.clusters[name]; cl == nil || cl.object == nil {
			continue // it is not told anything
		}
		for _, n := range g.apps {
			add(name, n)
		}
	}
	for key := range c.keys() {
		if key.Kind != catalog.KindAppExport {
			continue
		}
		n := g.apps[catalog.App{Namespace: key.Namespace, ID: key.Name}]
		add(catalog.LocalCluster, n)
		for name, cl := range g.clusters {
			if cl.object != nil && !slices.Contains(clusters, name) {
				add(name, n)
			}
		}
		for key := range g.exports.peers {
			name := key.Cluster
			if cl := g.clusters[name]; (cl == nil || cl.object == nil) && !slices.Contains(clusters, name) {
				add(name, n) // it follows without a Cluster object, which takes no mTLS
			}
		}
	}
	return all
}

// consentsAcross tells whether an entry of an app's export lets callers of another namespace in here.
func (g *Graph) consentsAcross(n *node, a catalog.Allow) bool {
	return a.ForOwn(g.cfg.Cluster) && a.Namespace != n.app.Namespace && !g.cfg.SelectionIsConsent && g.cfg.Guard != catalog.GuardOff
}

// exportEffects compares what is told before a change with what is told after it.
func exportEffects(before, after map[exportTo][]catalog.Allow) []ExportEffect {
	var all []ExportEffect
	for to, was := range before {
		if is := after[to]; !slices.Equal(was, is) {
			all = append(all, ExportEffect{to.cluster, to.app, was, is})
		}
	}
	for to, is := range after {
		if _, was := before[to]; !was {
			all = append(all, ExportEffect{to.cluster, to.app, nil, is})
		}
	}
	slices.SortFunc(all, func(a, b ExportEffect) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), a.App.Compare(b.App))
	})
	return all
}
