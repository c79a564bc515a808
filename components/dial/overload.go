package dial

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc/codes"
)

// A selection with minReady asks for instances that can carry a route's calls. What a caller sees by
// itself counts, too. An instance that is not connected, or ejected, is not ready to it, and a slow
// one only in part. A route is overloaded while more than one in refusedShare of its calls is refused
// for that reason, or calls take overloadFactor times as long as they did. Then the caller sends more
// and more of its calls to the next priority, and takes them back step by step.
const (
	refusedShare   = 20
	overloadFactor = 3
)

// overload is how many calls of a route go elsewhere because it can't carry them.
type overload struct {
	asked   atomic.Bool   // by minReady
	refused atomic.Uint64 // calls
	spill   atomic.Uint32 // how many of spillScale calls go elsewhere

	// The fields below belong to the watcher.
	baseline             float64 // seconds a call takes without overload; 0 if unknown
	lastBegun, lastCount uint64
}

// update compares with the last time. means are the latencies of the route's instances. It returns
// whether the route carries more or fewer calls than before.
func (o *overload) update(route *routeState, means []float64) (changed bool) {
	begun, refused := route.next.Load(), o.refused.Load()
	more := (refused-o.lastCount)*refusedShare > begun-o.lastBegun
	called := begun != o.lastBegun
	o.lastBegun, o.lastCount = begun, refused
	if !o.asked.Load() {
		return o.spill.Swap(0) != 0
	}
	if called && len(means) > 0 {
		mean := median(means)
		if o.baseline == 0 {
			o.baseline = mean
		}
		more = more || mean > overloadFactor*o.baseline && mean > o.baseline+slowMargin
		o.baseline = min(mean, o.baseline+(mean-o.baseline)/baselineWindow)
	}
	spill := o.spill.Load()
	next := nextSpill(spill, more)
	o.spill.Store(next)
	return next != spill
}

// capacity is how much of its due calls a route with candidates can carry, out of 1. An instance that
// is about to be connected is as good as connected. The caller holds the lock.
func (es *endpoints) capacity(u *usableRoute) float64 {
	r := u.route
	u.state.overload.asked.Store(r.MinReady != 0)
	if r.MinReady == 0 {
		return 1
	}
	carrying := 0.0
	hopeful := r.candidates(func(_ *target, key endpointKey) *endpoint {
		if e := es.all[key]; e.usable() || e.connecting() {
			return e
		}
		return nil
	})
	for i := range hopeful {
		carrying += 1 / float64(max(1, hopeful[i].instance.latency.penalty.Load()))
	}
	stays := 1 - float64(u.state.overload.spill.Load())/spillScale
	return stays * r.MinReady.Capacity(float64(r.Ready)*carrying/float64(len(r.targets)), r.Ready+r.Draining)
}

// overloaded says why a route takes less than its share.
func (u *usableRoute) overloaded() string {
	why := fmt.Sprintf("carries %.0f %% of its calls: minReady is %s", 100*u.offer.Capacity, u.route.MinReady)
	if n, of := len(u.candidates), len(u.route.targets); n < of {
		why += fmt.Sprintf(", and %d of %d instances take calls", n, of)
	}
	if u.state.overload.spill.Load() > 0 {
		why += ", and calls are refused there or take much longer than before"
	}
	return why
}

// overloaded tells whether the callee refused a call because it has too many.
func (c *madeCall) overloaded(code codes.Code, err error) bool {
	switch code {
	case codes.OK:
		return !c.refused.Load() && slices.Contains([]int32{http.StatusTooManyRequests, http.StatusServiceUnavailable}, c.status.Load())
	case codes.ResourceExhausted: // which gRPC also says of a message that is too long
		return !strings.Contains(err.Error(), "larger than max")
	}
	return code == codes.Unavailable
}
