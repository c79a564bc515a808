package faults

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// returns waits until a cluster that is preferred has all traffic again, and wants it to have
// come back in steps and without a failed call.
func (x *trial) returns(c *cluster) {
	x.t.Helper()
	x.answeredInARow(c.name, int(2*time.Second/pace))
	shares := of(x.concerned...).share(c.name, x.moment, time.Second)
	f := x.done("no failed call; a ramp", fmt.Sprintf("share of %s by second: %s %%", c.name, strings.Trim(fmt.Sprint(shares), "[]")))
	x.want(f.failed == 0, "%d calls failed", f.failed)
	begun := slices.IndexFunc(shares, func(s int) bool { return s > 0 })
	full := slices.IndexFunc(shares, func(s int) bool { return s >= 99 })
	// The seconds are ours and not those of the ramp, so it can look two shorter.
	least := int(rampUp/time.Second) - 2
	x.want(full-begun >= least, "traffic came back to %s in %d s, want a ramp of %s: %v %%", c.name, full-begun, rampUp, shares)
}
