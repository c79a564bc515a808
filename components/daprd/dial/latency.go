package dial

import (
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// pace is how long calls take at an instance: a mean in which what is older counts less. It
// forgets while there are no calls, so that one that was slow is tried again.
type latency struct {
	mean     atomic.Uint64 // float64 of seconds
	lastCall atomic.Int64  // since began
	penalty  atomic.Uint32 // calls count so many times; 0 stands for 1
}

const latencyHalfLife = 5 * time.Second

// took notes a call that took so long. Two at a time may lose one of them, which does no
// harm.
func (l *latency) observe(now, d time.Duration) {
	old, last := l.seconds(), time.Duration(l.lastCall.Load())
	share := 0.1
	if d.Seconds() > old {
		share = 0.3 // what has become slow is to be known within a call or two
		if last != 0 {
			d = min(d, time.Duration(maxSampleFactor*old*float64(time.Second))) // streams last long
		}
	}
	if idle := now - last; last == 0 || idle > 0 {
		share = max(share, 1-math.Exp2(-float64(idle)/float64(latencyHalfLife)))
	}
	if last == 0 {
		share = 1
	}
	l.lastCall.Store(int64(now))
	l.mean.Store(math.Float64bits(old + share*(d.Seconds()-old)))
}

// forget is for a new connection.
func (l *latency) reset() {
	l.mean.Store(0)
	l.lastCall.Store(0)
	l.penalty.Store(0)
}

// seconds is the mean as it was after the last call.
func (l *latency) seconds() float64 { return math.Float64frombits(l.mean.Load()) }

// now is the mean as it counts at a moment; ok is false where nothing is known.
func (l *latency) current(at time.Duration) (seconds float64, ok bool) {
	last := time.Duration(l.lastCall.Load())
	if last == 0 {
		return 0, false
	}
	idle := max(0, at-last)
	return l.seconds() * math.Exp2(-float64(idle)/float64(latencyHalfLife)), true
}

const (
	// slowFactor is how many times longer than at most others calls have to take somewhere
	// before that counts, and slowLeast by how much at least, in seconds.
	slowFactor = 5
	slowMargin = 0.005
	maxPenalty = 1000
	// mostSlower is how many times longer than the mean a call counts at most.
	maxSampleFactor = 100
)

// weigh compares the points of each route by how long calls take there. What most take is
// the measure: a point that is quick because it fails is not one that others are slow
// beside.
func updatePenalties(conns []*conn) {
	ways := map[*routeState][]*endpoint{}
	for _, c := range conns {
		ways[c.endpoint.route] = append(ways[c.endpoint.route], c.endpoint)
	}
	now := time.Since(processStart)
	for spread, points := range ways {
		spread.updateSpill(points, now)
		var means []float64
		for _, p := range points {
			if mean, ok := p.latency.current(now); ok {
				means = append(means, mean)
			}
		}
		slices.Sort(means)
		for _, p := range points {
			mean, ok := p.latency.current(now)
			var penalty uint32
			if ok && len(means) > 2 {
				if middle := means[len(means)/2]; mean > slowFactor*middle && mean > middle+slowMargin {
					penalty = uint32(min(mean/max(middle, 1e-6), maxPenalty))
				}
			}
			p.latency.penalty.Store(penalty)
		}
	}
}
