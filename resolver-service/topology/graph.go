package topology

import (
	"net/netip"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Graph is the dependency graph from objects, instances and peers to what is
// served. It belongs to one goroutine; what it hands out is immutable.
type Graph struct {
	cfg      Config
	revision uint64
	synced   bool // the store's full set is in
	apps     map[catalog.App]*node
	clusters map[string]*cluster
	objects  map[catalog.Key]catalog.Object
	counts   Stats

	open    *catalog.View // of every app without a selection
	gateway *catalog.GatewayTable
	peers   map[string]*PeerView
	shared  map[string]*catalog.Gateways // by the clusters they name

	callers     *catalog.Callers
	allGateways *catalog.Gateways // of every cluster with an object

	owners    ownership
	sources   map[string]int      // instances of each source
	moves     map[*cluster]*moves // of the change that is being taken in
	ramps     ramps
	touched   []*node    // whose instances a change has reached, each once
	takeovers []takeover // that nobody was told of yet
	warnings  []warning  // the same

	dirty dirty
	saved *saved // while Try looks ahead
}

// node is one app, with the edges to and from it.
type node struct {
	app       catalog.App
	instances []instance            // by source and ID
	ready     []string              // "ip:port", sorted; replaced, never changed
	draining  uint32                // instances that take no new calls
	zones     *catalog.Zones        // of those ready
	outward   *outward              // those of ready that may be exported; nil until it is asked for
	local     *catalog.Plan         // to the ready here, shared by entries; nil until it is asked for
	plans     []*catalog.Plan       // other plans to this app, for callers to share
	selection *catalog.AppEndpoints // what the app may call
	export    *catalog.AppExport
	remote    remotes         // who else has the app
	callers   map[*node]int32 // whose selection holds this app, and the endpoint's index; selfIndex for the app itself
	view      *catalog.View   // nil without a selection
	counted   bool            // in Stats.Apps
	changed   bool            // it is among those touched
	served    bool            // it has had ready instances
	uses      map[string]int  // clusters that the view leads to, and by how many entries
}

// selfIndex marks the edge from an app to itself.
const selfIndex = -1

// instance is one of a node's.
type instance struct {
	source   string
	id       string
	address  netip.AddrPort
	draining bool
	rank     Rank
	since    int64 // catalog.Instance.Since
	zone     zone
}

// cluster is another cluster, known from its object, from its peer, or only from
// the routes that name it.
type cluster struct {
	name    string
	object  *catalog.Cluster
	heard   bool
	lapsed  bool                         // its word does not hold, or it is damped
	damped  bool                         // its word holds, but its lease ran out too often lately
	exports map[*node]struct{}           // apps that the cluster exports to this one
	direct  direct                       // their addresses; empty while it is not on our network
	named   map[*node]map[*node]struct{} // caller to callees whose routes name the cluster
}

// NewGraph makes an empty graph.
func NewGraph(cfg Config) *Graph {
	g := &Graph{
		cfg:      cfg,
		apps:     map[catalog.App]*node{},
		clusters: map[string]*cluster{},
		objects:  map[catalog.Key]catalog.Object{},
		peers:    map[string]*PeerView{},
		shared:   map[string]*catalog.Gateways{},

		owners:  newOwnership(),
		sources: map[string]int{},
		moves:   map[*cluster]*moves{},
		ramps:   ramps{next: never, all: map[rampKey]*ramp{}},
	}
	g.open = &catalog.View{Open: cfg.Open, Gateways: g.gateways(nil), Rule: catalog.ClosedRule}
	if cfg.Open {
		g.open.Rule = catalog.DefaultRule
	}
	g.callers, g.allGateways = &catalog.Callers{}, &catalog.Gateways{Domain: cfg.Domain}
	g.gateway = &catalog.GatewayTable{Domain: cfg.Domain, Kubernetes: cfg.Kubernetes, Cluster: cfg.Cluster}
	g.dirty.reset()
	return g
}

// Revision numbers the newest state that the graph has served.
func (g *Graph) Revision() uint64 { return g.revision }

// Apply takes a change in and returns what it alters, whose revision is higher than
// any before when there is anything. There are two updates, to be published one after
// the other, when an address goes from one app to another: the first has all but the
// address's new place, so that it is gone from the one app before it is with the other.
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
		g.directChanged(p)
	}
	return append(updates, g.flush())
}

// take returns the apps, here and of peers, that have to wait for an address until the rest
// is published.
func (g *Graph) take(c Change) (second []waiting, direct []pair) {
	g.advance(c.Now)
	if c.Objects != nil {
		g.takeObjects(c.Objects)
	}
	for i := range c.Instances {
		g.takeInstances(&c.Instances[i])
	}
	for i := range c.Peers {
		g.takePeer(&c.Peers[i])
	}
	second, direct = g.settle(), g.settleDirect()
	clear(g.owners.served)
	return second, direct
}

func (g *Graph) node(app catalog.App) *node {
	n := g.apps[app]
	if n == nil {
		n = &node{app: app}
		g.apps[app] = n
	}
	return n
}

// present tells whether the app belongs to this cluster: it runs here, or an object
// here is about it.
func (n *node) present() bool {
	return len(n.instances) > 0 || n.selection != nil || n.export != nil
}

// release forgets an app that nothing refers to any more.
func (g *Graph) release(n *node) {
	if !n.present() && len(n.remote) == 0 && len(n.callers) == 0 && g.apps[n.app] == n {
		delete(g.apps, n.app)
	}
}

func (g *Graph) cluster(name string) *cluster {
	c := g.clusters[name]
	if c == nil {
		c = &cluster{name: name, exports: map[*node]struct{}{}, named: map[*node]map[*node]struct{}{}}
		g.clusters[name] = c
	}
	return c
}

func (g *Graph) releaseCluster(c *cluster) {
	if c.object == nil && !c.heard && len(c.exports) == 0 && len(c.named) == 0 {
		delete(g.clusters, c.name)
	}
}

func (n *node) connect(callee *node, index int32) {
	if callee.callers == nil {
		callee.callers = map[*node]int32{}
	}
	callee.callers[n] = index
}

// isHere tells whether a route's cluster is this one.
func (g *Graph) isHere(name string) bool {
	return name == catalog.LocalCluster || name == g.cfg.Cluster
}

// fewGateways are kept for sharing, beside two for each view, whether or not a view has them.
const fewGateways = 64

// gateways is the one value for a set of clusters, sorted, so that views which lead
// to the same clusters share it.
func (g *Graph) gateways(names []string) *catalog.Gateways {
	key := strings.Join(names, ",")
	if have := g.shared[key]; have != nil {
		return have
	}
	if len(g.shared) >= fewGateways+2*g.counts.Views {
		clear(g.shared) // half of them at least are those of no view any more
	}
	made := &catalog.Gateways{Domain: g.cfg.Domain, Addresses: make(map[string][]string, len(names))}
	for _, name := range names {
		if c := g.clusters[name]; c != nil && c.object != nil {
			made.Addresses[name] = c.object.Gateways
		}
	}
	g.shared[key] = made
	return made
}
