package stream

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// Bounds of the calls that are remembered, and of one report.
const (
	maxCallRecords  = 200_000 // in all
	maxCallersOfApp = 5000
	maxCallReport   = 400
)

// CallRecord is the calls of one caller to one app, as the callee's sidecars have told this
// replica since it started.
type CallRecord struct {
	Caller catalog.Principal // zero: callers that no certificate names, or that there was no room for
	Own    bool              // its trust domain is that of the callee's cluster
	Count  pb.CallCount      // only the numbers
	micros uint64            // that the app took
	Last   time.Time         // when it was told
}

// callLog has the records by callee and caller.
type callLog struct {
	mu      sync.Mutex
	callees map[catalog.App]map[catalog.Principal]*CallRecord
	count   int
}

// add adds the calls that a sidecar of an app reports. What there is no room for counts as by
// callers without a name.
func (l *callLog) add(callee catalog.App, now time.Time, m *pb.CallReport) error {
	if len(m.GetCalls()) > maxCallReport {
		return fmt.Errorf("%d callers; at most %d are taken", len(m.GetCalls()), maxCallReport)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.callees == nil {
		l.callees = map[catalog.App]map[catalog.Principal]*CallRecord{}
	}
	callers := l.callees[callee]
	if callers == nil {
		callers = map[catalog.Principal]*CallRecord{}
		l.callees[callee] = callers
	}
	for i, c := range m.GetCalls() {
		who := catalog.Principal{}
		if c.GetCaller() != nil {
			app, err := wire.ParseApp(c.GetCaller())
			if err != nil || len(c.GetDomain()) > maxInstanceID {
				return fmt.Errorf("calls[%d]: no app of a trust domain: %w", i, err)
			}
			who = catalog.Principal{Domain: c.GetDomain(), App: app}
		}
		r := callers[who]
		if r == nil && (len(callers) >= maxCallersOfApp || l.count >= maxCallRecords) {
			who = catalog.Principal{}
			r = callers[who]
		}
		if r == nil {
			r = &CallRecord{Caller: who}
			callers[who] = r
			l.count++
		}
		r.Own = c.GetOwnDomain() || c.GetCluster() == catalog.LocalCluster // as older sidecars tell it
		r.Count.LetIn += c.GetLetIn()
		r.Count.Observed += c.GetObserved()
		r.Count.Refused += c.GetRefused()
		r.Count.NotReady += c.GetNotReady()
		r.micros += c.GetTraffic().GetMicros()
		r.Last = now
	}
	return nil
}

// Calls returns the records of an app, in no particular order.
func (s *Server) Calls(callee catalog.App) []*CallRecord {
	l := &s.calls
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*CallRecord, 0, len(l.callees[callee]))
	for _, r := range l.callees[callee] {
		all = append(all, &CallRecord{Caller: r.Caller, Own: r.Own, Last: r.Last, Count: pb.CallCount{
			LetIn: r.Count.LetIn, Observed: r.Count.Observed, Refused: r.Count.Refused, NotReady: r.Count.NotReady, TookMs: r.micros / 1000,
		}})
	}
	return all
}

// What a sidecar says of its guard.
const (
	guardUnsaid = iota // it is older, or has just begun
	guardLoaded        // it sees the calls that the app gets
)

// Observers are the sidecars of an app, by the mode of their guards.
type Observers [guardLoaded + 1]int

// Blind tells why calls of the app may be unseen; empty if its sidecars see them all.
func (o Observers) Blind() string {
	all := o[guardUnsaid] + o[guardLoaded]
	switch {
	case all == 0:
		return "no sidecar of it is connected here"
	case o[guardUnsaid] > 0:
		return fmt.Sprintf("%d of %d sidecars don't say whether the guard is loaded; they are older than this service, are without it, or have just started", o[guardUnsaid], all)
	}
	return ""
}

// Observers counts the registered sidecars of this replica, by app.
func (s *Server) Observers() map[catalog.App]Observers {
	all := map[catalog.App]Observers{}
	for _, c := range s.evidence.all() {
		if c.watch.hello.instance != nil {
			of := all[c.app]
			of[c.watch.guard.Load()]++
			all[c.app] = of
		}
	}
	return all
}

// Called returns the apps that were called, in no particular order.
func (s *Server) Called() []catalog.App {
	l := &s.calls
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]catalog.App, 0, len(l.callees))
	for app := range l.callees {
		all = append(all, app)
	}
	return all
}

// callReport takes in what a sidecar tells of calls to its app.
func (w *watch) callReport(ctx context.Context, m *pb.CallReport) error {
	if err := w.s.calls.add(w.hello.app, time.Now(), m); err != nil {
		return status.Errorf(codes.InvalidArgument, "calls: %v", err)
	}
	if report := w.s.cfg.Calls; report != nil {
		if err := report(w.hello.app, w.caller.number, m, time.Now()); err != nil {
			return status.Errorf(codes.InvalidArgument, "calls: %v", err)
		}
	}
	if m.GetGuardLoaded() {
		w.guard.Store(guardLoaded)
	}
	w.s.metrics.refusedCalls.report(w.hello.app, m, time.Now())
	for _, c := range m.GetCalls() {
		if n := c.GetRelayed(); n > 0 {
			w.s.cfg.Events.Warn("a sidecar refused to pass calls on to another app", "app", w.hello.app.String(),
				"caller", cmp.Or(strings.Trim(c.GetCaller().GetNamespace()+"/"+c.GetCaller().GetId(), "/"), "unknown"), "cluster", c.GetCluster(), "calls", n)
		}
	}
	live.Sleep(ctx, reportPause)
	return nil
}
