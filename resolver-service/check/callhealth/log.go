package callhealth

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
)

// Bounds of the log. A reporting app fills only its own room, whatever names it makes up.
const (
	maxWays    = 20_000 // in all
	maxAppWays = 64     // with a name, of one reporting app
	maxReport  = 100    // entries of one kind in a report
	maxWhy     = 256    // bytes
)

// The log of a way covers the last minute. Whether its calls go well by now is told by its newest
// slots, which a report of each sidecar falls into.
const (
	slotTime  = 5 * time.Second
	slots     = 12
	lateSlots = 3
)

// source tells who has seen the calls of a way.
type source uint8

const (
	byLookup source = iota // the caller's lookup, which refused them
	byGuard                // the callee's guard, which refused them
	byCall                 // the caller's sidecar, which made them
)

// way is a caller's way to a callee. All for which the reporting app has no room are one way
// without a callee or, by its guard, without a caller.
type way struct {
	source        source
	caller        catalog.App
	callerCluster string // "local", another one, or empty where that is not known
	callee        catalog.App
	cluster       string // that the calls went to
}

// tally counts calls by how they ended.
type tally struct{ refused, failed, slow, fine uint64 }

func (t *tally) bad() uint64 { return t.refused + t.failed + t.slow }

func (t *tally) add(o tally) {
	t.refused, t.failed, t.slow, t.fine = t.refused+o.refused, t.failed+o.failed, t.slow+o.slow, t.fine+o.fine
}

// record is what is known of a way that had calls which did not end well.
type record struct {
	window  [slots]tally
	slot    int64  // the number of the newest
	waiting uint64 // as of the newest report

	since   time.Time // of the first that did not end well, with no minute without one since
	last    time.Time // of the newest
	fineAt  time.Time // of the newest that did
	settled bool      // calls would end well, as of the newest look
	outcome string    // of the newest: a lookup's, or a gRPC code
	why     string    // what the sidecar says of it
}

// turn makes the window that of now.
func (r *record) turn(now time.Time) {
	slot := now.UnixNano() / int64(slotTime)
	for range min(max(0, slot-r.slot), slots) {
		r.slot++
		r.window[r.slot%slots] = tally{}
	}
	r.slot = slot
}

// isNew tells whether an entry with failures begins another fault than the one before.
func (r *record) isNew(e *entry, now time.Time) bool {
	return now.Sub(r.last) > time.Minute || r.settled || r.fineAt.After(r.last) && now.Sub(r.last) > settledFor || e.source == byLookup && e.outcome != r.outcome
}

// settle notes that the calls of a way would end well by now.
func (l *log) settle(app catalog.App, w way) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.apps[app][w]; r != nil {
		r.settled = true
	}
}

// sum is what the newest slots have.
func (r *record) sum(newest int64) (all tally) {
	for slot := r.slot; slot > r.slot-newest; slot-- {
		all.add(r.window[slot%slots])
	}
	return all
}

// log has the records by the app that reported them.
type log struct {
	mu      sync.Mutex
	apps    map[catalog.App]map[way]*record
	count   int
	checked time.Time // when room was last made
}

// entry is one of a report.
type entry struct {
	way
	tally
	waiting      uint64
	outcome, why string
}

// report takes in what a sidecar of an app reports. Its error says that the report breaks the rules.
func (l *log) report(app catalog.App, m *v1alpha1.CallReport, now time.Time) error {
	if n := max(len(m.GetRefusedLookups()), len(m.GetMade())); n > maxReport {
		return fmt.Errorf("%d entries; at most %d are taken", n, maxReport)
	}
	entries, err := entriesOf(app, m)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range entries {
		l.add(app, &entries[i], now)
	}
	return nil
}

// entriesOf reads a report.
func entriesOf(app catalog.App, m *v1alpha1.CallReport) (all []entry, err error) {
	parse := func(m *v1alpha1.App) (callee catalog.App) {
		if m != nil && err == nil {
			callee, err = wire.ParseApp(m)
		}
		return callee
	}
	for _, r := range m.GetRefusedLookups() {
		if o, err := catalog.ParseOutcome(r.GetOutcome()); err == nil && o != catalog.OK {
			all = append(all, entry{
				way: way{source: byLookup, caller: app, callerCluster: catalog.LocalCluster, callee: parse(r.GetCallee())}, tally: tally{refused: r.GetCount()}, outcome: o.String(),
			})
		}
	}
	for _, c := range m.GetMade() {
		counts, err := traffic.FromWire(c.GetTraffic())
		if err != nil {
			return nil, fmt.Errorf("made: %w", err)
		}
		e := entry{
			way:   way{source: byCall, caller: app, callerCluster: catalog.LocalCluster, callee: parse(c.GetCallee()), cluster: c.GetCluster()},
			tally: tallyOf(&counts), waiting: c.GetWaiting(), outcome: shown(c.GetCode()), why: shown(c.GetWhy()),
		}
		if e.cluster != "" && catalog.CheckCluster(e.cluster) != nil {
			return nil, fmt.Errorf("made: %w", catalog.CheckCluster(e.cluster))
		}
		all = append(all, e)
	}
	for _, c := range m.GetCalls() {
		e := entry{
			way:   way{source: byGuard, caller: catalog.App{Namespace: c.GetCaller().GetNamespace(), ID: c.GetCaller().GetId()}, callee: app, cluster: catalog.LocalCluster},
			tally: tally{refused: c.GetRefused() + c.GetNotReady(), fine: c.GetLetIn() + c.GetObserved()}, outcome: catalog.Denied.String(),
		}
		switch {
		case c.GetRefused() == 0:
			e.outcome = catalog.NotReady.String()
		case c.GetRelayed() == c.GetRefused():
			e.why = passedOn
		}
		if cluster := c.GetCluster(); cluster == catalog.LocalCluster || catalog.CheckCluster(cluster) == nil {
			e.callerCluster = cluster
		}
		all = append(all, e)
	}
	return all, err
}

// tallyOf sums up how calls ended. Those that were cancelled at once say nothing.
func tallyOf(c *traffic.Counts) (t tally) {
	for end, n := range c.Ends {
		switch end := traffic.End(end); {
		case end == traffic.Late, end == traffic.GivenUp:
			t.slow += n
		case end.Good():
			t.fine += n
		case end.Counted():
			t.failed += n
		}
	}
	return t
}

// shown is a text of a sidecar as operators may see it.
func shown(s string) string { return catalog.Printable(s[:min(len(s), maxWhy)]) }

// add takes in an entry. A way that calls go well on gets no record; mu is held.
func (l *log) add(app catalog.App, e *entry, now time.Time) {
	if e.source == byCall && e.cluster != "" {
		l.addFine(app, e, now)
	}
	r := l.apps[app][e.way]
	if r == nil {
		if e.bad()+e.waiting == 0 {
			return
		}
		if r = l.room(app, e, now); r == nil {
			return
		}
	}
	r.turn(now)
	if e.bad()+e.waiting > 0 {
		if r.isNew(e, now) {
			r.since, r.settled, r.window = now, false, [slots]tally{}
		}
		r.last, r.outcome, r.why = now, cmp.Or(e.outcome, r.outcome), cmp.Or(e.why, r.why)
		if e.source == byGuard {
			r.why = e.why // each report tells it
		}
	}
	if e.fine > 0 {
		r.fineAt = now
	}
	r.waiting = e.waiting
	r.window[r.slot%slots].add(e.tally)
}

// addFine has the calls that ended well count beside those that found nothing connected, in whichever
// cluster; mu is held.
func (l *log) addFine(app catalog.App, e *entry, now time.Time) {
	w := e.way
	w.cluster = ""
	if r := l.apps[app][w]; r != nil && e.fine > 0 {
		r.turn(now)
		r.fineAt = now
		r.window[r.slot%slots].fine += e.fine
	}
}

// room makes a record for an entry, or finds the one without a name; nil if there is no room at all.
func (l *log) room(app catalog.App, e *entry, now time.Time) *record {
	if (len(l.apps[app]) >= maxAppWays || l.count >= maxWays) && now.Sub(l.checked) > time.Second {
		l.checked = now
		l.forget(now)
	}
	w := e.way
	if len(l.apps[app]) >= maxAppWays { // one for each source is without a name
		if w.source == byGuard {
			w.caller, w.callerCluster = catalog.App{}, ""
		} else {
			w.callee, w.cluster = catalog.App{}, ""
		}
	}
	if r := l.apps[app][w]; r != nil {
		return r
	}
	if l.count >= maxWays {
		return nil
	}
	if l.apps == nil {
		l.apps = map[catalog.App]map[way]*record{}
	}
	if l.apps[app] == nil {
		l.apps[app] = map[way]*record{}
	}
	r := &record{slot: now.UnixNano() / int64(slotTime)}
	l.apps[app][w] = r
	l.count++
	return r
}

// forget drops the records without anything in the last minute; mu is held.
func (l *log) forget(now time.Time) {
	for app, ways := range l.apps {
		maps.DeleteFunc(ways, func(_ way, r *record) bool {
			old := now.Sub(r.last) > time.Minute
			if old {
				l.count--
			}
			return old
		})
		if len(ways) == 0 {
			delete(l.apps, app)
		}
	}
}

// seen is a way whose calls did not end well lately, with its last minute.
type seen struct {
	way
	tally
	record
	lately tally
}

// level is that of so many bad calls of a minute: they fail also where most do since a moment ago.
func level(bad, of, lately, ofLately uint64) string {
	if bad*failShare >= of || lately > 0 && lately*failShare >= ofLately {
		return Fail
	}
	return warn
}

// settledFor is how long a way must have had no failure, and calls that end well, to count as well
// again. Sidecars report every 5 s, each by itself.
const settledFor = 12 * time.Second

// current returns the ways whose calls do not end well, those with the most failures first.
func (l *log) current(now time.Time) (all []seen) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(now)
	for _, ways := range l.apps {
		for w, r := range ways {
			r.turn(now)
			if now.Sub(r.last) > settledFor {
				r.waiting = 0 // its sidecar says so no more
			}
			if now.Sub(r.last) <= settledFor || !r.fineAt.After(r.last) {
				all = append(all, seen{w, r.sum(slots), *r, r.sum(lateSlots)})
			}
		}
	}
	slices.SortFunc(all, func(a, b seen) int {
		return cmp.Or(cmp.Compare(b.bad()+b.waiting, a.bad()+a.waiting), a.caller.Compare(b.caller), a.callee.Compare(b.callee), cmp.Compare(a.cluster, b.cluster), int(a.source)-int(b.source))
	})
	return all
}
