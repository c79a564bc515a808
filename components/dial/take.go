package dial

import (
	"errors"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// takeKey is the key of the headers of a call that guests take calls by, a []catalog.HeaderValue.
type takeKey struct{}

// take is a route to a guest, for calls with a header or for all.
type take struct {
	route
	header catalog.HeaderValue
}

// takeable is a take as far as it is connected.
type takeable struct {
	catalog.TakenRoute
	picker *picker // nil: no call can go there
	waits  bool    // a connection is about to come, and calls wait for it
}

// takePicker gives calls to the guests that take them, and all others to the plan.
type takePicker struct {
	takes []takeable
	next  balancer.Picker
}

// Pick sends a call to the first guest that takes it and can. A call that failed there goes on as if
// no guest took it.
func (p *takePicker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	if call, ok := info.Ctx.Value(madeKey{}).(*madeCall); ok && call.attempts.Load() > 0 {
		return p.next.Pick(info)
	}
	headers, _ := info.Ctx.Value(takeKey{}).([]catalog.HeaderValue)
	for i := range p.takes {
		switch t := &p.takes[i]; {
		case !t.Takes(headers):
		case t.picker != nil:
			return t.picker.Pick(info)
		case t.waits:
			return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
		}
	}
	return p.next.Pick(info)
}

// connectTakes connects the endpoints of guests. The caller holds the lock.
func (b *planBalancer) connectTakes(now time.Time, wakeBy func(time.Time)) {
	b.takes = nil
	for i := range b.plan.takes {
		to := &b.plan.takes[i]
		c := b.connectRoute(&to.route, now, wakeBy)
		t := takeable{TakenRoute: catalog.TakenRoute{Header: to.header}, waits: to.lookupPending}
		if c.takes() {
			t.picker = &picker{routes: []usableRoute{c.usableRoute}}
		} else if c.waitUntil.After(now) {
			t.waits = true
			wakeBy(c.waitUntil)
		}
		b.takes = append(b.takes, t)
	}
}

// pickBy has calls go by a picker, if no guest takes them. The caller holds the lock.
func (b *planBalancer) pickBy(state connectivity.State, p balancer.Picker) {
	if len(b.takes) > 0 {
		p = &takePicker{b.takes, p}
	}
	b.cc.UpdateState(balancer.State{ConnectivityState: state, Picker: p})
}

// addTakes adds the routes to guests.
func (p *plan) addTakes(entry *catalog.Entry, before *plan) {
	for i := range entry.Takes() {
		t := entry.Takes()[i]
		var to route
		if t.Usable() {
			to = p.routeTo(t.Route, before)
		} else {
			to = route{Route: t.Route, err: errors.New(t.Why(entry.App))}
		}
		p.takes = append(p.takes, take{to, t.Header})
	}
}

// leadsToGuest tells whether a cluster gets the calls alone that it takes.
func (p *plan) leadsToGuest(cluster string) bool {
	for i := range p.takes {
		if p.takes[i].Cluster == cluster {
			return true
		}
	}
	return false
}
