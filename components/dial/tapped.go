package dial

import (
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
)

// tapped is the part of a call that is kept only while somebody looks at single calls.
type tapped struct {
	trace   string
	headers []catalog.HeaderValue // that guests take the call by

	mu     sync.Mutex
	tries  []traffic.Try    // all attempts
	passed []traffic.Passed // as of the last one
}

// try notes an attempt by the routes of a picker. The function that it returns is called when the
// attempt has ended, in place of done.
func (c *tapped) try(to *endpoint, usable []usableRoute, done func(balancer.DoneInfo)) func(balancer.DoneInfo) {
	passed := to.balancer.passed(to, usable, c.headers)
	c.mu.Lock()
	defer c.mu.Unlock()
	at := len(c.tries)
	c.tries, c.passed = append(c.tries, traffic.Try{Cluster: to.cluster, Address: to.address}), passed
	return func(info balancer.DoneInfo) {
		if info.Err != nil {
			failed := status.Code(info.Err).String()
			if !info.BytesReceived { // otherwise the message is the app's, and none of a tap's business
				failed += ": " + status.Convert(info.Err).Message()
			}
			c.mu.Lock()
			c.tries[at].Failed = catalog.Clip(failed, traffic.MaxReason)
			c.mu.Unlock()
		}
		done(info)
	}
}

// tell adds what is known to a call that has ended.
func (c *tapped) tell(call *traffic.Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	call.TraceID, call.Passed = c.trace, c.passed
	if n := len(c.tries); n > 1 {
		call.Earlier = append(call.Earlier, c.tries[max(0, n-1-traffic.MaxSteps):n-1]...)
	}
}

// passed says of each route that comes before that of an endpoint, or beside it, why it takes no
// calls or few, and the same of the instances there.
func (b *planBalancer) passed(to *endpoint, usable []usableRoute, headers []catalog.HeaderValue) (all []traffic.Passed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.plan == nil || b.plan.entry == nil {
		return nil
	}
	for i := range b.plan.takes {
		switch t := b.plan.entry.Takes()[i]; {
		case !t.Takes(headers):
		case t.Cluster == to.cluster:
			return append(all, traffic.Passed{Why: "guest " + t.Cluster + " takes " + t.Calls()})
		default:
			all = append(all, traffic.Passed{Cluster: t.Cluster, Why: catalog.Clip(b.endpoints.unconnected(&b.plan.takes[i].route), traffic.MaxReason)})
		}
	}
	taken := make(map[string]*usableRoute, len(usable))
	for i := range usable {
		if usable[i].takes() {
			taken[usable[i].route.Cluster] = &usable[i]
		}
	}
	at := taken[to.cluster]
	if at == nil {
		return nil
	}
	for _, r := range b.plan.entry.Explain().Routes {
		if r.Priority > at.route.Priority || r.Weight == 0 || len(all) == traffic.MaxSteps {
			continue
		}
		why := ""
		switch u := taken[r.Cluster]; {
		case u == nil:
			why = whyNot(b, r)
		case u.offer.Capacity < 1 && u != at:
			why = u.overloaded()
		case u.offer.Ramp < 1 && u.route.Priority < at.route.Priority:
			why = fmt.Sprintf("takes %.0f %% of its calls while it comes back", 100*u.offer.Ramp)
		case u == at:
			why = leftOut(b, u)
		}
		if why != "" {
			all = append(all, traffic.Passed{Cluster: r.Cluster, Why: catalog.Clip(why, traffic.MaxReason)})
		}
	}
	return all
}

// whyNot says why no call goes by a route. The caller holds the lock.
func whyNot(b *planBalancer, r catalog.RouteDecision) string {
	for i := range b.plan.routes {
		if to := &b.plan.routes[i]; to.Cluster == r.Cluster && to.Priority != dampedPriority {
			return b.endpoints.unconnected(to)
		}
	}
	return r.Reason
}

// leftOut says how many instances of a route take no calls, and why one does not. The caller holds
// the lock.
func leftOut(b *planBalancer, u *usableRoute) string {
	takes := make(map[string]bool, len(u.candidates))
	for i := range u.candidates {
		takes[endpointKey{u.candidates[i].target.name, u.candidates[i].endpoints[0].address}.id()] = true
	}
	left, why := 0, ""
	for i := range u.route.targets {
		t := &u.route.targets[i]
		if len(t.addresses) == 0 {
			continue
		}
		key := endpointKey{t.name, t.addresses[0]}
		if takes[key.id()] {
			continue
		}
		left++
		if e := b.endpoints.all[key]; e != nil && why == "" {
			why = ": " + e.whyNot()
		}
	}
	if left == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d instances left out%s", left, len(u.route.targets), why)
}

// whyNot says why an endpoint takes no calls. The caller holds the lock.
func (e *endpoint) whyNot() string {
	switch now := time.Now(); {
	case e.err != nil:
		return e.err.Error()
	case e.unresponsive.Load():
		return e.address + " does not answer pings"
	case now.Before(e.ejectedUntil):
		return fmt.Sprintf("%s ended %d calls in a row with Unavailable", e.address, ejectAfter)
	case e.usable():
		return "a connection to it has just ended"
	}
	return e.address + " is not connected"
}
