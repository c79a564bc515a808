package topology

import (
	"context"
	"net/netip"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// AppState is an app as the topology knows it.
type AppState struct {
	App        catalog.App
	Ready      uint32 // addresses here
	Draining   uint32 // that take no new calls
	Instances  []InstanceState
	Imports    []ImportState // other clusters that export it to this one, by name
	ExportedTo []string      // clusters that its AppExport names, sorted; "*" for any
	Callers    int           // apps here whose selection holds it
	Selection  bool          // it has AppEndpoints
}

// InstanceState is an instance of an app here, as one source has it.
type InstanceState struct {
	Source   string
	ID       string
	Address  netip.AddrPort
	Draining bool
	Zone     string
	Version  string
	TakenBy  catalog.App // the app whose address it is, if that is another
}

// ImportState is an app in another cluster.
type ImportState struct {
	Cluster string
	Ready   uint32
	Stale   bool // the cluster's lease has ended, or is damped
	// Versions are those of its instances that are ready.
	Versions string
	Named    bool // see [PeerExport.Named]
}

// Inventory answers questions about the topology, for people and for parts that act on all of it.
// Each answer is made by the goroutine that owns the graph.
type Inventory struct{ t *Topology }

// Inventory is what the topology knows.
func (t *Topology) Inventory() Inventory { return Inventory{t} }

// Apps returns the names of all apps that run here, that an object here is about, or whose exports
// by other clusters may be called from here; sorted. The error is that ctx or the topology has ended.
func (v Inventory) Apps(ctx context.Context) (all []catalog.App, err error) {
	err = v.t.ask(ctx, func(g *Graph) {
		for app, n := range g.apps {
			if g.isKnown(n) {
				all = append(all, app)
			}
		}
	})
	slices.SortFunc(all, catalog.App.Compare)
	return all, err
}

// Offered returns the names of the other apps that a cluster exports to this one, or any cluster if
// it is empty; in no order. A service with many peers may know hundreds of thousands.
func (v Inventory) Offered(ctx context.Context, cluster string) (all []catalog.App, err error) {
	err = v.t.ask(ctx, func(g *Graph) { all = slices.Collect(g.offeredApps(cluster)) })
	return all, err
}

// AppStates describes apps; one that is unknown by now is left out. A change waits for it, so ask
// for some thousands at a time.
func (v Inventory) AppStates(ctx context.Context, apps []catalog.App) (all []AppState, err error) {
	err = v.t.ask(ctx, func(g *Graph) {
		offers := g.offersOf(apps)
		for _, app := range apps {
			if n := g.apps[app]; n != nil && g.isKnown(n) {
				all = append(all, g.state(n))
			} else if remote := offers[app]; n == nil && len(remote) > 0 {
				all = append(all, g.state(&node{app: app, remote: remote}))
			}
		}
	})
	return all, err
}

// Bridges are the bridges for actors that this cluster should have, sorted: of namespaces whose apps
// select actor types, or host some that other clusters may call.
func (v Inventory) Bridges(ctx context.Context) (all []AppState, err error) {
	err = v.t.ask(ctx, func(g *Graph) {
		for _, namespace := range g.actors.bridged() {
			app := catalog.BridgeApp(namespace, g.cfg.Cluster)
			if n := g.apps[app]; n != nil {
				all = append(all, g.state(n))
			} else {
				all = append(all, AppState{App: app})
			}
		}
	})
	return all, err
}

func (g *Graph) state(n *node) AppState {
	s := AppState{App: n.app, Ready: uint32(len(n.ready)), Draining: n.draining, Selection: n.own != nil, Callers: len(n.callers)}
	if _, self := n.callers[n]; self {
		s.Callers--
	}
	for i := range n.instances {
		in := &n.instances[i]
		from := in.origin.Value()
		one := InstanceState{Source: from.source, ID: in.id, Address: in.address(), Draining: in.draining, Zone: from.zone, Version: from.version}
		if owner := g.owners.owner(one.Address); owner != nil && owner != n {
			one.TakenBy = owner.app
		}
		s.Instances = append(s.Instances, one)
	}
	for i := range n.remote {
		r := &n.remote[i]
		c := g.clusters[r.cluster]
		if c.refuses(n.app) {
			continue
		}
		s.Imports = append(s.Imports, ImportState{Cluster: r.cluster, Ready: r.ready(), Stale: c == nil || c.lapsed, Versions: r.Versions.String(), Named: r.Named})
	}
	s.ExportedTo = g.exportedTo(n)
	return s
}

// exportedTo are the other clusters that an app's AppExport names, sorted; "*" for any.
func (ns *nodes) exportedTo(n *node) (names []string) {
	for c := range ns.guests {
		if len(ns.guestCallers(n, c)) > 0 {
			names = append(names, c.name)
		}
	}
	if n.export == nil {
		slices.Sort(names)
		return names
	}
	for _, a := range n.export.Allow {
		if a.Cluster == "" || a.Cluster == "*" {
			return []string{"*"}
		}
		if a.Outward(ns.cfg.Cluster) {
			names = append(names, a.Cluster)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
