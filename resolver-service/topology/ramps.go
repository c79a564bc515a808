package topology

import (
	"math"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Traffic comes back in steps to a route that is ready again while others serve, so that
// what has just started is not overrun. A ramp is that of an app in a cluster, from its
// first ready instance on, or of all that a cluster exports, once its lease is renewed
// after it ran out.

// rampSteps are the percentages of a ramp, each for as long as the others.
var rampSteps = [...]uint8{10, 25, 50, 75}

// rampKey names what ramps: an app in another cluster, all of a cluster where node is
// nil, or an app in this cluster where cluster is empty.
type rampKey struct {
	cluster string
	node    *node
}

type ramp struct {
	began   time.Duration // as Change.Now
	over    time.Duration
	percent uint8
}

// step is the percentage at a time, and when the next begins; 0 when it is over.
func (r *ramp) step(now time.Duration) (percent uint8, next time.Duration) {
	for i, percent := range rampSteps {
		next := r.began + r.over*time.Duration(i+1)/time.Duration(len(rampSteps))
		if next = (next + stepGrain - 1) / stepGrain * stepGrain; now < next {
			return percent, next
		}
	}
	return 0, never
}

// stepGrain is what the times of steps are rounded up to, so that apps which came back one
// after the other step together.
const stepGrain = 50 * time.Millisecond

// never is a time that does not come.
const never = time.Duration(math.MaxInt64)

// ramps are those under way.
type ramps struct {
	*nodes
	settled bool // what comes to be ready is no longer what was there all along
	now     time.Duration
	next    time.Duration // when the first of them steps
	all     map[rampKey]*ramp
}

// Settle says that all sources have had the time to tell what runs. Before that, no ramp
// begins: a service that has just started must not hold back traffic that flowed all
// along.
func (g *Graph) Settle() { g.ramps.settled = true }

// NextStep is when the next step of a ramp is due, a cluster should have answered, or peers are to be
// told more, as Change.Now; ok is false while none is under way.
func (g *Graph) NextStep() (at time.Duration, ok bool) {
	at = min(g.ramps.next, g.interests.next, g.exports.telling.next)
	return at, at != never
}

// advance takes the steps that are due.
func (rs *ramps) advance(now time.Duration) {
	rs.now = max(rs.now, now)
	if rs.now < rs.next {
		return
	}
	first := never
	for key, r := range rs.all {
		percent, next := r.step(rs.now)
		first = min(first, next)
		if percent == r.percent {
			continue
		}
		if r.percent = percent; percent == 0 {
			delete(rs.all, key)
		}
		rs.dirtyRamp(key)
	}
	rs.next = first
}

func (rs *ramps) dirtyRamp(key rampKey) {
	if key.node == nil {
		if c := rs.clusters[key.cluster]; c != nil {
			rs.dirtyCluster(c)
		}
		return
	}
	for caller := range key.node.callers {
		rs.dirty.entry(caller, key.node)
	}
}

// begin starts a ramp. The caller marks what it reaches.
func (rs *ramps) begin(key rampKey, over time.Duration) {
	if !rs.settled || over <= 0 {
		return
	}
	r := &ramp{began: rs.now, over: over}
	percent, next := r.step(rs.now)
	if percent == 0 {
		return
	}
	r.percent = percent
	rs.all[key] = r
	rs.next = min(rs.next, next)
}

// breakOff ends the ramps of a cluster whose word holds no more: there is nothing to
// bring traffic back to.
func (rs *ramps) breakOff(c *cluster) {
	for key := range rs.all {
		if key.cluster == c.name {
			delete(rs.all, key)
		}
	}
}

// percent is what an app's route through a cluster takes for now; 0 stands for all. A
// selection that goes on with what a cluster said last (whenStale: serve) has not left
// it when its lease ran out, so that there is nothing to bring back.
func (rs *ramps) percent(cluster string, n *node, serve bool) uint8 {
	if len(rs.all) == 0 {
		return 0
	}
	least := uint8(0)
	take := func(key rampKey) {
		if r := rs.all[key]; r != nil && (least == 0 || r.percent < least) {
			least = r.percent
		}
	}
	take(rampKey{cluster, n})
	if cluster != "" && !serve {
		take(rampKey{cluster, nil})
	}
	return least
}

// servedElsewhere tells whether an app is ready in any place but one; the empty name is
// this cluster's.
func (rs *ramps) servedElsewhere(n *node, but string) bool {
	if but != "" && len(n.ready) > 0 {
		return true
	}
	for i := range n.remote {
		export := &n.remote[i]
		if c := rs.clusters[export.cluster]; export.cluster != but && export.ready() > 0 && c.object != nil && c.guest() == nil && c.heard && !c.lapsed {
			return true
		}
	}
	return false
}

// localRamp follows the app in this cluster, which had ready instances before or not.
func (rs *ramps) localRamp(n *node, before bool) {
	key := rampKey{node: n}
	switch ready := len(n.ready) > 0; {
	case !ready:
		delete(rs.all, key)
	case !before && n.served && rs.servedElsewhere(n, ""):
		rs.begin(key, catalog.DefaultRampUp)
	}
	n.served = n.served || len(n.ready) > 0
}

// remoteRamp follows the app in another cluster.
func (rs *ramps) remoteRamp(c *cluster, n *node, old, next *PeerExport) {
	key := rampKey{c.name, n}
	switch {
	case next == nil || next.Ready == 0 || next.Named:
		delete(rs.all, key)
	case old != nil && old.Ready == 0 && !old.Named && c.object != nil && c.heard && !c.lapsed && rs.servedElsewhere(n, c.name):
		rs.begin(key, c.object.RampUp)
	}
}
