package topology

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Fence is an app of this cluster with all that may reach its sidecars. The app itself is one of
// its own callers.
type Fence struct {
	Workload
	Ports   []uint16   // of its sidecars' internal servers, sorted; empty where no instance is known
	Callers []Workload // of this cluster, by name
	Remote  []catalog.RemoteCaller
	Direct  []DirectCluster
	Rules   []catalog.Key // the objects that all this comes from, sorted
}

// DirectCluster is another cluster whose instances come without a gateway.
type DirectCluster struct {
	Name   string
	Ranges []netip.Prefix // of their addresses; empty where nobody knows
}

// Workload is an app with the Kubernetes service accounts of its pods, sorted. There are none
// where the app runs elsewhere, or nobody reads them.
type Workload struct {
	App      catalog.App
	Accounts []string
}

// Fences tells who may reach each of these apps; one that is not here, and that no object here is
// about, is left out. A change waits for it, so ask for some hundreds at a time. The error is that
// ctx or the topology has ended.
func (v Inventory) Fences(ctx context.Context, apps []catalog.App) (all []Fence, err error) {
	err = v.t.ask(ctx, func(g *Graph) {
		for _, app := range apps {
			if n := g.apps[app]; n != nil && n.present() {
				all = append(all, g.fence(n))
			}
		}
	})
	return all, err
}

// AccountsOf tells which apps run under each Kubernetes service account, "namespace/name".
func (v Inventory) AccountsOf(ctx context.Context) (all map[string][]catalog.App, err error) {
	err = v.t.ask(ctx, func(g *Graph) {
		all = map[string][]catalog.App{}
		for app, n := range g.apps {
			for _, account := range n.accounts() {
				name := app.Namespace + "/" + account
				all[name] = append(all[name], app)
			}
		}
	})
	for _, apps := range all {
		slices.SortFunc(apps, catalog.App.Compare)
	}
	return all, err
}

func (g *Graph) fence(n *node) Fence {
	f := Fence{Workload: n.workload()}
	for i := range n.instances {
		f.Ports = append(f.Ports, n.instances[i].port)
	}
	slices.Sort(f.Ports)
	f.Ports = slices.Compact(f.Ports)
	callers := map[catalog.App]Workload{n.app: f.Workload}
	rules := map[catalog.Key]struct{}{}
	for caller, index := range n.callers {
		if index == selfIndex || !g.accesses.admits(n.app, caller.app) {
			continue
		}
		callers[caller.app] = caller.workload()
		if s := caller.selection; !s.Declared {
			rules[s.Key()] = struct{}{}
		}
	}
	for app := range g.accesses.undeclaredOf(n.app).All() {
		if caller := g.apps[app]; caller != nil {
			callers[app] = caller.workload()
		}
	}
	for app := range callers {
		if app.Namespace != n.app.Namespace && n.consent.has(app) {
			rules[n.export.Key()] = struct{}{}
		}
	}
	f.Callers = slices.SortedFunc(maps.Values(callers), func(a, b Workload) int { return a.App.Compare(b.App) })
	if f.Remote = g.accesses.remote(n.app).All(); len(f.Remote) > 0 {
		for _, r := range f.Remote {
			key, _ := g.remoteRule(n, r.Cluster)
			rules[key] = struct{}{}
		}
		f.addDirect(g)
	}
	f.Rules = slices.SortedFunc(maps.Keys(rules), catalog.Key.Compare)
	return f
}

// addDirect adds where the callers come from whose clusters are on this one's network.
func (f *Fence) addDirect(g *Graph) {
	for _, r := range f.Remote {
		there := slices.ContainsFunc(f.Direct, func(d DirectCluster) bool { return d.Name == r.Cluster })
		if c := g.clusters[r.Cluster]; c != nil && g.onNetwork(c) && !there {
			f.Direct = append(f.Direct, DirectCluster{c.name, c.object.NetworkRanges})
		}
	}
	slices.SortFunc(f.Direct, func(a, b DirectCluster) int { return strings.Compare(a.Name, b.Name) })
}

func (n *node) workload() Workload { return Workload{n.app, n.accounts()} }

// accounts are the service accounts of an app's pods, sorted.
func (n *node) accounts() (all []string) {
	for i := range n.instances {
		if account := n.instances[i].origin.Value().account; account != "" && !slices.Contains(all, account) {
			all = append(all, account)
		}
	}
	slices.Sort(all)
	return all
}
