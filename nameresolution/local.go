package nameresolution

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// firstWait is how long the first lookup of an app waits for the local resolver while there
// is another route. mDNS mostly answers within 120 ms.
const firstWait = 250 * time.Millisecond

// questions bounds how many apps the local resolver is asked for at one time.
const questions = 32

// locals completes the view of a sidecar without a service: in place of the routes that the
// config store's view leaves to the local resolver, it serves what that finds. What it finds,
// and what is found dead, is a change of the view like any other.
type locals struct {
	r        *Resolver
	ctx      context.Context // of the searches
	resolver LocalResolver
	connect  func(ctx context.Context, address string) error
	slots    chan struct{} // one for each question under way

	searches atomic.Pointer[catalog.Table[*search]]

	mu       sync.Mutex // of what follows, of storing searches, and of their results
	base     *catalog.View
	view     *catalog.View // base with what was found, as served; nil before the first
	revision uint64
	ended    bool
}

func newLocals(ctx context.Context, r *Resolver, resolver LocalResolver) *locals {
	l := &locals{r: r, ctx: ctx, resolver: resolver, connect: r.connect, slots: make(chan struct{}, questions)}
	if l.connect == nil {
		l.connect = connect
	}
	l.searches.Store(&catalog.Table[*search]{})
	return l
}

// connect tells whether something accepts connections at an address.
func connect(ctx context.Context, address string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// end has no search begin any more.
func (l *locals) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}

// rebase serves another view of the config store, and returns it with its revision.
func (l *locals) rebase(base *catalog.View) *catalog.View {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.revision = max(l.revision, base.Revision)
	l.base = base
	l.publish()
	return base.Renumbered(l.revision)
}

// publish serves the view as it stands. It wants the lock.
func (l *locals) publish() {
	if l.base == nil {
		return
	}
	l.revision++
	next := l.base.Renumbered(l.revision)
	var edits []catalog.Edit[*catalog.Entry]
	for app, s := range l.searches.Load().All() {
		if entry := l.entry(app, s); entry != nil {
			edits = append(edits, catalog.Edit[*catalog.Entry]{App: app, Value: entry})
		}
	}
	next.Entries = next.Entries.With(edits...)
	if l.view != nil {
		next.Entries = next.Entries.With(goOn(&l.view.Entries, &next.Entries)...)
	}
	l.view = next
	l.r.serve(next)
}

// goOn has each entry that is new go on where the one before was, and returns those that
// are as before.
func goOn(before, now *catalog.Table[*catalog.Entry]) (same []catalog.Edit[*catalog.Entry]) {
	for app, entry := range now.All() {
		old, ok := before.Get(app)
		switch {
		case !ok || old == entry:
		case old.Same(entry):
			same = append(same, catalog.Edit[*catalog.Entry]{App: app, Value: old})
		default:
			entry.Follow(old.Plan)
		}
	}
	return same
}

// entry is that of an app with what a search has found; nil where base is to stand.
func (l *locals) entry(name catalog.App, s *search) *catalog.Entry {
	base, open := l.left(name)
	if base == nil || !s.known || open && len(s.places) == 0 {
		return nil
	}
	routes := slices.Clone(base.Routes)
	for i := range routes {
		if r := &routes[i]; r.State == catalog.Delegated {
			found := catalog.LocalRoute(s.usable(base.Outcome() != catalog.OK), 0)
			found.RouteSpec = r.RouteSpec
			*r = found
		}
	}
	return &catalog.Entry{Plan: catalog.NewPlan(base.App, routes), Rule: base.Rule, Own: base.Own}
}

// left is the entry of an app that is left to the local resolver, as the config store has
// it: nil if none is. open is set for one that only the local resolver may know.
func (l *locals) left(app catalog.App) (entry *catalog.Entry, open bool) {
	entry, ok := l.base.Entries.Get(app)
	switch {
	case ok && delegated(entry) != nil:
		return entry, false
	case !ok && l.base.Open:
		return catalog.NewEntry(app, catalog.Rule{}, []catalog.Route{
			{RouteSpec: catalog.RouteSpec{Cluster: l.r.cluster, Weight: catalog.DefaultWeight}, Local: true, State: catalog.Delegated},
		}), true
	}
	return nil, false
}

// delegated is the route of an entry that is left to the local resolver; nil if none is.
func delegated(entry *catalog.Entry) *catalog.Route {
	for i := range entry.Routes {
		if r := &entry.Routes[i]; r.State == catalog.Delegated && r.Weight > 0 {
			return r
		}
	}
	return nil
}

// has tells whether a view has all that a lookup needs, and notes that an app is in use.
func (l *locals) has(view *catalog.View, app catalog.App) bool {
	entry, ok := view.Entries.Get(app)
	if !ok {
		return !view.Open
	}
	if s, ok := l.searches.Load().Get(app); ok {
		s.use()
	}
	return delegated(entry) == nil
}

// await returns the view for the lookup of an app that the local resolver may have to be
// asked for. It begins the search for it, and waits for the first answer if it must.
func (l *locals) await(ctx context.Context, app catalog.App) *catalog.View {
	l.mu.Lock()
	entry, _ := l.left(app)
	if entry == nil || l.ended {
		defer l.mu.Unlock()
		return l.view
	}
	s, ok := l.searches.Load().Get(app)
	if !ok {
		s = l.begin(app)
	}
	s.use()
	l.mu.Unlock()

	var enough <-chan time.Time
	if address, other := entry.Pick(); address != "" {
		wait := firstWait
		if other.Priority < delegated(entry).Priority {
			wait = 0
		}
		timer := time.NewTimer(wait)
		defer timer.Stop()
		enough = timer.C
	}
	select {
	case <-s.answered:
	case <-ctx.Done():
	case <-enough:
		l.mu.Lock()
		if !s.known {
			l.know(s)
		}
		l.mu.Unlock()
	}
	view, _ := l.r.served.Load()
	return view
}

// failed notes that an address does not answer.
func (l *locals) failed(app catalog.App, address string) {
	s, ok := l.searches.Load().Get(app)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := s.place(address); p != nil && p.fail(time.Now()) {
		l.r.log.Info("an instance in this cluster does not answer; calls go elsewhere if they can until it does",
			"app", app.String(), "address", address)
		l.publish()
	}
}

// why is what the local resolver said of an app that can't be called, to end a sentence.
func (l *locals) why(app catalog.App) string {
	s, ok := l.searches.Load().Get(app)
	if !ok {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return "; " + s.String()
}

// explain adds what the local resolver said to a decision.
func (l *locals) explain(d *catalog.Decision, app catalog.App) {
	why := l.why(app)
	if why == "" || d.Outcome == catalog.Denied {
		return
	}
	if d.Outcome != catalog.OK {
		d.Reason += why
	}
	for i := range d.Routes {
		if r := &d.Routes[i]; r.Cluster == l.r.cluster {
			r.Reason += why
		}
	}
}
