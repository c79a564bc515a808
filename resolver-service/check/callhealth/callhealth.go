// Package callhealth tells which calls fail: caller, callee, reason, since when, and the change
// before. It is the one evaluation of calls: status, check, explain, the console, metrics and
// events repeat its result.
//
// It hears of calls from sidecars: of lookups that were refused, of calls that failed, came too
// late or got no answer, and of calls that a guard refused. Of callers in stock sidecars it hears
// nothing. Beside that it looks at the apps that selections hold, and at those whose health fails.
package callhealth

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// The checks of isthmus check that tell of faults.
const (
	CallsRefused   = "calls-refused"   // by lookups and guards
	CallsFailed    = "calls-failed"    // between sidecars
	AppHealth      = "app-health"      // apps that are slow, hang or are dead
	CalleesOffered = "callees-offered" // apps that selections hold and nobody offers
	ExportMissing  = "export-missing"  // apps here that callers in other clusters ask for in vain
)

// Levels of a fault, as those of checks.
const (
	warn = "warn"
	Fail = "fail"
)

// Shares of the calls of a way, from which on it is a fault, and from which on it fails.
const (
	leastShare = 100 // one of so many
	failShare  = 2   // one of so many
)

// mostOfApp is how many faults of one reporting app are listed by name.
const mostOfApp = 5

// Config is what a Health asks of others.
type Config struct {
	Cluster string
	// Decide makes a lookup as of now.
	Decide func(caller, callee catalog.App) catalog.Decision
	// Change tells of the last write before a moment to one of some objects; empty: none is known.
	Change func(before time.Time, keys []catalog.Key) string
	// Unreached tells of callees that don't answer behind gateways that do; nil: nobody does.
	Unreached func() []Unreached
}

// Health evaluates calls. Its methods may be called from any goroutine.
type Health struct {
	cfg Config
	log log

	mu      sync.Mutex
	callees map[catalog.App]*calleeState // that selections hold
	looked  []*v1alpha1.CallFault        // of the last Look
	others  []*v1alpha1.CallFault        // that other replicas know of
}

// New makes a Health that knows of no call.
func New(cfg Config) *Health { return &Health{cfg: cfg, callees: map[catalog.App]*calleeState{}} }

// Report takes in what a sidecar of an app reports. Its error says that the report breaks the
// rules.
func (h *Health) Report(app catalog.App, m *v1alpha1.CallReport, now time.Time) error {
	return h.log.report(app, m, now)
}

// Faults returns all that is wrong with calls in the cluster, the worst first.
func (h *Health) Faults(now time.Time) []*v1alpha1.CallFault {
	all := h.Own(now)
	h.mu.Lock()
	others := h.others
	h.mu.Unlock()
	if len(others) == 0 {
		return all
	}
	at := map[faultKey]int{}
	for i, f := range all {
		at[keyOf(f)] = i
	}
	for _, f := range others {
		i, known := at[keyOf(f)]
		if !known {
			at[keyOf(f)] = len(all)
			all = append(all, f)
			continue
		}
		all[i] = together(all[i], f, now)
	}
	worstFirst(all)
	return all
}

// Own returns what this replica knows to be wrong with calls, the worst first.
func (h *Health) Own(now time.Time) []*v1alpha1.CallFault {
	all := append(h.ofCalls(now), h.unreached(now)...)
	h.mu.Lock()
	all = append(all, h.looked...)
	h.mu.Unlock()
	worstFirst(all)
	return all
}

// SetOthers has Faults tell also of the faults that other replicas know of.
func (h *Health) SetOthers(faults []*v1alpha1.CallFault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.others = faults
}

func worstFirst(all []*v1alpha1.CallFault) {
	slices.SortStableFunc(all, func(a, b *v1alpha1.CallFault) int {
		return cmp.Or(cmp.Compare(a.GetLevel(), b.GetLevel()), cmp.Compare(b.GetCalls(), a.GetCalls())) // fail comes before warn
	})
}

// faultKey tells faults of one replica apart.
type faultKey struct {
	check, callerCluster, cluster string
	caller, callee                catalog.App
}

func keyOf(f *v1alpha1.CallFault) faultKey {
	return faultKey{f.GetCheck(), f.GetCallerCluster(), f.GetCluster(), wire.AppOf(f.GetCaller()), wire.AppOf(f.GetCallee())}
}

// together is one fault that two replicas know of. Each counts the calls that its own sidecars tell of.
func together(a, b *v1alpha1.CallFault, now time.Time) *v1alpha1.CallFault {
	if b.GetLevel() < a.GetLevel() || b.GetLevel() == a.GetLevel() && b.GetCalls() > a.GetCalls() {
		a, b = b, a
	}
	sum := proto.CloneOf(a)
	sum.Calls, sum.Of = a.GetCalls()+b.GetCalls(), a.GetOf()+b.GetOf()
	sum.SinceUnixMs, sum.LastUnixMs = min(a.GetSinceUnixMs(), b.GetSinceUnixMs()), max(a.GetLastUnixMs(), b.GetLastUnixMs())
	if sum.GetCheck() == CallsRefused || sum.GetCheck() == CallsFailed {
		sum.What = (&fault{sum}).sentence(now)
	}
	return sum
}

// Between returns the faults of a caller's calls to a callee, those of the callee alone included.
// An app without a name stands for any.
func Between(all []*v1alpha1.CallFault, caller, callee catalog.App) (some []*v1alpha1.CallFault) {
	matches := func(m *v1alpha1.App, app catalog.App) bool {
		return app == (catalog.App{}) || m.GetNamespace() == app.Namespace && m.GetId() == app.ID
	}
	for _, f := range all {
		if matches(f.GetCallee(), callee) && (f.GetCaller() == nil || matches(f.GetCaller(), caller)) {
			some = append(some, f)
		}
	}
	return some
}

// ofCalls are the faults that sidecars' reports show.
func (h *Health) ofCalls(now time.Time) (all []*v1alpha1.CallFault) {
	listed := map[catalog.App]int{}
	slow := map[slowKey]*slowCallee{}
	ways := h.log.current(now)
	for i := range ways {
		w := &ways[i]
		if w.slow+w.waiting > 0 {
			key := slowKey{w.callee, w.cluster}
			if slow[key] == nil {
				slow[key] = &slowCallee{}
			}
			slow[key].add(w)
		}
		f := h.fault(w, now)
		if f == nil {
			continue
		}
		reporter := w.caller
		if w.source == byGuard {
			reporter = w.callee
		}
		if listed[reporter]++; listed[reporter] > mostOfApp {
			continue // an app that makes up names takes no place of others
		}
		all = append(all, f)
	}
	for key, s := range slow {
		if f := s.fault(key, h, now); f != nil {
			all = append(all, f)
		}
	}
	return all
}

// fault is what is wrong with a way, other than that the callee is slow; nil where that is nothing.
func (h *Health) fault(w *seen, now time.Time) *v1alpha1.CallFault {
	bad := w.refused + w.failed
	if bad == 0 || bad*leastShare < w.fine {
		return nil
	}
	f := h.newFault(w, bad)
	switch w.source {
	case byLookup:
		f.Check = CallsRefused
		if w.callee != (catalog.App{}) {
			d := h.cfg.Decide(w.caller, w.callee)
			if d.Outcome == catalog.OK && now.Sub(w.last) > settledFor {
				h.log.settle(w.caller, w.way) // it was mended, and the caller has not called since
				return nil
			}
			if d.Outcome.String() == w.outcome {
				f.Why = d.Reason
			}
		}
		f.Fix = explain(w, "see isthmus explain --from %s %s")
	case byGuard:
		f.Check, f.Why = CallsRefused, "nothing lets this caller in"
		if w.outcome == catalog.NotReady.String() {
			f.Why = "the guard does not know yet who may call"
		}
		f.Fix = explain(w, "see isthmus calls %[2]s; to let it in, write AppEndpoints for a caller of this cluster, and an AppExport for any other")
		if w.why == passedOn {
			f.Why = passedOn
			f.Fix = explain(w, "have %[1]s call that app by its own sidecar, with its own selection; a sidecar passes no call on. isthmus events names the sidecar")
		}
	case byCall:
		f.Check, f.Why = CallsFailed, cmp.Or(w.why, meaningOf(w.outcome))
		f.Fix = explain(w, "see isthmus explain --from %s %s --probe, and the log of the callee's sidecar")
	}
	f.What = f.sentence(now)
	return f.CallFault
}

// passedOn is why a guard refuses a call that is meant for another app.
const passedOn = "the call is for another app, which this app's sidecar was to pass it on to"

// fault is a fault in the making.
type fault struct{ *v1alpha1.CallFault }

func (h *Health) newFault(w *seen, bad uint64) *fault {
	f := &fault{&v1alpha1.CallFault{
		Level: level(bad, bad+w.fine, w.lately.refused+w.lately.failed, w.lately.refused+w.lately.failed+w.lately.fine), CallerCluster: w.callerCluster, Cluster: w.cluster, Outcome: w.outcome, Calls: bad, Of: bad + w.fine,
		SinceUnixMs: w.since.UnixMilli(), LastUnixMs: w.last.UnixMilli(),
	}}
	if w.caller != (catalog.App{}) {
		f.Caller = wire.App(w.caller)
	}
	if w.callee != (catalog.App{}) {
		f.Callee = wire.App(w.callee)
	}
	keys := []catalog.Key{
		{Kind: catalog.KindAppEndpoints, Namespace: w.caller.Namespace, Name: w.caller.ID},
		{Kind: catalog.KindAppEndpoints, Namespace: w.caller.Namespace, Name: catalog.DefaultName},
		{Kind: catalog.KindAppEndpoints, Namespace: catalog.DefaultName, Name: catalog.DefaultName},
		{Kind: catalog.KindAppExport, Namespace: w.callee.Namespace, Name: w.callee.ID},
	}
	for _, cluster := range []string{w.cluster, w.callerCluster} {
		if cluster != "" && cluster != catalog.LocalCluster {
			keys = append(keys, catalog.Key{Kind: catalog.KindCluster, Name: cluster})
		}
	}
	if h.cfg.Change != nil {
		f.Change = h.cfg.Change(w.since, keys)
	}
	return f
}

// sentence says all of a fault but the names of the apps.
func (f *fault) sentence(now time.Time) string {
	verb := map[string]string{CallsRefused: "were refused", CallsFailed: "failed"}[f.GetCheck()]
	if f.GetCheck() == CallsRefused && f.GetCalls() == 1 && f.GetOf() == 1 {
		verb = "was refused"
	}
	text := fmt.Sprintf("%s%s%s %s in the last minute, for %s: %s", count(f.GetCalls(), f.GetOf()), inCluster(" from", f.GetCallerCluster()), inCluster(" to", f.GetCluster()),
		verb, span(now.Sub(time.UnixMilli(f.GetSinceUnixMs()))), f.GetOutcome())
	if f.GetWhy() != "" {
		text += ": " + strings.TrimPrefix(f.GetWhy(), f.GetOutcome()+": ")
	}
	return text + f.changed()
}

func (f *fault) changed() string {
	if f.GetChange() == "" {
		return ""
	}
	return "; before it: " + f.GetChange()
}

// count is "3 calls", or "3 of 5 calls".
func count(n, of uint64) string {
	switch {
	case of > n:
		return fmt.Sprintf("%d of %d calls", n, of)
	case n == 1:
		return "1 call"
	}
	return fmt.Sprintf("%d calls", n)
}

// inCluster names a cluster, where that is another one.
func inCluster(where, cluster string) string {
	if cluster == "" || cluster == catalog.LocalCluster {
		return ""
	}
	return where + " cluster " + cluster
}

// span is a time for people.
func span(d time.Duration) string { return max(time.Second, d.Round(time.Second)).String() }

// explain is a command about a way, where both ends have a name.
func explain(w *seen, format string) string {
	if w.caller == (catalog.App{}) || w.callee == (catalog.App{}) {
		return "see isthmus events, and the logs of the sidecars"
	}
	return fmt.Sprintf(format, w.caller, w.callee.ID+"."+w.callee.Namespace)
}

// meaning is what a gRPC code of a failed call most often comes from.
var meaning = map[string]string{
	codes.Unavailable.String():       "the way to the callee, or its sidecar, ends connections or refuses them",
	codes.DeadlineExceeded.String():  "no answer in time",
	codes.PermissionDenied.String():  "the callee's guard, or Dapr's access control there, refuses the caller",
	codes.Unauthenticated.String():   "the two sidecars don't accept each other's certificates",
	codes.Internal.String():          "the callee's sidecar can't call its app, or the app fails",
	codes.Unknown.String():           "the callee's app fails",
	codes.Unimplemented.String():     "the callee does not have the method",
	codes.ResourceExhausted.String(): "the callee, or its sidecar, takes no more",
}

// meaningOf is what the code of a call that failed, or an HTTP status, may mean.
func meaningOf(outcome string) string {
	if strings.HasPrefix(outcome, "HTTP ") {
		return "the callee's app answers with server errors"
	}
	return meaning[outcome]
}
