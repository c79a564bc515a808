package dial

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
)

// Calls to an app that has instances in the caller's zone stay there while those carry them.
// What an instance can carry nobody says, and no caller knows the others. So each goes by
// how long calls take: while that is more than slowZone times what it is elsewhere or, where
// none leave, than it was before, more and more calls leave; then fewer and fewer. So all
// callers of a zone together load it up to there.
//
// A burst is quicker than that: with zoneCalls under way at the instance that would have the
// next, it goes elsewhere, to an instance with less than half as much to do.
const (
	zoneBurst      = 16
	zoneSlowFactor = 2
	// zoneBusy is how many calls each instance of the zone has under way before a caller that
	// does not know how long they take otherwise has a look elsewhere.
	zoneBusyCalls = 4
	// wholeShare is all calls; of so many few enough stay in any case to know when the zone
	// is well again.
	spillScale = 1 << 10
	maxSpill   = spillScale - spillScale/32
	// lately is how old the last call at an instance may be for what is known to count.
	recentFor = 2 * time.Second
	// usualAfter is in how many comparisons a lasting change becomes usual.
	baselineWindow = 512
)

const (
	// goneFor is how long a route takes no calls before it takes them back in steps, each of
	// which lasts for returnStep.
	rampAfter = time.Second
	rampStep  = 500 * time.Millisecond
)

// spread shares the calls to one cluster out among its instances.
type routeState struct {
	next     atomic.Uint32
	spill    atomic.Uint32 // how many of wholeShare leave the caller's zone
	baseline float64       // seconds that calls take in the zone while none leave; of the watch, 0 when not known

	// Of balancing.mu.
	wasUsable                  bool      // the route took calls once
	unusableSince, usableSince time.Time // since when it takes none, and since when it takes them again
}

// returns says what a route takes by now, in percent, where its instances take calls or don't.
// One that has taken none for a while takes its calls back in steps: what has just failed is
// not to have them all at once.
func (s *routeState) rampPercent(takes bool, now time.Time, by func(time.Time)) (percent uint64) {
	switch {
	case !takes:
		if s.wasUsable && s.unusableSince.IsZero() {
			s.unusableSince = now
		}
		return 100
	case !s.unusableSince.IsZero():
		if now.Sub(s.unusableSince) >= rampAfter {
			s.usableSince = now
		}
		s.unusableSince = time.Time{}
	}
	s.wasUsable = true
	for step, percent := range []uint64{10, 25, 50, 75} {
		if ends := s.usableSince.Add(time.Duration(step+1) * rampStep); now.Before(ends) {
			by(ends)
			return percent
		}
	}
	return 100
}

// choose has a call stay with an instance of the caller's zone, or leave for one elsewhere.
func (s *routeState) pickZone(near *candidate, elsewhere []candidate, turn uint32) *candidate {
	away := s.spill.Load()
	leaves := away > 0 && rand.Uint32N(spillScale) < away
	if !leaves && near.calls() < zoneBurst {
		return near
	}
	if far := lessLoaded(elsewhere, turn); leaves || 2*far.cost() < near.cost() {
		return far
	}
	return near
}

// weigh sets how many calls leave the zone, by how long they take at these points.
func (s *routeState) updateSpill(points []*endpoint, now time.Duration) {
	var near, far []float64
	var instances, elsewhere, calls int
	for _, p := range points {
		mean, known := p.latency.recent(now)
		if p.outOfZone.Load() {
			if elsewhere++; known {
				far = append(far, mean)
			}
			continue
		}
		instances++
		calls += int(p.calls.Load())
		if known {
			near = append(near, mean)
		}
	}
	if instances == 0 || elsewhere == 0 {
		s.spill.Store(0)
		return
	}
	slow, away := false, s.spill.Load()
	switch {
	case len(near) == 0 || calls == 0:
	case len(far) > 0:
		slow = isSlower(median(near), median(far))
	case s.baseline > 0:
		slow = isSlower(median(near), s.baseline)
	default:
		slow = calls > zoneBusyCalls*instances
	}
	switch {
	case slow:
		s.spill.Store(min(away+(spillScale-away)/4, maxSpill))
	case away > 0:
		s.spill.Store(away - min(away, spillScale/32))
	case len(near) > 0:
		mean := median(near)
		if s.baseline == 0 {
			s.baseline = mean
		}
		s.baseline = min(mean, s.baseline+(mean-s.baseline)/baselineWindow)
	}
}

func isSlower(mean, than float64) bool { return mean > zoneSlowFactor*than && mean > than+slowMargin }

func median(means []float64) float64 {
	slices.Sort(means)
	return means[(len(means)-1)/2]
}

// lately is the mean at a point that had a call lately.
func (l *latency) recent(now time.Duration) (seconds float64, ok bool) {
	last := time.Duration(l.lastCall.Load())
	return l.seconds(), last != 0 && now-last < recentFor
}
