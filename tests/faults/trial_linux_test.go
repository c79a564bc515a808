package faults

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// trial is one fault, made while callers call.
type trial struct {
	t         *testing.T
	lab       *lab
	fault     string
	load      *load
	concerned []*caller // who the fault is about; they call one app
	others    []*caller // who it must not touch: they tell how busy this machine is
	moment    time.Time // of the fault
	ends      []span    // each the time in which something came to its end
	figures   figures
	wrongs    []string // what was not as it is to be; see mesh.make
	void      bool     // it was made again, and does not count
}

// warmUp is how long callers call before the fault.
const warmUp = time.Second

// newTrial has all callers call.
func (l *lab) newTrial(t *testing.T, fault string, deadline time.Duration, concerned, others []*caller) *trial {
	t.Helper()
	x := &trial{t: t, lab: l, fault: fault, concerned: concerned, others: others}
	l.trials = append(l.trials, x)
	x.load = startLoad(t, fmt.Sprintf("trial-%d", len(l.trials)), patient(deadline), append(append([]*caller{}, concerned...), others...)...)
	time.Sleep(warmUp)
	return x
}

// settle finds out what was lost, once nothing is under way any more: what a link held
// back may reach an app after all when the link is back.
func (l *lab) settle() {
	for _, x := range l.trials {
		for _, made := range of(x.load.callers...) {
			had := l.had(made.method).Count
			if made.err != nil && had > 0 {
				x.figures.lost++
			}
			x.figures.repeated += max(0, had-1)
			if most := mostRuns[made.kind]; had > most {
				x.t.Errorf("%s: an instance had the call %s (%s) %d times, want %d at most; it took %s and ended with %v",
					x.fault, made.method, made.kind, had, most, round(made.ended.Sub(made.begun)), made.err)
			}
		}
		if x.figures.calls > 0 && !x.void { // else it did not come to its end
			measured.add(x.figures)
		}
	}
}

// mostRuns is how often a call runs at most: where it was cut off, once more. daprd alone
// runs a call by its HTTP API up to four times, and one by gRPC once.
var mostRuns = map[kind]int{get: 2, post: 2, proxied: 1}

// strike makes the fault.
func (x *trial) strike(what func() error) {
	x.t.Helper()
	x.moment = time.Now()
	x.end(what)
}

// span is a time in which a process ended, or several.
type span struct{ from, to time.Time }

// end does something by which processes come to their end.
func (x *trial) end(what func() error) {
	x.t.Helper()
	from := time.Now()
	if err := what(); err != nil {
		x.t.Fatal(err)
	}
	x.ends = append(x.ends, span{from, time.Now()})
}

// onItsWay is how long the end of a connection takes to reach the caller.
const onItsWay = 10 * time.Millisecond

// begunOnly wants nothing to have failed but calls by gRPC that an instance had begun when it
// ended, by its own count, or that were on their way to it: nobody can tell these from the
// others, and what may have begun is not repeated.
func (x *trial) begunOnly(f figures) {
	var others calls
	for _, c := range of(x.concerned...).failed() {
		had := x.lab.had(c.method)
		if c.kind != proxied || !slices.ContainsFunc(x.ends, func(s span) bool {
			begun := had.Count > 0 && had.First.Before(s.to) && c.ended.After(s.from)
			return begun || had.Count == 0 && c.ended.After(s.from) && c.begun.Before(s.to.Add(onItsWay+f.noise()))
		}) {
			others = append(others, c)
		}
	}
	x.want(len(others) == 0, "%d of the %d calls that failed had not begun at an instance that ended; the last of them began %s after the fault:\n%s",
		len(others), f.failed, round(others.lastBegun(x.moment)), others.reasons())
}

// drained wants nothing to have failed but calls by gRPC that a gateway cut off at the end of
// its drain, those under way of each caller at each gateway: what may have begun is not repeated.
// That is one at a time, and as many more as come while the machine stands still.
func (x *trial) drained(gateways int) {
	failed := of(x.concerned...).failed()
	others := slices.DeleteFunc(slices.Clone(failed), func(c call) bool { return c.kind == proxied })
	x.want(len(others) == 0, "%d calls by HTTP failed:\n%s", len(others), others.reasons())
	most := len(x.concerned) * gateways * (1 + x.begunWhileStill())
	x.want(len(failed) <= most, "%d calls by gRPC failed, want %d at most:\n%s", len(failed), most, failed.reasons())
}

// disturbing is how long everything was without an answer where that can have been the machine:
// callers leave what is silent for twice that.
const disturbing = 150 * time.Millisecond

// begunWhileStill is how many calls a caller begins while the machine stands still: 0 where it
// does so for no longer than callers bear with what is silent.
func (x *trial) begunWhileStill() int {
	if x.figures.still < disturbing {
		return 0
	}
	return int(x.figures.still / pace)
}

// gap is the longest that one of the callers was without an answer since the fault, and which
// one that was when.
func (x *trial) gap(callers []*caller) (longest time.Duration, where string) {
	for _, c := range callers {
		if lasted, from := of(c).gap(x.moment); lasted > longest {
			longest, where = lasted, fmt.Sprintf("%s, from %s after the fault", c.from.Name(), round(from.Sub(x.moment)))
		}
	}
	return longest, where
}

// answeredBy waits until the concerned are answered by a cluster alone, each at least for
// half a second.
func (x *trial) answeredBy(cluster string) {
	x.t.Helper()
	x.answeredInARow(cluster, int(500*time.Millisecond/pace))
}

func (x *trial) answeredInARow(cluster string, row int) {
	x.t.Helper()
	meshtest.Eventually(x.t, damped, func() error {
		for _, c := range x.concerned {
			all := of(c)
			if len(all) < row {
				return fmt.Errorf("%s has made %d calls", c.from.Name(), len(all))
			}
			last := all[len(all)-row:]
			if got := last.by(false); got[cluster] != row {
				return fmt.Errorf("the last %d calls of %s to %s: %v answered, want all by %s; %d failed:\n%s", row, c.from.Name(), c.to, got, cluster, len(last.failed()), last.reasons())
			}
		}
		return nil
	})
}

// done ends the calls, prints what came of them and adds that to the table.
func (x *trial) done(limit string, notes ...string) figures {
	x.t.Helper()
	x.load.end()
	all := of(x.concerned...)
	f := figures{fault: x.fault, calls: len(all), failed: len(all.failed()), limit: limit}
	var where string
	f.gap, where = x.gap(x.concerned)
	f.still, _ = x.gap(x.others)
	if f.failed > 0 {
		notes = append(notes, fmt.Sprintf("the last call that failed began %s after the fault", round(all.failed().lastBegun(x.moment))))
	}
	for i, note := range notes {
		if i > 0 {
			f.notes += "; "
		}
		f.notes += note
	}
	x.figures = f
	x.t.Logf("%s: %d calls, %d failed, longest gap %s (%s; of callers that it does not concern %s); answered by %v; %s",
		x.fault, f.calls, f.failed, round(f.gap), where, round(f.still), all.by(true), f.notes)
	if f.failed > 0 {
		x.t.Logf("why calls failed:\n%s", all.reasons())
	}
	other := of(x.others...).failed()
	x.want(len(other) == 0, "%d calls failed that the fault does not concern:\n%s", len(other), other.reasons())
	return f
}

// exact is whether faults are held to what docs/reference/figures/failover.md says of them.
var exact = flag.Bool("exact", false, "hold each fault to its limit; otherwise to ten times that or 5 s more, since a machine can be slow and busy")

// allowed is how long something may take that has a limit.
func allowed(limit time.Duration) time.Duration {
	if *exact {
		return limit
	}
	return limit + min(9*limit, mostAllowance)
}

// mostAllowance is how much longer something may take at most where limits are not held
// exactly: so much that a lease which does not run out is still found.
const mostAllowance = 5 * time.Second

// patient is when a call counts as failed, or ten times that where limits are not held
// exactly: the machine may stand still for so long.
func patient(deadline time.Duration) time.Duration {
	if *exact {
		return deadline
	}
	return 10 * deadline
}

// during is how long a fault lasts, or less than that where limits are not held exactly.
func during(lasts, less time.Duration) time.Duration {
	if *exact {
		return lasts
	}
	return less
}

// want notes what is wrong where something does not hold. mesh.make decides what follows.
func (x *trial) want(holds bool, format string, args ...any) {
	if !holds {
		x.wrongs = append(x.wrongs, x.fault+": "+fmt.Sprintf(format, args...))
	}
}

// shorter holds the gap to its limit.
func (x *trial) shorter(f figures, limit time.Duration) {
	x.want(f.gap <= allowed(limit)+f.noise(), "%s without an answer; want at most %s and what the machine did, %s", round(f.gap), allowed(limit), round(f.noise()))
}

// noise is what the machine added to a gap. One that is busy with other things makes everybody
// wait, so it is what callers whom the fault does not concern were without an answer beyond
// what they always are; twice, since they are fewer and may have been luckier.
func (f figures) noise() time.Duration { return 2 * max(0, f.still-pace-takes) }

// noLaterThan wants no call to fail that begins so long after the fault or later.
func (x *trial) noLaterThan(f figures, limit time.Duration) {
	last := of(x.concerned...).failed().lastBegun(x.moment)
	x.want(last <= allowed(limit)+f.noise(), "a call that began %s after the fault failed; want none to after %s", round(last), allowed(limit))
}

// callers make callers of sidecars to an app.
func callers(to string, from ...*sandbox.Sidecar) []*caller {
	all := make([]*caller, len(from))
	for i, s := range from {
		all[i] = calling(s, to)
	}
	return all
}
