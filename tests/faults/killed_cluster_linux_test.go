package faults

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"
)

// Everything of a cluster ends at once, so its connections are refused. When it runs again it
// gets its traffic back in steps.
func killedCluster(t *testing.T, m *mesh) {
	x := m.newTrial(t, "the whole cluster that all prefer: kill -9", deadline, m.toOrders(), m.toStock())
	x.strike(m.east.kill)
	x.answeredBy("north")
	time.Sleep(max(2*time.Second, time.Until(m.ramps)))
	f := x.done("0 beyond those that instances had begun; 100 ms")
	x.begunOnly(f)
	x.shorter(f, 100*time.Millisecond)

	back := m.newTrial(t, "that cluster comes back", deadline, m.toOrders(), m.toStock())
	back.strike(func() error { return nil })
	m.east.restart(t)
	back.returns(m.east)
}

// holdsFor is how long calls wait for somebody to be there, and leases to end.
const holdsFor = 1500 * time.Millisecond

// Every cluster that has the app is gone for a while. Callers are told so at once, and calls
// go well again as soon as one is back.
func allDead(t *testing.T, m *mesh) {
	lasts := during(10*time.Second, 4*time.Second)
	x := m.newTrial(t, "all clusters dead for "+lasts.String()+", then back", deadline, m.toOrders(), m.toStock())
	x.strike(func() error { return errors.Join(m.east.kill(), m.north.kill()) })
	time.Sleep(lasts)
	dead := of(x.concerned...).begunSince(x.moment.Add(holdsFor))
	m.north.restart(t)
	ready := time.Now()
	m.east.restart(t)
	x.answeredBy("east")
	var first, last call // good ones of a caller
	var after calls
	for _, c := range x.concerned { // each sidecar is sent its view at a moment of its own
		since := of(c).begunSince(x.moment.Add(holdsFor))
		good := since[slices.IndexFunc(since, func(c call) bool { return c.err == nil })]
		after = append(after, since.begunSince(good.ended).failed()...)
		if first.ended.IsZero() || good.ended.Before(first.ended) {
			first = good
		}
		if good.ended.After(last.ended) {
			last = good
		}
	}
	unreasoned := slices.DeleteFunc(dead.failed(), func(c call) bool { return refused.MatchString(c.err.Error()) })
	f := x.done("refused at once with the reason; the first call after is good", fmt.Sprintf("99 of 100 refusals took at most %s; the first good call ended %s after north was ready, and the last caller's %s later",
		tenths(dead.percentile(99)), round(first.ended.Sub(ready)), round(last.ended.Sub(first.ended))))
	x.want(len(dead.failed()) == len(dead), "%d of %d calls were answered with all clusters dead", len(dead)-len(dead.failed()), len(dead))
	x.want(len(unreasoned) == 0, "%d refusals don't say why:\n%s", len(unreasoned), unreasoned.reasons())
	x.want(dead.percentile(99) <= allowed(50*time.Millisecond)+f.noise(), "refusals took up to %s; want them at once", dead.percentile(99))
	x.want(len(after) == 0, "%d calls failed that began after the first good one of their caller:\n%s", len(after), after.reasons())
}

// refused is how callers are told that nobody can answer.
var refused = regexp.MustCompile(`unavailable: no|stale: no|none of its endpoints is connected`)
