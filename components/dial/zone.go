package dial

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
)

// Calls to an app with instances in the caller's zone stay there while those can carry them.
// Nobody says how much an instance can carry, and no caller knows the other callers. So each
// caller goes by latency. While calls take zoneSlowFactor times as long as elsewhere, it spills
// more and more calls to other zones. Without spilled calls it compares with the latency before.
// Otherwise it takes them back step by step. Together the callers of a zone load it to that point.
//
// A burst is quicker than that. If the next instance has zoneBurst calls under way, the call goes
// to an instance elsewhere with less than half as much to do.
const (
	zoneBurst      = 16
	zoneSlowFactor = 2
	// zoneBusyCalls is how many calls each instance of the zone has under way before a caller
	// without any latency to compare with tries other zones.
	zoneBusyCalls = 4
	// spillScale stands for all calls. Even at maxSpill enough calls stay to notice that the zone
	// has recovered.
	spillScale = 1 << 10
	maxSpill   = spillScale - spillScale/32
	// baselineWindow is in how many comparisons a lasting change becomes the baseline.
	baselineWindow = 512
)

// zoneSplit decides which calls of a route leave the caller's zone.
type zoneSplit struct {
	spill    atomic.Uint32 // how many of spillScale calls leave the zone
	baseline float64       // seconds a call takes without spill, 0 if unknown; belongs to the watcher
}

// leave returns an instance elsewhere if the call should leave the zone, or nil.
func (z *zoneSplit) leave(inZone *candidate, elsewhere []candidate, next uint32) *candidate {
	spill := z.spill.Load()
	leaves := spill > 0 && rand.Uint32N(spillScale) < spill
	if !leaves && inZone.calls() < zoneBurst {
		return nil
	}
	if other := lessLoaded(elsewhere, next); leaves || 2*other.cost() < inZone.cost() {
		return other
	}
	return nil
}

// update sets how many calls leave the zone, by the latency of a route's instances.
func (z *zoneSplit) update(endpoints []*endpoint, now time.Duration) {
	var near, far []float64 // latencies
	var inZone, outOfZone, calls int
	for _, e := range endpoints {
		mean, known := e.instance.latency.recent(now)
		if e.outOfZone.Load() {
			if outOfZone++; known {
				far = append(far, mean)
			}
			continue
		}
		inZone++
		calls += int(e.calls.Load())
		if known {
			near = append(near, mean)
		}
	}
	if inZone == 0 || outOfZone == 0 {
		z.spill.Store(0)
		return
	}
	slow, spill := false, z.spill.Load()
	switch {
	case len(near) == 0 || calls == 0:
	case len(far) > 0:
		slow = isSlower(median(near), median(far))
	case z.baseline > 0:
		slow = isSlower(median(near), z.baseline)
	default:
		slow = calls > zoneBusyCalls*inZone
	}
	switch {
	case slow || spill > 0:
		z.spill.Store(nextSpill(spill, slow))
	case len(near) > 0:
		mean := median(near)
		if z.baseline == 0 {
			z.baseline = mean
		}
		z.baseline = min(mean, z.baseline+(mean-z.baseline)/baselineWindow)
	}
}

// nextSpill is more by a quarter of what stays, or less by a little.
func nextSpill(spill uint32, more bool) uint32 {
	if more {
		return min(spill+(spillScale-spill)/4, maxSpill)
	}
	return spill - min(spill, spillScale/32)
}

func isSlower(mean, than float64) bool { return mean > zoneSlowFactor*than && mean > than+slowMargin }

func median(means []float64) float64 {
	slices.Sort(means)
	return means[(len(means)-1)/2]
}
