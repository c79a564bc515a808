package topology

import (
	"net/netip"
	"slices"
	"unique"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Graph is the dependency graph from objects, instances and peers to views and tables. It belongs
// to one goroutine; its values are immutable.
//
// Its parts share the nodes, and each answers for one idea: objects, owners of addresses, ramps,
// other clusters' exports, own exports, and callers' views.
type Graph struct {
	*nodes
	revision uint64

	selections *selections
	owners     *ownership
	ramps      *ramps
	imports    *imports
	exports    *exportTables
	views      *views
	accesses   *accesses
	actors     *actors
	interests  *interests
	outages    []*node // apps that have lost their last ready instance, or have one again
}

// nodes are the apps and clusters there are, and what a change has reached of them.
type nodes struct {
	cfg      Config
	synced   bool // the store's full set is in
	apps     map[catalog.App]*node
	clusters map[string]*cluster
	defaults defaultSelections
	unowned  map[string]map[*node]struct{} // apps without a selection of their own, by namespace
	counts   Stats
	guests   map[*cluster]struct{} // clusters that join for a while
	touched  []*node               // whose instances a change has reached, each once
	dirty    dirty
	saved    *saved // while Try looks ahead
}

// node is one app, with the edges to and from it.
type node struct {
	app        catalog.App
	instances  []instance            // by source and ID
	ready      []string              // "ip:port", sorted; replaced, never changed
	draining   uint32                // instances that take no new calls
	zones      *catalog.Labels       // of those ready
	versions   *catalog.Labels       // of those ready
	exportable *exportableInstances  // those of ready that may be exported; nil until it is asked for
	told       *toldInstances        // what peers know of those; nil before they were told
	local      *catalog.Plan         // to the ready here, shared by entries; nil until it is asked for
	plans      []*catalog.Plan       // other plans to this app, for callers to share
	own        *catalog.AppEndpoints // the app's own selection
	selection  *catalog.AppEndpoints // what the app may call: own, or declared, or by the default that it follows
	export     *catalog.AppExport
	consent    allowed               // callers of this cluster that export allows
	remote     remotes               // who else has the app
	guests     map[*cluster]struct{} // that may run it
	takes      []guestTake           // of calls to it, in order
	callers    map[*node]int32       // whose selection holds this app, and the endpoint's index; selfIndex for the app itself
	view       *catalog.View         // nil without a selection
	counted    bool                  // in Stats.Apps
	changed    bool                  // it is among those touched
	served     bool                  // it has had ready instances
	followed   bool                  // somebody follows its view
	out        bool                  // it has lost its last ready instance; see noteOutage
	outTold    bool                  // events were told so
	uses       map[string]int        // clusters that the view leads to, and by how many entries
}

// selfIndex marks the edge from an app to itself.
const selfIndex = -1

// instance is one of a node's. There are many, so it is as small as it gets.
type instance struct {
	id       string
	ip       netip.Addr
	port     uint16
	draining bool
	rank     Rank
	since    int64 // catalog.Instance.Since
	origin   unique.Handle[origin]
}

// origin is what many instances have in common.
type origin struct {
	source string
	zone   string // where the instance runs; empty where that is not known
	// version is that of its app; empty where that is not known.
	version string
	calls   catalog.Calls
	// account is the Kubernetes service account.
	account string
}

func (i *instance) address() netip.AddrPort { return netip.AddrPortFrom(i.ip, i.port) }

// text is the address as views have it. Mostly it is the ID, and then takes no room of its own.
func (i *instance) text() string {
	var room [64]byte
	if text := i.address().AppendTo(room[:0]); string(text) != i.id {
		return string(text)
	}
	return i.id
}

// cluster is another cluster, known from its object, from its peer, or only from
// the routes that name it.
type cluster struct {
	name    string
	object  *catalog.Cluster
	heard   bool
	lapsed  bool                         // its word does not hold, or it is damped
	damped  bool                         // its word holds, but its lease ran out too often lately
	resting bool                         // its word may be old, and is not relied on
	silent  bool                         // it was asked last, and did not answer
	exports map[*node]struct{}           // apps that the cluster exports to this one
	offers  map[catalog.App]offer        // and those without a node
	lists   []*[]catalog.Allow           // some of the offers', to be shared
	direct  direct                       // their addresses; empty while it is not on our network
	named   map[*node]map[*node]struct{} // caller to callees whose routes name the cluster
}

// NewGraph makes an empty graph.
func NewGraph(cfg Config) *Graph {
	ns := &nodes{cfg: cfg, apps: map[catalog.App]*node{}, clusters: map[string]*cluster{}, defaults: defaultSelections{map[string]*catalog.AppEndpoints{}, map[catalog.App]int{}}, unowned: map[string]map[*node]struct{}{}, guests: map[*cluster]struct{}{}}
	ns.dirty.reset()
	rs := &ramps{nodes: ns, next: never, all: map[rampKey]*ramp{}}
	as := newActors(ns)
	in := newInterests(ns, as)
	g := &Graph{
		nodes: ns, ramps: rs, owners: newOwnership(ns), imports: newImports(ns, rs, as), exports: newExportTables(ns, as),
		views: newViews(ns, rs, in), accesses: newAccesses(ns), actors: as, interests: in,
	}
	g.selections = &selections{
		nodes: ns, objects: map[catalog.Key]catalog.Object{}, owners: g.owners, imports: g.imports, views: g.views, accesses: g.accesses, actors: as,
	}
	return g
}

// Revision numbers the newest state that the graph has served.
func (g *Graph) Revision() uint64 { return g.revision }

// Apply takes a change in and returns its effects, whose revision is higher than any before when
// there is anything. There are two updates, to be published one after the other, when an address
// goes from one app to another: the first has all but the address's new place, so that it is gone
// from the one app before it is with the other.
func (g *Graph) Apply(c Change) []Update {
	second, direct := g.take(c)
	updates := append(make([]Update, 0, 2), g.flush())
	if len(second) == 0 && len(direct) == 0 {
		return updates
	}
	for _, n := range second {
		g.instancesChanged(n.node, n.before)
	}
	for _, p := range direct {
		g.imports.directChanged(p)
	}
	return append(updates, g.flush())
}

// take returns the apps, here and of peers, that have to wait for an address until the rest
// is published.
func (g *Graph) take(c Change) (second []waiting, direct []pair) {
	g.ramps.advance(c.Now)
	g.interests.advance(c.Now)
	g.exports.advance(c.Now)
	if c.Objects != nil {
		g.selections.takeObjects(c.Objects)
	}
	for i := range c.Instances {
		g.owners.takeInstances(&c.Instances[i])
	}
	for app, followed := range c.Followed {
		g.selections.follow(app, followed)
	}
	for i := range c.Peers {
		g.imports.takePeer(&c.Peers[i])
	}
	second, direct = g.settle(), g.imports.settleDirect()
	clear(g.owners.served)
	return second, direct
}

func (ns *nodes) node(app catalog.App) *node {
	n := ns.apps[app]
	if n == nil {
		n = &node{app: app}
		ns.apps[app] = n
		ns.unown(n, true)
		ns.adopt(n)
	}
	return n
}

// present tells whether the app belongs to this cluster: it runs here, or an object
// here is about it.
func (n *node) present() bool {
	return len(n.instances) > 0 || n.own != nil || n.export != nil
}

// release forgets an app that nothing refers to any more.
func (ns *nodes) release(n *node) {
	if !n.present() && !n.followed && len(n.callers)+len(n.guests)+len(n.takes) == 0 && ns.apps[n.app] == n && n.remote.namedOnly() {
		if len(n.remote) > 0 && ns.defaults.hold(n.app) || slices.ContainsFunc(n.remote, func(i imported) bool { return ns.clusters[i.cluster].guest() != nil }) {
			return
		}
		delete(ns.apps, n.app)
		ns.offered(n)
		ns.unown(n, false)
	}
}

// unown notes whether an app has no selection of its own.
func (ns *nodes) unown(n *node, without bool) {
	all := ns.unowned[n.app.Namespace]
	if all == nil {
		all = map[*node]struct{}{}
		ns.unowned[n.app.Namespace] = all
	}
	if without {
		all[n] = struct{}{}
	} else if delete(all, n); len(all) == 0 {
		delete(ns.unowned, n.app.Namespace)
	}
}

func (ns *nodes) cluster(name string) *cluster {
	c := ns.clusters[name]
	if c == nil {
		c = &cluster{name: name, exports: map[*node]struct{}{}, named: map[*node]map[*node]struct{}{}}
		ns.clusters[name] = c
	}
	return c
}

func (ns *nodes) releaseCluster(c *cluster) {
	if c.object == nil && !c.heard && len(c.exports)+len(c.offers) == 0 && len(c.named) == 0 {
		delete(ns.clusters, c.name)
	}
}

func (n *node) connect(callee *node, index int32) {
	if callee.callers == nil {
		callee.callers = map[*node]int32{}
	}
	callee.callers[n] = index
}

// nameTo is the app by whose name a caller calls it.
func (n *node) nameTo(caller *node) catalog.App {
	if index, ok := n.callers[caller]; ok && index != selfIndex {
		return caller.selection.Endpoints[index].Name(caller.app)
	}
	return n.app
}

// isHere tells whether a route's cluster is this one.
func (ns *nodes) isHere(name string) bool {
	return name == catalog.LocalCluster || name == ns.cfg.Cluster
}
