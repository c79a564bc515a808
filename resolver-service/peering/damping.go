package peering

import (
	"math"
	"time"
)

// Damping, after RFC 2439: each lapse of a lease costs so much, and half of what it
// costs is forgotten after a half-life. Who comes and goes too often is not relied on
// until it has been steady for a while.
const (
	lapsePenalty    = 1000
	suppressAbove   = 2500
	reuseBelow      = 1000
	penaltyHalfLife = 30 * time.Second
	maxSuppress     = 2 * time.Minute // after the latest lapse
)

// maxPenalty has decayed to reuseBelow after maxSuppress.
var maxPenalty = reuseBelow * math.Exp2(float64(maxSuppress)/float64(penaltyHalfLife))

// damping is the penalty of one peer. Times are monotonic.
type damping struct {
	penalty    float64
	since      time.Time // when it was so much
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

// until is when the peer is relied on again; the zero time while it is.
func (d *damping) until() time.Time {
	if !d.suppressed {
		return time.Time{}
	}
	return d.since.Add(time.Duration(math.Log2(d.penalty/reuseBelow) * float64(penaltyHalfLife)))
}

// release ends damping when it is time.
func (d *damping) release(now time.Time) {
	if d.suppressed && !now.Before(d.until()) {
		d.suppressed = false
	}
}
