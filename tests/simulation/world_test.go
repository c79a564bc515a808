package simulation

import (
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/peering/peeringtest"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// world is all clusters, the network between them, and the truth about them. One goroutine calls
// its methods, except for fail.
type world struct {
	net      *peeringtest.Network
	clusters []*cluster
	down     map[way]bool // paths that lose everything
	mutation mutation
	reached  map[way]time.Time    // when a round trip from a host to a cluster was last possible; under mu
	floors   map[subject]int      // the oldest version of an export that may still be seen
	exports  map[export][]allowed // every version of each export
	claims   map[string][]claim   // every version of what a cluster says of actors
	pods     map[string]*pod      // by address; nil before begin
	fallen   string               // the address of one that was killed; its cluster does not know
	callers  bool                 // paths of services are those of callers, too
	disk     string               // a directory
	maxKnown int                  // bytes of exports that a link names as known; 0 for all

	open atomic.Int64 // rounds of calls

	mu    sync.Mutex
	fault error // the first
	calls []*attempt
	heard map[*sidecar]time.Time // since when each hears its service
}

// way leads from one host to another host, or to a cluster.
type way struct{ from, to string }

// export is an app that a cluster may export.
type export struct {
	cluster string
	app     catalog.App
}

// subject is an export as one replica sees it.
type subject struct {
	host string
	export
}

// cluster is the truth about a cluster, the replicas of its resolver service and its gateways.
type cluster struct {
	world      *world
	name       string
	network    string
	staleAfter time.Duration // in the Cluster objects for it
	objects    *history[catalog.Key, catalog.Object]
	instances  *history[topology.InstanceKey, catalog.Instance]
	replicas   []*replica
	gateways   []*gateway
	sidecars   []*sidecar
	ever       map[placed]bool   // all instances so far
	mute       atomic.Bool       // its exports reach nobody, and renewals of its lease do
	told       map[int]time.Time // when a service of it last went by each version of the objects
	back       int               // the oldest version that a store may go back to
	forth      time.Time         // when none did any more; zero while one may
}

// placed is an app at an address.
type placed struct {
	app     catalog.App
	address string
}

// replica is a place where a cluster's resolver service may run.
type replica struct {
	cluster       *cluster
	host          string
	clock         *clock
	store, source *access
	service       *service // nil while it does not run
	remembered    int      // version of the instances in its last life
}

// gateway is an address that other clusters connect to. It leads to one replica.
type gateway struct {
	cluster  *cluster
	host     string
	target   *replica
	up       bool // it should accept connections
	hollow   bool // it accepts connections and ends them at once
	listener net.Listener
	calls    net.Listener // of callers
	serving  sync.WaitGroup
}

// The clusters, and how many replicas each has.
var (
	clusterNames = []string{"east", "north", "west"}
	replicasOf   = map[string]int{"east": 2, "north": 1, "west": 1}
	networkOf    = map[string]string{"east": "net-2", "north": "net-1", "west": "net-1"}
	apps         = []catalog.App{app("audit"), app("checkout"), app("ledger"), app("orders")}
)

// knowsOne is room for one known export.
const knowsOne = 40

func app(id string) catalog.App { return catalog.App{Namespace: "shop", ID: id} }

const gatewayPort = "15443"

// newWorld makes clusters that know nothing and do not run.
func newWorld(p *plan, m mutation) *world {
	w := &world{
		net: peeringtest.New(p.seed), callers: p.withCalls, maxKnown: int(p.seed%2) * knowsOne, down: map[way]bool{}, mutation: m,
		reached: map[way]time.Time{}, heard: map[*sidecar]time.Time{}, floors: map[subject]int{}, exports: map[export][]allowed{}, claims: map[string][]claim{},
	}
	for _, name := range clusterNames {
		c := &cluster{
			world: w, name: name, network: networkOf[name], staleAfter: p.staleAfter[name],
			objects: newHistory[catalog.Key, catalog.Object](), instances: newHistory[topology.InstanceKey, catalog.Instance](),
			ever: map[placed]bool{}, told: map[int]time.Time{}, back: math.MaxInt, forth: now().Add(-time.Hour),
		}
		for i := range replicasOf[name] {
			host := fmt.Sprintf("%s-%d", name, i)
			r := &replica{cluster: c, host: host, clock: newClock(host), store: newAccess(), source: newAccess()}
			c.replicas = append(c.replicas, r)
			c.gateways = append(c.gateways, &gateway{cluster: c, host: fmt.Sprintf("%s-gw-%d", name, i), target: r, up: true})
		}
		for i, a := range apps {
			host := name + "/" + a.ID
			c.sidecars = append(c.sidecars, &sidecar{cluster: c, app: a, host: host, clock: newClock(host), at: c.replicas[i%len(c.replicas)]})
			w.exports[export{name, a}] = []allowed{nil}
		}
		w.clusters = append(w.clusters, c)
		w.claims[name] = []claim{{}}
	}
	return w
}

// fail records an error; only the first counts.
func (w *world) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fault == nil {
		w.fault = fmt.Errorf(format, args...)
	}
}

func (w *world) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fault
}

func (w *world) cluster(name string) *cluster {
	for _, c := range w.clusters {
		if c.name == name {
			return c
		}
	}
	return nil
}

// each visits every replica.
func (w *world) each(visit func(*replica)) {
	for _, c := range w.clusters {
		for _, r := range c.replicas {
			visit(r)
		}
	}
}

// listen makes a gateway accept connections, if its service runs.
func (g *gateway) listen() {
	if g.listener != nil || g.target.service == nil {
		return
	}
	l, err := g.cluster.world.net.Host(g.host).Listen(gatewayPort)
	if err != nil {
		g.cluster.world.fail("%s: %v", g.host, err)
		return
	}
	g.listener = l
	service := g.target.service
	g.target.clock.do(func() { g.serving.Go(func() { _ = service.grpc.Serve(l) }) })
	if g.calls, err = g.cluster.world.net.Host(g.host).Listen(callsPort); err != nil {
		g.cluster.world.fail("%s: %v", g.host, err)
		return
	}
	calls := g.calls
	g.target.clock.do(func() { g.serving.Go(func() { g.serveCalls(calls, service) }) })
}

// close makes it refuse connections, and resets open ones.
func (g *gateway) close() {
	if g.listener == nil {
		return
	}
	g.cluster.world.net.Host(g.host).Kill()
	_ = g.listener.Close()
	if g.calls != nil {
		_ = g.calls.Close()
	}
	g.serving.Wait()
	g.listener, g.calls, g.hollow = nil, nil, false
}

// hangUp makes it accept connections and end them, like a gateway without a service.
func (g *gateway) hangUp() {
	l, err := g.cluster.world.net.Host(g.host).Listen(gatewayPort)
	if err != nil {
		g.cluster.world.fail("%s: %v", g.host, err)
		return
	}
	g.listener, g.up, g.hollow = l, false, true
	g.serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	})
}

// path changes one direction between hosts.
func (w *world) path(from, to string, p peeringtest.Path) {
	w.down[way{from, to}] = p.Down
	if w.mutation.keepsPaths && p.Down {
		return
	}
	w.net.SetPath(from, to, p)
	if !w.callers {
		return
	}
	w.each(func(r *replica) {
		for _, d := range r.cluster.sidecars {
			if r.host == from {
				w.net.SetPath(d.host, to, p)
			}
			if r.host == to {
				w.net.SetPath(from, d.host, p)
			}
		}
	})
}

// note records which clusters each replica could reach now.
func (w *world) note() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.each(func(r *replica) {
		for _, c := range w.clusters {
			for _, g := range c.gateways {
				if g.listener != nil && !g.hollow && !w.down[way{r.host, g.host}] && !w.down[way{g.host, r.host}] {
					w.reached[way{r.host, c.name}] = time.Now()
				}
			}
		}
	})
}

// pass lets time pass, and checks everything at short intervals.
func (w *world) pass(d time.Duration) {
	slice := max(200*time.Millisecond, d/100)
	for d > 0 && w.failed() == nil {
		w.note()
		time.Sleep(min(d, slice))
		d -= slice
		w.note()
		w.look()
	}
}

// lag has the store of a replica answer data that is some changes old.
func (w *world) lag(r *replica, by int) {
	c := r.cluster
	if r.store.lag(by); by > 0 {
		newest, _, _ := c.objects.newest()
		c.back, c.forth = min(c.back, max(0, newest-by)), time.Time{}
	} else if !slices.ContainsFunc(c.replicas, func(r *replica) bool { return r.store.lags() }) && c.forth.IsZero() {
		c.back, c.forth = math.MaxInt, now()
	}
	for _, d := range c.sidecars {
		d.mu.Lock()
		d.floor = min(d.floor, c.back)
		d.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.calls {
		if a.from.cluster == c {
			a.floor = min(a.floor, c.back)
		}
	}
}

// wentBack tells whether others may see older objects of the cluster than before.
func (c *cluster) wentBack() bool { return c.forth.IsZero() || now().Sub(c.forth) < calmWithin }

// look checks everything against the model once.
func (w *world) look() {
	looks.Add(1)
	w.placePods()
	synctest.Wait()
	w.note()
	for _, d := range w.sidecars() {
		d.look()
		w.mu.Lock()
		w.heard[d] = d.heard
		w.mu.Unlock()
	}
	w.each(func(r *replica) {
		if r.service != nil && r.service.feed.Status().Synced {
			r.cluster.told[r.service.version()] = time.Now()
		}
	})
	w.each(func(r *replica) {
		if r.service != nil && w.failed() == nil {
			w.check(r.service)
		}
	})
}

// sidecars are those that run.
func (w *world) sidecars() (all []*sidecar) {
	for _, c := range w.clusters {
		for _, d := range c.sidecars {
			if d.resolver != nil {
				all = append(all, d)
			}
		}
	}
	return all
}

// begin starts the sidecars, and the pods that are there.
func (w *world) begin(disk string) {
	w.disk, w.pods = disk, map[string]*pod{}
	for _, c := range w.clusters {
		for _, d := range c.sidecars {
			d.start()
		}
	}
}

// end ends everything.
func (w *world) end() {
	for _, d := range w.sidecars() {
		d.stop()
	}
	w.each(func(r *replica) { r.stop(false) })
	for _, p := range w.pods {
		p.kill()
	}
	synctest.Wait()
	if n := w.net.Open(); n > 0 {
		w.fail("left: %d connections are open after the end of all programs", n)
	}
}
