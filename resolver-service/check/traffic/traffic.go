// Package traffic keeps what sidecars tell of calls: fifteen minutes by ten seconds, and a day by
// five minutes.
package traffic

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
)

// Bounds of the history. Store.Lost counts the calls that there is no room for.
const (
	maxEdges    = 20_000 // in all
	maxAppEdges = 1000   // that sidecars of one app tell of
	maxReport   = 400    // entries of one kind in a report
)

// Times of the history.
const (
	Short     = 10 * time.Second
	shortKept = 15 * time.Minute
	long      = 5 * time.Minute
	Kept      = 24 * time.Hour
)

// Edge is a caller and a callee, and the cluster that calls go to.
type Edge struct {
	Caller        catalog.App // zero: callers that no certificate names
	CallerCluster string      // empty where that is not known
	Callee        catalog.App
	Cluster       string // empty where nothing was connected, or the lookup was refused
	ByCallee      bool   // told by the callee's guard
}

// Store keeps the traffic of the sidecars of one replica. Its methods may be called from any
// goroutine.
type Store struct {
	cluster string
	started time.Time
	totals  totals

	mu    sync.Mutex
	apps  map[catalog.App]map[Edge]*history // by the app whose sidecars tell of them
	count int                               // of edges
	lost  uint64                            // calls of edges that there was no room for
	swept int64                             // the slot of the last sweep
}

// New returns an empty store of a cluster.
func New(cluster string, now time.Time) *Store {
	s := &Store{cluster: cluster, started: now, apps: map[catalog.App]map[Edge]*history{}}
	s.totals.Most = maxMetricEdges
	return s
}

// Cluster is the cluster of the sidecars.
func (s *Store) Cluster() string { return s.cluster }

// Report takes in what a sidecar of an app tells, up to maxReport entries of one kind.
func (s *Store) Report(app catalog.App, sidecar uint64, m *v1alpha1.CallReport, now time.Time) error {
	if n := max(len(m.GetMade()), len(m.GetCalls()), len(m.GetRefusedLookups())); n > maxReport {
		return fmt.Errorf("%d entries; at most %d are taken", n, maxReport)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range m.GetMade() {
		callee, err := wire.ParseApp(c.GetCallee())
		if err != nil {
			return fmt.Errorf("made: %w", err)
		}
		counts, err := traffic.FromWire(c.GetTraffic())
		if err != nil {
			return fmt.Errorf("made: %w", err)
		}
		if c.GetCluster() != "" {
			if err := catalog.CheckCluster(c.GetCluster()); err != nil {
				return fmt.Errorf("made: %w", err)
			}
		}
		exemplars, err := traffic.ExemplarsFromWire(c.GetTraffic(), now)
		if err != nil {
			return fmt.Errorf("made: %w", err)
		}
		e := Edge{Caller: app, CallerCluster: s.cluster, Callee: callee, Cluster: c.GetCluster()}
		if r := s.add(app, e, &counts, &exemplars, now); r != nil {
			r.setUnderWay(sidecar, c.GetUnderWay(), now)
		}
	}
	for _, l := range m.GetRefusedLookups() {
		if l.GetCallee() == nil {
			continue
		}
		callee, err := wire.ParseApp(l.GetCallee())
		if err != nil {
			return fmt.Errorf("refused lookups: %w", err)
		}
		var counts traffic.Counts
		counts.Ends[traffic.Refused] = traffic.Told(l.GetCount())
		s.add(app, Edge{Caller: app, CallerCluster: s.cluster, Callee: callee}, &counts, &traffic.Exemplars{}, now)
	}
	for _, c := range m.GetCalls() {
		counts, err := traffic.FromWire(c.GetTraffic())
		if err != nil {
			return fmt.Errorf("calls: %w", err)
		}
		exemplars, err := traffic.ExemplarsFromWire(c.GetTraffic(), now)
		if err != nil {
			return fmt.Errorf("calls: %w", err)
		}
		counts.Ends[traffic.Refused] += traffic.Told(c.GetRefused()) + traffic.Told(c.GetNotReady())
		caller := catalog.App{}
		if c.GetCaller() != nil {
			if caller, err = wire.ParseApp(c.GetCaller()); err != nil {
				return fmt.Errorf("calls: %w", err)
			}
		}
		from := c.GetCluster()
		if from == catalog.LocalCluster {
			from = s.cluster
		} else if catalog.CheckCluster(from) != nil {
			from = ""
		}
		e := Edge{Caller: caller, CallerCluster: from, Callee: app, Cluster: s.cluster, ByCallee: true}
		s.add(app, e, &counts, &exemplars, now)
	}
	return nil
}

// add adds calls that an app's sidecar tells of. It returns their history; nil where there is no room.
// mu is held.
func (s *Store) add(by catalog.App, e Edge, counts *traffic.Counts, exemplars *traffic.Exemplars, now time.Time) *history {
	r, named := s.of(by, e, counts, now), otherEdge
	if r != nil {
		r.add(counts, now)
		if r.named {
			named = e
		}
	}
	s.totals.add(named, counts, exemplars, now)
	return r
}

// of returns the history of an edge; nil where there is no room. mu is held.
func (s *Store) of(by catalog.App, e Edge, counts *traffic.Counts, now time.Time) *history {
	if r := s.apps[by][e]; r != nil {
		return r
	}
	full := func() bool { return s.count >= maxEdges || len(s.apps[by]) >= maxAppEdges }
	if full() {
		s.sweep(now)
	}
	if full() {
		s.lost += counts.All()
		return nil
	}
	if s.apps[by] == nil {
		s.apps[by] = map[Edge]*history{}
	}
	r := &history{last: now, long: slots{coarse: true}, named: len(s.apps[by]) < maxAppMetricEdges}
	s.apps[by][e] = r
	s.count++
	return r
}

// sweep forgets edges without a call in all the time that is kept, once in a while. mu is held.
func (s *Store) sweep(now time.Time) {
	slot := slotOf(now, long)
	if s.swept == slot {
		return
	}
	s.swept = slot
	for app, edges := range s.apps {
		for e, r := range edges {
			if now.Sub(r.last) > Kept {
				delete(edges, e)
				s.count--
			}
		}
		if len(edges) == 0 {
			delete(s.apps, app)
		}
	}
}

// Gone forgets what a sidecar that has ended had under way.
func (s *Store) Gone(app catalog.App, sidecar uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.apps[app] {
		delete(r.underWay, sidecar)
	}
}

// Query limits the calls of [Store.Own].
type Query struct {
	Window time.Duration   // before now, at most Kept
	Step   time.Duration   // 0: none
	Wants  func(Edge) bool // nil: all
}

// Traffic is the calls of an edge in the time that was asked for.
type Traffic struct {
	Edge
	traffic.Counts
	UnderWay uint64
	Steps    []traffic.Counts // the oldest first
}

// Part is the calls that one replica knows, in no particular order. Among them are those that sidecars
// of both ends tell of, and edges of callers without calls in that time: [Together] needs them.
type Part struct {
	Edges    []Traffic
	From, To time.Time
	Whole    time.Time // since when it knows all calls: no earlier than From
}

// Whole is since when all calls of the parts are known.
func Whole(parts ...Part) (since time.Time) {
	for i := range parts {
		since = later(since, parts[i].Whole)
	}
	return since
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Own returns the calls that this replica knows of in a time before now. That is whole slots: sidecars
// tell of their calls every five seconds, so the newest slot is not complete. Parts of one query that
// end at one moment have the same steps, but for those before a replica started.
func (s *Store) Own(q Query, now time.Time) (p Part) {
	size := Short
	if q.Window > shortKept {
		size = long
	}
	p.To = now.Truncate(Short)
	p.From = p.To.Add(-min(max(q.Window, size), Kept)).Truncate(size)
	if q.Step > 0 {
		q.Step = max(q.Step, size).Truncate(Short)
	}
	if started := s.started.Truncate(Short); p.From.Before(started) && p.To.After(started) {
		p.From = p.From.Add(started.Sub(p.From).Truncate(max(q.Step, Short)))
	}
	p.Whole = later(p.From, s.started)
	steps := 0
	if q.Step > 0 {
		steps = int((p.To.Sub(p.From) + q.Step - 1) / q.Step)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, edges := range s.apps {
		for e, r := range edges {
			if q.Wants != nil && !q.Wants(e) {
				continue
			}
			t := Traffic{Edge: e}
			if !r.last.Before(p.From) {
				t.UnderWay, t.Steps = r.allUnderWay(now), make([]traffic.Counts, steps)
				r.read(p.From, p.To, size, func(at time.Time, c *traffic.Counts) {
					t.Counts.Add(c)
					if steps > 0 {
						t.Steps[max(0, min(steps-1, int(at.Sub(p.From)/q.Step)))].Add(c)
					}
				})
			}
			if t.All() > 0 || t.UnderWay > 0 || !e.ByCallee && e.Cluster == s.cluster {
				p.Edges = append(p.Edges, t)
			}
		}
	}
	return p
}

// Together returns the edges with calls in the parts of all replicas of a cluster, those with the
// most first, and the time that they are about. Counts of one edge add up: each sidecar has told
// one replica of a call. Of two that tell of the same calls, the caller's sidecar counts.
func Together(cluster string, parts ...Part) (all []Traffic, from, to time.Time) {
	at := map[Edge]*Traffic{}
	for _, p := range parts {
		if from.IsZero() || p.From.Before(from) {
			from = p.From
		}
		if p.To.After(to) {
			to = p.To
		}
		for i := range p.Edges {
			t := &p.Edges[i]
			sum := at[t.Edge]
			if sum == nil {
				at[t.Edge] = t
				continue
			}
			sum.Counts.Add(&t.Counts)
			sum.UnderWay += t.UnderWay
			few, many := sum.Steps, t.Steps
			if len(few) > len(many) {
				few, many = many, few
			}
			for i := range few {
				many[len(many)-len(few)+i].Add(&few[i])
			}
			sum.Steps = many
		}
	}
	steps := 0
	for _, t := range at {
		steps = max(steps, len(t.Steps))
	}
	for e, t := range at {
		if e.ByCallee && e.CallerCluster == cluster {
			e.ByCallee = false
			if at[e] != nil {
				continue
			}
		}
		if t.All() == 0 && t.UnderWay == 0 {
			continue
		}
		t.Steps = append(make([]traffic.Counts, steps-len(t.Steps)), t.Steps...)
		all = append(all, *t)
	}
	slices.SortFunc(all, func(a, b Traffic) int {
		return cmp.Or(cmp.Compare(b.Calls(), a.Calls()), a.Caller.Compare(b.Caller), a.Callee.Compare(b.Callee), cmp.Compare(a.CallerCluster, b.CallerCluster), cmp.Compare(a.Cluster, b.Cluster))
	})
	return all, from, to
}

// Went is how many calls of a caller went to each cluster in the last whole slot.
func (s *Store) Went(caller, callee catalog.App, now time.Time) map[string]uint64 {
	to := map[string]uint64{}
	for _, t := range s.Own(Query{Window: Short, Wants: func(e Edge) bool {
		return e.Caller == caller && e.Callee == callee && !e.ByCallee && e.Cluster != ""
	}}, now).Edges {
		to[t.Cluster] += t.Calls()
	}
	return to
}

// Traffic returns the calls of a cluster with one replica.
func (s *Store) Traffic(q Query, now time.Time) (all []Traffic, from, to time.Time) {
	return Together(s.cluster, s.Own(q, now))
}

// Lost is how many calls were of edges that there was no room for.
func (s *Store) Lost() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}
