package dial

import "time"

// A route that was unusable for rampAfter takes its calls back in steps of rampStep.
const (
	rampAfter = time.Second
	rampStep  = 500 * time.Millisecond
)

// returnRamp brings calls back to a route in steps: instances that have just failed should not
// get all calls at once.
type returnRamp struct {
	wasUsable     bool // once, at least
	unusableSince time.Time
	usableSince   time.Time // after it was unusable
}

// percent returns how much of its calls the route takes now. It calls wakeBy with the time of the
// next step.
func (r *returnRamp) percent(usable bool, now time.Time, wakeBy func(time.Time)) uint64 {
	switch {
	case !usable:
		if r.wasUsable && r.unusableSince.IsZero() {
			r.unusableSince = now
		}
		return 100
	case !r.unusableSince.IsZero():
		if now.Sub(r.unusableSince) >= rampAfter {
			r.usableSince = now
		}
		r.unusableSince = time.Time{}
	}
	r.wasUsable = true
	for step, percent := range []uint64{10, 25, 50, 75} {
		if ends := r.usableSince.Add(time.Duration(step+1) * rampStep); now.Before(ends) {
			wakeBy(ends)
			return percent
		}
	}
	return 100
}
