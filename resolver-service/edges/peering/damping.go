package peering

import (
	"math"
	"time"
)

// Damping follows RFC 2439: each lapse of a lease adds a penalty, which decays by half in each
// half-life. A peer above the limit is not used until its lease has been steady for a while.
const (
	lapsePenalty    = 1000
	suppressAbove   = 2500
	reuseBelow      = 1000
	penaltyHalfLife = 30 * time.Second
	maxSuppress     = 2 * time.Minute // after the latest lapse
)

// maxPenalty decays to reuseBelow within maxSuppress.
var maxPenalty = reuseBelow * math.Exp2(float64(maxSuppress)/float64(penaltyHalfLife))

// damping is the penalty of one peer. Times are monotonic.
type damping struct {
	penalty    float64
	since      time.Time // when the penalty was computed
	suppressed bool
}

// lapse adds the penalty of one lapse.
func (d *damping) lapse(now time.Time) {
	d.penalty, d.since = min(d.current(now)+lapsePenalty, maxPenalty), now
	d.suppressed = d.suppressed || d.penalty > suppressAbove
}

func (d *damping) current(now time.Time) float64 {
	return d.penalty * math.Exp2(-float64(now.Sub(d.since))/float64(penaltyHalfLife))
}

// until is when damping ends; zero while there is none.
func (d *damping) until() time.Time {
	if !d.suppressed {
		return time.Time{}
	}
	return d.since.Add(time.Duration(math.Log2(d.penalty/reuseBelow) * float64(penaltyHalfLife)))
}

// release ends damping once its time is over.
func (d *damping) release(now time.Time) {
	if d.suppressed && !now.Before(d.until()) {
		d.suppressed = false
	}
}
