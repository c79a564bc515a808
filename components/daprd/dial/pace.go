package dial

import (
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// pace is how long calls take at an instance: a mean in which what is older counts less. It
// forgets while there are no calls, so that one that was slow is tried again.
type pace struct {
	mean    atomic.Uint64 // float64 of seconds
	last    atomic.Int64  // since began
	penalty atomic.Uint32 // calls count so many times; 0 stands for 1
}

const paceHalf = 5 * time.Second

// took notes a call that took so long. Two at a time may lose one of them, which does no
// harm.
func (p *pace) took(now, d time.Duration) {
	old, last := p.seconds(), time.Duration(p.last.Load())
	share := 0.1
	if d.Seconds() > old {
		share = 0.3 // what has become slow is to be known within a call or two
		if last != 0 {
			d = min(d, time.Duration(mostSlower*old*float64(time.Second))) // streams last long
		}
	}
	if idle := now - last; last == 0 || idle > 0 {
		share = max(share, 1-math.Exp2(-float64(idle)/float64(paceHalf)))
	}
	if last == 0 {
		share = 1
	}
	p.last.Store(int64(now))
	p.mean.Store(math.Float64bits(old + share*(d.Seconds()-old)))
}

// forget is for a new connection.
func (p *pace) forget() {
	p.mean.Store(0)
	p.last.Store(0)
	p.penalty.Store(0)
}

// seconds is the mean as it was after the last call.
func (p *pace) seconds() float64 { return math.Float64frombits(p.mean.Load()) }

// now is the mean as it counts at a moment; ok is false where nothing is known.
func (p *pace) now(at time.Duration) (seconds float64, ok bool) {
	last := time.Duration(p.last.Load())
	if last == 0 {
		return 0, false
	}
	idle := max(0, at-last)
	return p.seconds() * math.Exp2(-float64(idle)/float64(paceHalf)), true
}

const (
	// slowFactor is how many times longer than at most others calls have to take somewhere
	// before that counts, and slowLeast by how much at least, in seconds.
	slowFactor = 5
	slowLeast  = 0.005
	mostSlow   = 1000
	// mostSlower is how many times longer than the mean a call counts at most.
	mostSlower = 100
)

// weigh compares the points of each route by how long calls take there. What most take is
// the measure: a point that is quick because it fails is not one that others are slow
// beside.
func weigh(conns []*conn) {
	ways := map[*spread][]*point{}
	for _, c := range conns {
		ways[c.point.spread] = append(ways[c.point.spread], c.point)
	}
	now := time.Since(began)
	for spread, points := range ways {
		spread.weigh(points, now)
		var means []float64
		for _, p := range points {
			if mean, ok := p.pace.now(now); ok {
				means = append(means, mean)
			}
		}
		slices.Sort(means)
		for _, p := range points {
			mean, ok := p.pace.now(now)
			var penalty uint32
			if ok && len(means) > 2 {
				if middle := means[len(means)/2]; mean > slowFactor*middle && mean > middle+slowLeast {
					penalty = uint32(min(mean/max(middle, 1e-6), mostSlow))
				}
			}
			p.pace.penalty.Store(penalty)
		}
	}
}
