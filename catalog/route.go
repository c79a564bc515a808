package catalog

import (
	"fmt"
	"slices"
	"strings"
)

// RouteState says what stands behind a route at the moment.
type RouteState uint8

// The states of a route. Only Ready, Lapsed, Damped and LastResort routes have addresses.
const (
	Ready          RouteState = iota // instances are ready there
	Lapsed                           // the lease has run out; served all the same, as the selection asks
	Empty                            // no instance is ready there
	NotExported                      // the cluster does not export the app to this caller
	UnknownCluster                   // no Cluster object has this name
	Unheard                          // nothing has been heard from the cluster yet
	LeaseExpired                     // the lease has run out, and the selection withdraws the route
	Delegated                        // the app's own cluster, left to the user's Dapr resolver, which was not asked yet
	Damped                           // instances are ready there, but its lease ran out too often lately; another route is usable
	LastResort                       // the same, and used because no other route is usable
)

// Route is one way to an app with what is known of it. It is immutable.
type Route struct {
	Cluster   string // the cluster's own name, also for the caller's cluster
	Priority  uint32
	Weight    uint32
	State     RouteState
	Local     bool     // in the caller's own cluster
	Gateway   bool     // Addresses lead through a gateway
	Ramp      uint8    // the share of what is due to it that it takes for now, in percent; 0 stands for all
	Ready     uint32   // instances ready behind the route
	Draining  uint32   // instances that take no new calls
	Addresses []string // "ip:port" each, or one "<host name>:port", or one such for each shard
	// Instances are the tokens of the instances behind a gateway, for callers that go on
	// elsewhere where one of them is not ready any more. None where they are not told.
	Instances []uint32
	// Zones are those of Addresses or, behind a gateway, of Instances, where the caller is to
	// prefer its own; nil where it is not, or none is known.
	Zones *Zones
}

// Usable tells whether lookups may fall on the route.
func (r *Route) Usable() bool {
	return r.Weight > 0 && (r.State == Ready || r.State == Lapsed || r.State == LastResort)
}

// Percent is what the route takes of what is due to it.
func (r *Route) Percent() uint64 {
	if r.Ramp == 0 || r.Ramp > 100 {
		return 100
	}
	return uint64(r.Ramp)
}

// firstShard is how the address of the first shard begins; see [Domain.GatewayAddresses].
const firstShard = "0."

// Shards is over how many host names callers spread; 0 where there is one.
func (r *Route) Shards() int {
	if r.Gateway && len(r.Addresses) > 1 && strings.HasPrefix(r.Addresses[0], firstShard) {
		return len(r.Addresses)
	}
	return 0
}

// GatewayAddress is "<host name>:port" of the app behind a gateway route, without a
// shard; empty for any other route.
func (r *Route) GatewayAddress() string {
	switch {
	case !r.Gateway || len(r.Addresses) == 0:
		return ""
	case r.Shards() > 0:
		return r.Addresses[0][len(firstShard):]
	default:
		return r.Addresses[0]
	}
}

// LocalRoute is the route to ready instances in the caller's own cluster, where so many
// more are draining. It keeps the slice.
func LocalRoute(addresses []string, draining uint32) Route {
	return reachable(Route{Local: true, Ready: uint32(len(addresses)), Draining: draining, Addresses: addresses})
}

// RemoteRoute is the route to a cluster that exports an app and has so many instances
// of it ready and draining: directly where such addresses are given, otherwise through
// its gateway, by what [Domain.GatewayAddresses] makes. It keeps the slices.
func RemoteRoute(ready, draining uint32, direct, gateway []string) Route {
	r := Route{Ready: ready, Draining: draining, Addresses: direct}
	if len(direct) == 0 {
		r.Gateway, r.Addresses = true, gateway
	}
	return reachable(r)
}

func reachable(r Route) Route {
	if r.Ready == 0 {
		r.State, r.Addresses, r.Instances, r.Zones = Empty, nil, nil, nil
	}
	return r
}

func (r *Route) equal(o *Route) bool {
	return r.Cluster == o.Cluster && r.Priority == o.Priority && r.Weight == o.Weight && r.State == o.State &&
		r.Local == o.Local && r.Gateway == o.Gateway && r.Ramp == o.Ramp && r.Ready == o.Ready && r.Draining == o.Draining &&
		sameAddresses(r.Addresses, o.Addresses) && slices.Equal(r.Instances, o.Instances) && r.Zones.Equal(o.Zones)
}

// sameAddresses need not look at slices that many routes share.
func sameAddresses(a, b []string) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

// why says in a few words what the route's state means.
func (r *Route) why(app App) string {
	switch r.State {
	case Ready:
		if r.Weight == 0 {
			return "weight is 0"
		}
		return fmt.Sprintf("%d ready", r.Ready) + r.suffix()
	case Lapsed:
		return fmt.Sprintf("stale, %d ready when last heard; served because whenStale is serve", r.Ready) + r.suffix()
	case Empty:
		return "no ready instance of " + app.String() + r.suffix()
	case NotExported:
		return "does not export " + app.String() + " to the caller"
	case UnknownCluster:
		return "no Cluster object has this name"
	case Unheard:
		return "nothing heard from its resolver service yet"
	case LeaseExpired:
		return "lease has run out; withdrawn because whenStale is withdraw"
	case Delegated:
		return "left to the Dapr resolver configured as local, which was not asked yet"
	case Damped, LastResort:
		if r.Weight == 0 {
			return "weight is 0"
		}
		if r.State == LastResort {
			return fmt.Sprintf("%d ready, damped, used because nothing else is ready", r.Ready) + r.suffix()
		}
		return fmt.Sprintf("%d ready, damped: its lease ran out too often lately", r.Ready) + r.suffix()
	default:
		return fmt.Sprintf("state %d", r.State)
	}
}

func (r *Route) suffix() (more string) {
	if r.Draining > 0 {
		more += fmt.Sprintf(", %d draining", r.Draining)
	}
	if n := r.Shards(); n > 0 {
		more += fmt.Sprintf(", over %d shards", n)
	}
	if r.Percent() < 100 {
		more += fmt.Sprintf("; takes %d %% for now: traffic comes back in steps", r.Ramp)
	}
	return more
}
