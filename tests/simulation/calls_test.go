package simulation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	internalv1 "github.com/isthmus-mesh/isthmus/api/dapr/proto/internals/v1"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

const (
	// callTimeout is how long a caller waits for an answer.
	callTimeout = 10 * time.Second
	// shareWithin is how long after the last fault each ready instance has its share of calls.
	shareWithin = 5 * time.Second
	// idleAfter is how long after the last call connections that nobody needs are closed.
	idleAfter = time.Minute
)

// attempt is one call of an app, with what its caller knew and how it ended.
type attempt struct {
	from    *sidecar
	callee  catalog.App
	proxied bool // an app's own method, which is never repeated

	began    time.Time
	floor    int                  // the oldest version of objects that its sidecar may have gone by
	heard    time.Time            // since when that hears its service; zero: it does not
	reached  map[string]time.Time // when a round trip to each cluster was last possible
	executed []execution

	refusal *catalog.Refusal // of the lookup
	hadView bool             // before the lookup
	view    *catalog.View    // of the lookup
	err     error            // of the call
}

// work is what a called app does.
type work struct {
	takes time.Duration
	fails bool // in the end, with Unavailable
}

// execution is a call that has begun at a pod.
type execution struct {
	at      time.Time
	cluster *cluster
	address string
}

// callsOf makes calls to other apps, one round after the other, without waiting for them.
func (w *world) callsOf(d *sidecar, rounds int, pause time.Duration, how work) {
	for _, callee := range apps {
		if callee == d.app {
			continue
		}
		w.open.Add(1)
		d.clock.do(func() {
			d.calls.Go(func() {
				defer w.open.Add(-1)
				for n := range rounds {
					w.call(d, callee, n%3 == 2, how)
					if !live.Sleep(d.calling, pause) {
						return
					}
				}
			})
		})
	}
}

// call makes one call as daprd does, and checks how it ended.
func (w *world) call(d *sidecar, callee catalog.App, proxied bool, how work) *attempt {
	a := &attempt{from: d, callee: callee, proxied: proxied, began: now(), reached: map[string]time.Time{}}
	d.mu.Lock()
	a.floor = d.floor
	d.mu.Unlock()
	w.mu.Lock()
	id := len(w.calls)
	w.calls = append(w.calls, a)
	a.heard = w.heard[d]
	for _, c := range w.clusters {
		a.reached[c.name] = w.reached[way{d.to, c.name}]
	}
	w.mu.Unlock()
	a.view = d.held()
	a.hadView = a.view != nil
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(d.calling, callKey, strconv.Itoa(id), takesKey, how.takes.String(), failsKey, strconv.FormatBool(how.fails)), callTimeout)
	defer cancel()
	entry, err := d.resolver.Find(ctx, callee)
	if err != nil {
		if !errors.As(err, &a.refusal) {
			a.err = err
		}
		w.checkCall(a)
		return a
	}
	name := d.dialer.Name(entry)
	conn, err := d.conn(name)
	if err == nil && proxied {
		_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	} else if err == nil {
		_, err = internalv1.NewServiceInvocationClient(conn).CallLocal(ctx, &internalv1.InternalInvokeRequest{})
	}
	if a.err = err; status.Code(err) == codes.Unavailable {
		d.closeConn(name, conn)
	}
	w.checkCall(a)
	return a
}

// executed notes that a call begins at a pod.
func (w *world) executed(id int, p *pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.calls[id]
	a.executed = append(a.executed, execution{now(), p.cluster, p.address})
}

// checkCall checks a call that has ended. Its properties are in docs/explanation/properties.md.
func (w *world) checkCall(a *attempt) {
	if a.from.calling.Err() != nil {
		return // it was cut off
	}
	w.mu.Lock()
	executed := slices.Clone(a.executed)
	w.mu.Unlock()
	what := fmt.Sprintf("the call of %s to %s at %s", a.from.host, a.callee.ID, a.began.Format("04:05.000"))
	w.checkRefusal(a, what)
	most := 2
	if a.proxied {
		most = 1
	}
	if len(executed) > most {
		w.fail("repeat: %s ran %d times", what, len(executed))
	}
	if a.err == nil && a.refusal == nil && len(executed) == 0 {
		w.fail("repeat: %s was answered and never ran", what)
	}
	for _, e := range executed {
		if !a.from.led(a, e) {
			w.fail("rule: %s ran at %s in %s at %s, where no view led", what, e.address, e.cluster.name, e.at.Format("04:05.000"))
		}
		if !w.selected(a, e.cluster) {
			w.fail("rule: %s ran in %s, which no selection of its app since version %d leads to", what, e.cluster.name, a.floor)
		}
		w.checkLease(a, e, what)
	}
}

// led tells whether a view of the caller's led to a pod at some time of the call.
func (d *sidecar) led(a *attempt, e execution) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n, v := range d.views {
		ended := n+1 < len(d.views) && d.views[n+1].at.Before(a.began)
		if !ended && !v.at.After(e.at) && leadsTo(v.view, a.callee, e.cluster.name, e.address) {
			return true
		}
	}
	return false
}

// leadsTo tells whether calls may go to a pod by a view.
func leadsTo(view *catalog.View, callee catalog.App, cluster, address string) bool {
	entry, ok := view.Entries.Get(callee)
	if !ok {
		return false
	}
	for i := range entry.Routes {
		r := &entry.Routes[i]
		switch {
		case r.Cluster != cluster || r.Weight == 0 || len(r.Addresses) == 0:
		case !r.Gateway:
			if slices.Contains(r.Addresses, address) {
				return true
			}
		case len(r.Instances) == 0 || slices.Contains(r.Instances, catalog.InstanceToken(address)):
			return true
		}
	}
	return false
}

// selected tells whether a selection that the caller's sidecar may have gone by leads to a cluster.
func (w *world) selected(a *attempt, in *cluster) bool {
	c := a.from.cluster
	newest, _, _ := c.objects.newest()
	for v := w.floorOf(a); v <= newest; v++ {
		selection, _ := c.objects.at(v)[(&catalog.AppEndpoints{App: a.from.app}).Key()].(*catalog.AppEndpoints)
		if selection == nil && in == c {
			return true
		}
		if e := endpoint(selection, a.callee); e != nil && routesTo(e, c, in) {
			return true
		}
	}
	return false
}

// floorOf is the oldest version of objects that the sidecar of a call may have gone by.
func (w *world) floorOf(a *attempt) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return a.floor
}

func routesTo(e *catalog.Endpoint, from, to *cluster) bool {
	return len(e.Routes) == 0 || slices.ContainsFunc(e.Routes, func(r catalog.RouteSpec) bool {
		return r.Cluster == to.name || r.Cluster == catalog.LocalCluster && from == to
	})
}

// checkLease checks that a call did not begin after the lease of its cluster, if each selection wants
// that withdrawn. A sidecar without its service keeps its view.
func (w *world) checkLease(a *attempt, e execution, what string) {
	c := a.from.cluster
	if e.cluster == c || a.heard.IsZero() || a.began.Sub(a.heard) <= followWithin {
		return
	}
	newest, _, _ := c.objects.newest()
	for v := w.floorOf(a); v <= newest; v++ {
		selection, _ := c.objects.at(v)[(&catalog.AppEndpoints{App: a.from.app}).Key()].(*catalog.AppEndpoints)
		if s := endpoint(selection, a.callee); s != nil && s.WhenStale == catalog.Serve {
			return
		}
	}
	if since := a.began.Sub(a.reached[e.cluster.name]); since > e.cluster.staleAfter+slack+followWithin {
		w.fail("lease: %s ran in %s, which its service has not reached for %s; staleAfter is %s", what, e.cluster.name, since, e.cluster.staleAfter)
	}
}

// checkRefusal checks that a call that fails says why, by one of the stated words, and that it is true.
func (w *world) checkRefusal(a *attempt, what string) {
	if a.refusal == nil {
		if code := status.Code(a.err); !slices.Contains([]codes.Code{codes.OK, codes.Unavailable, codes.PermissionDenied, codes.DeadlineExceeded}, code) {
			w.fail("refusal: %s ended with %v", what, a.err)
		}
		return
	}
	view := a.from.held()
	entry, has := (*catalog.Entry)(nil), false
	if view != nil {
		entry, has = view.Entries.Get(a.callee)
	}
	wrong := ""
	switch outcome := a.refusal.Outcome; {
	case outcome == catalog.NotReady && a.hadView && view == a.view && (!has || !entry.Awaited()):
		wrong = "it had a view, in which nobody is asked for the app"
	case outcome == catalog.NotReady || view != a.view:
	case outcome == catalog.Denied && (has || view.Open), outcome == catalog.NotFound && (has || !view.Open):
		wrong = "its view has the app"
	case outcome == catalog.Unavailable && (!has || entry.Outcome() != catalog.Unavailable), outcome == catalog.Stale && (!has || entry.Outcome() != catalog.Stale):
		wrong = "its view says something else"
	case outcome == catalog.OK:
		wrong = "that is no refusal"
	}
	if wrong != "" {
		w.fail("refusal: %s was refused with %v, but %s", what, a.refusal, wrong)
	}
}

// judged checks what a guard has done with a caller, by all rules that it may go by.
func (w *world) judged(d *sidecar, who caller, err error) {
	d.mu.Lock()
	floor := d.floor
	d.mu.Unlock()
	c := d.cluster
	newest, _, _ := c.objects.newest()
	all, any := true, false
	for v := floor; v <= newest; v++ {
		lets, sure := w.lets(c, c.objects.at(v), d.app, who)
		any = any || lets
		all = all && lets && sure
	}
	refusal := (*catalog.Refusal)(nil)
	switch {
	case err == nil && !any:
		w.fail("guard: that of %s let %s in, which nothing allows since version %d", d.host, who, floor)
	case err == nil:
	case !errors.As(err, &refusal):
		w.fail("guard: that of %s refused %s with %v", d.host, who, err)
	case refusal.Outcome == catalog.Denied && all:
		w.fail("refusal: the guard of %s refused %s, which every rule allows since version %d: %v", d.host, who, floor, err)
	}
}

// probe checks what each guard does with each app of each cluster, and with those of a stranger.
func (w *world) probe() {
	now, cancel := context.WithCancel(context.Background())
	cancel() // a guard that does not know yet who may call need not wait
	for _, d := range w.sidecars() {
		guard := d.resolver.Guard()
		for _, in := range append([]string{"stranger"}, clusterNames...) {
			for _, a := range apps {
				w.judged(d, caller{in, a}, guard.Caller(catalog.Principal{Domain: domainOf(in), App: a}).Admit(now))
			}
		}
	}
}

// lets tells whether the objects of a cluster let a caller call an app there. It is not sure for a caller
// without a selection, which counts only while its app runs.
func (w *world) lets(c *cluster, objects map[catalog.Key]catalog.Object, callee catalog.App, who caller) (lets, sure bool) {
	if who.Cluster == c.name {
		if who.App == callee {
			return true, true
		}
		selection, _ := objects[(&catalog.AppEndpoints{App: who.App}).Key()].(*catalog.AppEndpoints)
		if selection == nil {
			return true, false
		}
		e := endpoint(selection, callee)
		return e != nil && routesTo(e, c, c), true
	}
	export, _ := objects[(&catalog.AppExport{App: callee}).Key()].(*catalog.AppExport)
	known := objects[catalog.Key{Kind: catalog.KindCluster, Name: who.Cluster}] != nil
	return known && export != nil && allowed(export.Allow).lets(who.Cluster, who.App), true
}

// answered checks, with all well, that each call is answered that the rules allow, and that each
// instance soon has its share.
func (w *world) answered(d *sidecar) {
	view := d.held()
	for callee, entry := range view.Entries.All() {
		if callee == d.app || entry.Outcome() != catalog.OK || w.failed() != nil {
			continue
		}
		due, refused := w.due(d, entry)
		began := time.Now()
		for {
			wrong := w.shares(d, callee, due, refused)
			if wrong == "" || d.held() != view || w.failed() != nil {
				break
			}
			if took := time.Since(began); took > shareWithin {
				w.fail("share: %s after all was well: %s", took, wrong)
				return
			}
			w.pass(100 * time.Millisecond)
		}
	}
}

// idle checks that a sidecar that calls nobody has connections only to where its calls would go.
func (w *world) idle(d *sidecar) {
	most, leads := 0, map[string]bool{}
	for _, entry := range d.held().Entries.All() {
		for _, r := range firstRoutes(entry) {
			if !r.Gateway {
				most += len(r.Addresses)
				for _, address := range r.Addresses {
					host, _, _ := net.SplitHostPort(address)
					leads[host] = true
				}
				continue
			}
			gateways := w.cluster(r.Cluster).gateways
			most += max(len(r.Addresses), len(r.Instances)) * len(gateways)
			for _, g := range gateways {
				leads[g.host] = true
			}
		}
	}
	open := append(w.net.OpenFrom(d.host, callsPort), w.net.OpenFrom(d.host, podPort)...)
	if len(open) > most {
		w.fail("left: %s has %d connections, and its calls would go to %d endpoints", d.host, len(open), most)
	}
	for _, to := range open {
		if !leads[to] {
			w.fail("left: %s has a connection to %s, where none of its calls would go", d.host, to)
		}
	}
}

// firstRoutes are the routes of the priority that takes all calls while all is well.
func firstRoutes(entry *catalog.Entry) (first []*catalog.Route) {
	for i := range entry.Routes {
		r := &entry.Routes[i]
		if r.Usable() && r.Weight > 0 && len(r.Addresses) > 0 && (len(first) == 0 || r.Priority == first[0].Priority) {
			first = append(first, r)
		}
	}
	return first
}

// due is the share of calls that each pod should have, and whether the guards of all may refuse the
// caller.
func (w *world) due(d *sidecar, entry *catalog.Entry) (due map[string]float64, refused bool) {
	due = map[string]float64{}
	total := 0.0
	for _, r := range firstRoutes(entry) {
		total += float64(r.Weight)
	}
	for _, r := range firstRoutes(entry) {
		c := w.cluster(r.Cluster)
		_, running, _ := c.instances.newest()
		_, objects, _ := c.objects.newest()
		pods := ready(running, entry.App)
		for _, address := range pods {
			due[c.name+" "+address] = float64(r.Weight) / total / float64(len(pods))
		}
		if lets, sure := w.lets(c, objects, entry.App, caller{d.cluster.name, d.app}); !lets || !sure {
			refused = true
		}
	}
	return due, refused
}

// shares makes calls, and describes what is wrong with where they went.
func (w *world) shares(d *sidecar, callee catalog.App, due map[string]float64, refused bool) string {
	total := 20 * len(due)
	given := map[string]int{}
	for n := range total {
		var a *attempt
		d.clock.do(func() { a = w.call(d, callee, n%2 == 0, work{}) })
		if a.err != nil && !(refused && status.Code(a.err) == codes.PermissionDenied) {
			return fmt.Sprintf("a call of %s to %s fails: %v", d.host, callee.ID, a.err)
		}
		if a.refusal != nil {
			return fmt.Sprintf("a call of %s to %s is refused: %v", d.host, callee.ID, a.refusal)
		}
		w.mu.Lock()
		for _, e := range a.executed {
			given[e.cluster.name+" "+e.address]++
		}
		w.mu.Unlock()
	}
	if refused {
		return ""
	}
	for at, share := range due {
		if n, want := float64(given[at]), share*float64(total); n < want*0.7-3 || n > want*1.4+3 {
			return fmt.Sprintf("of %d calls of %s to %s, %v had %.0f, and %.0f are its share: %v", total, d.host, callee.ID, at, n, want, given)
		}
	}
	return ""
}
