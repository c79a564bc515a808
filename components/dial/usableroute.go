package dial

import (
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// usableRoute is a route with its instances that take calls. If there are none, calls are due to it
// all the same.
type usableRoute struct {
	route      *route
	state      *routeState
	candidates []candidate // those in the caller's zone first, if the view prefers it
	inZone     int         // how many are in the zone
	offer      catalog.Offer
}

func (u *usableRoute) takes() bool { return len(u.candidates) > 0 }

// usableRoutes goes through the priorities until one takes all calls, and connects their
// endpoints. Without any usable route, hopeful tells that a connection may still come about. The
// caller holds the lock.
func (b *planBalancer) usableRoutes(now time.Time, wakeBy func(time.Time)) (usable []usableRoute, hopeful bool) {
	routes := b.plan.routes
	connecting := false
	for first, end := 0, 0; first < len(routes); first = end {
		for end = first; end < len(routes) && routes[end].Priority == routes[first].Priority; end++ {
		}
		var level []catalog.Offer
		waits := false
		for i := first; i < end; i++ {
			r, route := &routes[i], b.connectRoute(&routes[i], now, wakeBy)
			connecting = connecting || route.connecting
			level = append(level, route.offer)
			if route.offer.Weight > 0 {
				usable = append(usable, route.usableRoute)
			}
			if !route.takes() && route.waitUntil.After(now) {
				waits = true
				wakeBy(route.waitUntil)
			}
			waits = waits || r.lookupPending
		}
		share := catalog.LevelShare(level)
		if share == 1 {
			return usable, false
		}
		if share == 0 && waits {
			return usable, true
		}
	}
	return usable, connecting
}

// connectedRoute is what connectRoute returns.
type connectedRoute struct {
	usableRoute
	waitUntil  time.Time // if no endpoint is usable; zero if calls need not wait
	connecting bool      // a connection may still come about
}

// connectRoute connects the endpoints of a route. The caller holds the lock.
func (b *planBalancer) connectRoute(r *route, now time.Time, wakeBy func(time.Time)) connectedRoute {
	c := connectedRoute{usableRoute: usableRoute{route: r, state: b.routeState(r.Cluster)}}
	all := r.candidates(func(t *target, key endpointKey) *endpoint {
		e := b.endpoint(r, t, key)
		e.wanted = true
		e.outOfZone.Store(t.outOfZone)
		c.connecting = c.connecting || e.connecting()
		if e.usable() {
			return e
		}
		if until := e.waitUntil(); until.After(c.waitUntil) {
			c.waitUntil = until
		}
		return nil
	})
	var elsewhere, suspects []candidate
	for _, to := range all {
		switch until := to.instance.endedAt.Add(suspectFor); {
		case until.After(now):
			suspects = append(suspects, to)
			wakeBy(until)
		case to.target.outOfZone:
			elsewhere = append(elsewhere, to)
		default:
			c.candidates = append(c.candidates, to)
		}
	}
	c.inZone = len(c.candidates)
	c.candidates = append(c.candidates, elsewhere...)
	if len(c.candidates) == 0 { // for example, the one gateway in front of all of them was lost
		c.candidates = suspects
	}
	ramp := c.state.ramp.percent(c.takes(), now, wakeBy)
	if c.offer = r.Offer(); c.takes() {
		c.offer.Ramp = float64(min(ramp, r.Percent())) / 100
		c.offer.Capacity = b.endpoints.capacity(&c.usableRoute)
	} else if c.offer.Capacity = 0; r.MinReady == 0 {
		c.offer.Weight = 0
	}
	return c
}

// fallbackRoute returns the first route with a connection, though none is usable: an endpoint
// that is unresponsive or ejected beats no endpoint. The caller holds the lock.
func (b *planBalancer) fallbackRoute() []usableRoute {
	for i := range b.plan.routes {
		r := &b.plan.routes[i]
		connected := r.candidates(func(_ *target, key endpointKey) *endpoint {
			if e := b.endpoints.all[key]; e != nil && e.state == connectivity.Ready {
				return e
			}
			return nil
		})
		if len(connected) > 0 {
			return []usableRoute{{route: r, state: b.routeState(r.Cluster), candidates: connected}}
		}
	}
	return nil
}

// candidates groups the endpoints of a route by instance. The function returns the endpoint to
// include, or nil.
func (r *route) candidates(include func(*target, endpointKey) *endpoint) (all []candidate) {
	for i := range r.targets {
		c := candidate{target: &r.targets[i]}
		for _, address := range c.target.addresses {
			if e := include(c.target, endpointKey{c.target.name, address}); e != nil {
				c.instance, c.endpoints = e.instance, append(c.endpoints, e)
			}
		}
		if len(c.endpoints) > 0 {
			all = append(all, c)
		}
	}
	return all
}

// routeState returns what the channel remembers of its calls to a cluster. The caller holds the
// lock.
func (b *planBalancer) routeState(cluster string) *routeState {
	s := b.routes[cluster]
	if s == nil {
		s = b.plan.channel.callee.counts.open(cluster)
		b.routes[cluster] = s
	}
	return s
}
