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
	zoneCalls = 16
	slowZone  = 2
	// zoneBusy is how many calls each instance of the zone has under way before a caller that
	// does not know how long they take otherwise has a look elsewhere.
	zoneBusy = 4
	// wholeShare is all calls; of so many few enough stay in any case to know when the zone
	// is well again.
	wholeShare = 1 << 10
	mostAway   = wholeShare - wholeShare/32
	// lately is how old the last call at an instance may be for what is known to count.
	lately = 2 * time.Second
	// usualAfter is in how many comparisons a lasting change becomes usual.
	usualAfter = 512
)

const (
	// goneFor is how long a route takes no calls before it takes them back in steps, each of
	// which lasts for returnStep.
	goneFor    = time.Second
	returnStep = 500 * time.Millisecond
)

// spread shares the calls to one cluster out among its instances.
type spread struct {
	turn  atomic.Uint32
	away  atomic.Uint32 // how many of wholeShare leave the caller's zone
	usual float64       // seconds that calls take in the zone while none leave; of the watch, 0 when not known

	// Of balancing.mu.
	taken      bool      // the route took calls once
	gone, back time.Time // since when it takes none, and since when it takes them again
}

// returns says what a route takes by now, in percent, where its instances take calls or don't.
// One that has taken none for a while takes its calls back in steps: what has just failed is
// not to have them all at once.
func (s *spread) returns(takes bool, now time.Time, by func(time.Time)) (percent uint64) {
	switch {
	case !takes:
		if s.taken && s.gone.IsZero() {
			s.gone = now
		}
		return 100
	case !s.gone.IsZero():
		if now.Sub(s.gone) >= goneFor {
			s.back = now
		}
		s.gone = time.Time{}
	}
	s.taken = true
	for step, percent := range []uint64{10, 25, 50, 75} {
		if ends := s.back.Add(time.Duration(step+1) * returnStep); now.Before(ends) {
			by(ends)
			return percent
		}
	}
	return 100
}

// choose has a call stay with an instance of the caller's zone, or leave for one elsewhere.
func (s *spread) choose(near *instance, elsewhere []instance, turn uint32) *instance {
	away := s.away.Load()
	leaves := away > 0 && rand.Uint32N(wholeShare) < away
	if !leaves && near.calls() < zoneCalls {
		return near
	}
	if far := lesser(elsewhere, turn); leaves || 2*far.cost() < near.cost() {
		return far
	}
	return near
}

// weigh sets how many calls leave the zone, by how long they take at these points.
func (s *spread) weigh(points []*point, now time.Duration) {
	var near, far []float64
	var instances, elsewhere, calls int
	for _, p := range points {
		mean, known := p.pace.lately(now)
		if p.far.Load() {
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
		s.away.Store(0)
		return
	}
	slow, away := false, s.away.Load()
	switch {
	case len(near) == 0 || calls == 0:
	case len(far) > 0:
		slow = slower(middle(near), middle(far))
	case s.usual > 0:
		slow = slower(middle(near), s.usual)
	default:
		slow = calls > zoneBusy*instances
	}
	switch {
	case slow:
		s.away.Store(min(away+(wholeShare-away)/4, mostAway))
	case away > 0:
		s.away.Store(away - min(away, wholeShare/32))
	case len(near) > 0:
		mean := middle(near)
		if s.usual == 0 {
			s.usual = mean
		}
		s.usual = min(mean, s.usual+(mean-s.usual)/usualAfter)
	}
}

func slower(mean, than float64) bool { return mean > slowZone*than && mean > than+slowLeast }

func middle(means []float64) float64 {
	slices.Sort(means)
	return means[(len(means)-1)/2]
}

// lately is the mean at a point that had a call lately.
func (p *pace) lately(now time.Duration) (seconds float64, ok bool) {
	last := time.Duration(p.last.Load())
	return p.seconds(), last != 0 && now-last < lately
}
