package nameresolution

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
)

// Guard lets calls of this sidecar's app in, or refuses them, by the caller's certificate and by
// what the service tells of who may call. Its methods may be called from any goroutine.
type Guard struct {
	self    Instance
	cluster string
	mode    *catalog.GuardMode              // of this app; nil: the cluster's
	domain  func() (domain string, ok bool) // trust domain of this cluster's apps; empty: any
	timeout time.Duration
	contact *contact
	access  *live.Value[*access]
	log     *throttle.Log
	tap     *traffic.Tap
	span    func(context.Context) trace.Span

	unknown *Caller // whoever has no certificate that names it
	others  counts  // of callers that there is no room for

	mu      sync.Mutex
	callers map[catalog.Principal]*Caller

	openMu sync.Mutex
	open   map[*openCall]struct{}
}

// openCall is a call under way.
type openCall struct {
	caller *Caller
	end    context.CancelCauseFunc
}

// maxCallers is how many callers are counted each by itself. Further ones are counted together.
const maxCallers = 4096

// observeInterval is how often a caller that would be refused is logged.
const observeInterval = time.Minute

// endAfter is how long a call under way goes on once nothing lets its caller in any more. Short calls
// end by themselves, and an object that is written anew cuts nothing off.
const endAfter = 500 * time.Millisecond

func newGuard(r *Resolver, mode *catalog.GuardMode, domain func() (string, bool), log *slog.Logger) *Guard {
	g := &Guard{
		self: r.self, cluster: r.cluster, mode: mode, domain: domain, timeout: r.timeout, contact: r.contact, access: &r.access,
		log: throttle.New(log, observeInterval), tap: r.opts.Tap, span: r.opts.SpanFromContext, callers: map[catalog.Principal]*Caller{}, open: map[*openCall]struct{}{},
	}
	g.unknown = &Caller{guard: g, counts: &counts{}}
	return g
}

// Caller is one caller of the app, with its calls counted.
type Caller struct {
	catalog.Principal // zero for those who are not known
	guard             *Guard
	verdict           atomic.Pointer[verdict]
	*counts
}

// counts are of one caller, or of all that there is no room for.
type counts struct {
	calls [outcomes]atomic.Uint64
	ended traffic.Counter
}

// Ended counts how the app answered a call that was let in, and how long it took for that. The end
// follows from code, which is for people.
func (c *Caller) Ended(ctx context.Context, end traffic.End, code string, took time.Duration) {
	c.ended.Add(end, took)
	g := c.guard
	span := g.span(ctx).SpanContext()
	if span.IsSampled() {
		c.ended.Traced(end, traffic.Exemplar{At: time.Now(), TraceID: span.TraceID(), Took: took})
	}
	if !g.tap.On() {
		return
	}
	call := traffic.Call{At: time.Now(), Peer: c.App, Cluster: c.ClusterName(), ByCallee: true, Attempts: 1, End: end, Code: code, Took: took}
	if span.HasTraceID() {
		call.TraceID = span.TraceID().String()
	}
	g.tap.Add(call)
}

// IsNeighbour tells whether the caller is an app of this cluster's trust domain in the app's
// namespace.
func (c *Caller) IsNeighbour() bool {
	return c.App.Namespace == c.guard.self.App.Namespace && c.guard.owns(c.Principal)
}

// Cluster is the cluster that the caller is in, as of its newest call: [catalog.LocalCluster],
// another one, or empty where its certificate does not tell.
func (c *Caller) Cluster() string {
	if v := c.verdict.Load(); v != nil {
		return v.cluster
	}
	return ""
}

// ClusterName is the name of the cluster that the caller counts as one of, also of this one. It is
// empty where the certificate does not tell, and before it is known who may call.
func (c *Caller) ClusterName() string {
	if a, ok := c.guard.access.Load(); ok {
		return c.guard.nameOf(c.judged(a).cluster)
	}
	return ""
}

// Home is the name of the cluster whose apps have the caller's trust domain, also of this one. It is
// empty where that is not certain, and before it is known who may call.
func (c *Caller) Home() string {
	if a, ok := c.guard.access.Load(); ok {
		return c.guard.nameOf(c.judged(a).home)
	}
	return ""
}

func (g *Guard) nameOf(cluster string) string {
	if cluster == catalog.LocalCluster {
		return g.cluster
	}
	return cluster
}

// verdict is what becomes of a caller's calls while an access stands.
type verdict struct {
	access  *access
	outcome CallOutcome
	refusal *catalog.Refusal // why nothing lets the caller in; nil if something does
	own     bool             // the caller's trust domain is that of this cluster's apps
	cluster string           // that the caller is in
	home    string           // the cluster whose apps have the caller's trust domain
	in      bool             // the access lets the caller in
}

// CallOutcome is what became of a call.
type CallOutcome uint8

// The outcomes of calls.
const (
	LetIn    CallOutcome = iota // something lets the caller in
	Observed                    // let in, and refused where the guard enforces
	Refused                     // refused
	NotReady                    // refused since it was not known yet who may call
	Relayed                     // refused since it was meant for another app
	outcomes = iota
)

var outcomeNames = [...]string{"let in", "observed", "refused", "not ready", "relayed"}

// String is the outcome as metrics and tables have it.
func (o CallOutcome) String() string { return outcomeNames[o] }

// Caller returns the caller that a certificate names. Callers of the same name are one.
func (g *Guard) Caller(p catalog.Principal) *Caller {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.callers[p]
	if c == nil {
		c = &Caller{Principal: p, guard: g, counts: &g.others}
		if len(g.callers) < maxCallers {
			c.counts = &counts{}
			g.callers[p] = c
		}
	}
	return c
}

// Unknown is the caller without a certificate that names it, as where mTLS is off.
func (g *Guard) Unknown() *Caller { return g.unknown }

// Open is Admit for a call that may last. The context that it returns ends, with the refusal as its
// cause, soon after nothing lets the caller in any more. The caller of Open calls done when the
// call has ended.
func (c *Caller) Open(ctx context.Context) (_ context.Context, done func(), err error) {
	ctx, end := context.WithCancelCause(ctx)
	call, g := &openCall{c, end}, c.guard
	g.openMu.Lock() // before it is let in, so that no change falls between the two
	g.open[call] = struct{}{}
	g.openMu.Unlock()
	done = func() {
		g.openMu.Lock()
		delete(g.open, call)
		g.openMu.Unlock()
		end(nil)
	}
	if err := c.Admit(ctx); err != nil {
		done()
		return nil, nil, err
	}
	return ctx, done, nil
}

// follow ends calls under way that nothing lets in any more, until ctx ends.
func (g *Guard) follow(ctx context.Context) {
	for {
		a, ok, changed := g.access.Follow()
		if ok {
			g.endCalls(a)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		live.Sleep(ctx, endAfter)
	}
}

func (g *Guard) endCalls(a *access) {
	g.openMu.Lock()
	defer g.openMu.Unlock()
	for call := range g.open {
		if v := call.caller.judged(a); v.outcome == Refused {
			call.end(v.refusal)
		}
	}
}

// Admit lets a call in, or returns a [catalog.Refusal]: denied, or not ready. It waits, at most
// for the resolve timeout, while it is not known yet who may call. A call that is let in costs no
// lock and no allocation.
func (c *Caller) Admit(ctx context.Context) error {
	a, ok := c.guard.access.Load()
	if !ok {
		if mode := c.guard.mode; mode != nil && *mode != catalog.GuardEnforce {
			c.calls[LetIn].Add(1)
			return nil
		}
		var err error
		if a, err = c.guard.await(ctx); err != nil {
			c.calls[NotReady].Add(1)
			return err
		}
	}
	v := c.judged(a)
	c.calls[v.outcome].Add(1)
	if v.refusal == nil {
		return nil
	}
	if v.outcome == Observed {
		c.guard.log.Warn(c.String(), "let in a caller that the guard would refuse if it enforced", "caller", c.shown(), "app", c.guard.self.App.String(), "why", v.refusal.Reason)
		return nil
	}
	c.guard.log.Warn(c.String(), "refused a call", "caller", c.shown(), "app", c.guard.self.App.String(), "why", v.refusal.Reason)
	return v.refusal
}

// judged is what becomes of the caller's calls by an access.
func (c *Caller) judged(a *access) *verdict {
	v := c.verdict.Load()
	if v == nil || v.access != a {
		v = c.guard.judge(c, a)
		if _, known := c.guard.domain(); known && v.outcome != NotReady {
			c.verdict.Store(v)
		} // otherwise the next call may be judged differently while the access stands
	}
	return v
}

// Relayed counts a call that is refused since it is meant for another app.
func (c *Caller) Relayed(to string) {
	c.calls[Relayed].Add(1)
	c.guard.log.Warn("relayed "+c.String(), "refused to pass a call on to another app", "caller", c.shown(), "app", c.guard.self.App.String(), "callee", catalog.Printable(to))
}

func (c *Caller) shown() string {
	if c.Principal == (catalog.Principal{}) {
		return "unknown"
	}
	return catalog.Printable(c.String())
}

// await waits until it is known who may call.
func (g *Guard) await(ctx context.Context) (*access, error) {
	limit, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	start := time.Now()
	a, err := g.access.Wait(limit)
	if err != nil {
		return nil, &catalog.Refusal{Outcome: catalog.NotReady, Reason: fmt.Sprintf("%s does not know yet who may call it: it waited %s for %s: %s",
			g.self.App, time.Since(start).Round(time.Millisecond), g.contact.source, g.contact.why())}
	}
	return a, nil
}

// Mode is what the guard does with callers that nothing lets in; ok is false while that is not
// known.
func (g *Guard) Mode() (mode catalog.GuardMode, ok bool) {
	if g.mode != nil {
		return *g.mode, true
	}
	a, ok := g.access.Load()
	return g.modeBy(a), ok
}

func (g *Guard) modeBy(a *access) catalog.GuardMode {
	switch {
	case g.mode != nil:
		return *g.mode
	case a == nil || a.untold:
		return catalog.GuardOff
	}
	return a.Mode
}

// judge decides on a caller.
func (g *Guard) judge(c *Caller, a *access) *verdict {
	v := &verdict{access: a}
	if c != g.unknown {
		v.own = g.owns(c.Principal)
		v.cluster, v.in = a.Judge(v.own, c.Principal)
		domain, _ := g.domain()
		v.home = a.Home(v.own && domain != "", c.Domain)
	}
	mode := g.modeBy(a)
	if mode == catalog.GuardOff {
		return v
	}
	v.refusal = g.refusal(c.Principal, v)
	switch {
	case v.refusal == nil:
	case mode == catalog.GuardObserve:
		v.outcome = Observed
	case v.refusal.Outcome == catalog.NotReady:
		v.outcome = NotReady
	default:
		v.outcome = Refused
	}
	return v
}

// owns tells whether a caller's trust domain is that of this cluster's apps.
func (g *Guard) owns(p catalog.Principal) bool {
	domain, known := g.domain()
	return known && p != (catalog.Principal{}) && (domain == "" || domain == p.Domain)
}

// refusal is why nothing lets a caller in. It names the caller's side and the object that is
// missing, and nothing of others.
func (g *Guard) refusal(p catalog.Principal, v *verdict) *catalog.Refusal {
	deny := func(format string, args ...any) *catalog.Refusal {
		return &catalog.Refusal{Outcome: catalog.Denied, Reason: fmt.Sprintf(format, args...)}
	}
	_, known := g.domain()
	a := v.access
	switch {
	case p == (catalog.Principal{}):
		return deny("%s takes no call without a certificate that names the caller; turn on mTLS in both sidecars", g.self.App)
	case !known:
		return &catalog.Refusal{Outcome: catalog.NotReady, Reason: fmt.Sprintf("%s has no certificate of its own yet, so it does not know its trust domain", g.self.App)}
	case p.App == g.self.App && v.own:
		return nil
	case a.untold:
		return &catalog.Refusal{Outcome: catalog.NotReady, Reason: fmt.Sprintf("%s does not tell who may call %s; upgrade it", g.contact.source, g.self.App)}
	case v.in:
		return nil
	case a.provisional && v.own:
		return &catalog.Refusal{Outcome: catalog.NotReady, Reason: fmt.Sprintf("the resolver service has just started, and does not know yet whether %s may call %s", p.App, g.self.App)}
	case v.own && p.App.Namespace != g.self.App.Namespace:
		return deny("%s may not call %s in cluster %s: a caller of another namespace needs both {cluster: local, namespace: %s, app: %s} in spec.allow of the AppExport %s, and %s in its AppEndpoints, with a route in that cluster",
			p.App, g.self.App, g.cluster, p.App.Namespace, p.App.ID, g.self.App, g.self.App)
	case v.own:
		return deny("%s may not call %s in cluster %s: add %s to the AppEndpoints %s in that cluster, with a route there", p.App, g.self.App, g.cluster, g.self.App, p.App)
	}
	return deny("%s may not call %s in cluster %s: no AppExport %s there allows it, or the Cluster object of its cluster does not name %s in spec.trust.appDomain",
		p, g.self.App, g.cluster, g.self.App, p.Domain)
}

// Calls are a caller's calls since the start.
type Calls struct {
	catalog.Principal
	Others    bool   // all callers that there was no room for
	Cluster   string // that the caller is in: local, another one, or empty where that is not known
	Own       bool   // its trust domain is that of this cluster's apps
	Count     [outcomes]uint64
	Traffic   traffic.Counts // of those that were let in, as the app answered them
	Exemplars traffic.Exemplars
}

// Calls returns the callers with their calls, in no particular order.
func (g *Guard) Calls() []Calls {
	g.mu.Lock()
	callers := append(slices.Collect(maps.Values(g.callers)), g.unknown)
	g.mu.Unlock()
	all := make([]Calls, 0, len(callers)+1)
	for _, c := range callers {
		if calls, ok := c.read(); ok {
			calls.Principal, calls.Cluster = c.Principal, c.Cluster()
			calls.Own = g.owns(c.Principal)
			all = append(all, calls)
		}
	}
	if others, ok := g.others.read(); ok {
		others.Others = true
		all = append(all, others)
	}
	return all
}

// read returns the counts; ok is false where there is nothing to tell.
func (c *counts) read() (calls Calls, ok bool) {
	for i := range c.calls {
		calls.Count[i] = c.calls[i].Load()
		ok = ok || calls.Count[i] > 0
	}
	calls.Traffic, calls.Exemplars = c.ended.Read(), c.ended.Exemplars()
	return calls, ok
}
