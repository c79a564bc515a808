package dial

import (
	"math"
	"sync/atomic"
	"time"
)

// latency is how long calls to an instance take: a mean in which older calls count less. It
// decays while there are no calls, so that a slow instance is tried again.
type latency struct {
	mean     atomic.Uint64 // float64, seconds
	lastCall atomic.Int64  // when the last call ended, since processStart
	penalty  atomic.Uint32 // a call counts as so many; 0 stands for 1
}

const (
	latencyHalfLife = 5 * time.Second
	// maxSampleFactor limits a single call to so many times the mean: streams last long.
	maxSampleFactor = 100
	// recentFor is how old the last call may be for the mean to say how the instance is now.
	recentFor = 2 * time.Second
)

// The share of the mean that one call replaces.
const (
	quickWeight = 0.1
	slowWeight  = 0.3 // one or two calls suffice to detect a slow instance
	trialWeight = 0.5 // an instance with a penalty has few calls, so each says more
)

// observe records a call that ended now. Of two concurrent calls one may be lost, which does no
// harm.
func (l *latency) observe(now, took time.Duration) {
	old, last := l.seconds(), time.Duration(l.lastCall.Load())
	weight := quickWeight
	switch {
	case took.Seconds() > old:
		weight = slowWeight
		if last != 0 {
			took = min(took, time.Duration(maxSampleFactor*old*float64(time.Second)))
		}
	case l.penalized():
		weight = trialWeight
	}
	if idle := now - last; last == 0 || idle > 0 {
		weight = max(weight, 1-math.Exp2(-float64(idle)/float64(latencyHalfLife)))
	}
	if last == 0 {
		weight = 1
	}
	l.lastCall.Store(int64(now))
	l.mean.Store(math.Float64bits(old + weight*(took.Seconds()-old)))
}

// reset forgets everything, as a new connection may lead to a new process.
func (l *latency) reset() {
	l.mean.Store(0)
	l.lastCall.Store(0)
	l.penalty.Store(0)
}

// seconds is the mean as of the last call.
func (l *latency) seconds() float64 { return math.Float64frombits(l.mean.Load()) }

// penalized reports whether the instance is slow beside the others of its route.
func (l *latency) penalized() bool { return l.penalty.Load() > 1 }

// current is the mean with its decay; ok is false without any call.
func (l *latency) current(now time.Duration) (seconds float64, ok bool) {
	last := time.Duration(l.lastCall.Load())
	if last == 0 {
		return 0, false
	}
	idle := max(0, now-last)
	return l.seconds() * math.Exp2(-float64(idle)/float64(latencyHalfLife)), true
}

// recent is the mean of an instance that had a call within recentFor.
func (l *latency) recent(now time.Duration) (seconds float64, ok bool) {
	last := time.Duration(l.lastCall.Load())
	return l.seconds(), last != 0 && now-last < recentFor
}
