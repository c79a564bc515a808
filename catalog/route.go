package catalog

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// RouteState is the current state of a route.
type RouteState uint8

// The states of a route. Only Ready, Lapsed, Damped and LastResort routes have addresses.
const (
	Ready          RouteState = iota // it has ready instances
	Lapsed                           // the lease has ended; still used, as the selection asks
	Empty                            // it has no ready instance
	NotExported                      // the cluster does not export the app to this caller
	UnknownCluster                   // no Cluster object has this name
	Unheard                          // no message from the cluster yet
	LeaseExpired                     // the lease has ended, and the selection withdraws the route
	Delegated                        // the own cluster, left to the user's Dapr resolver
	Damped                           // ready, but its lease ended often; others are usable
	LastResort                       // the same, but used: no other route is usable
	GuestOnly                        // the cluster is a guest, and gets the calls that it takes alone
	Asked                            // the cluster was asked a moment ago, and is about to answer
)

var routeStates = [...]string{
	"ready", "stale", "no instance", "not exported", "no Cluster object", "unheard", "withdrawn", "left to Dapr", "damped", "last resort", "guest", "asked",
}

// String is the state in one or two words.
func (s RouteState) String() string {
	if int(s) < len(routeStates) {
		return routeStates[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// Route is one way to an app, with its state. It is immutable.
type Route struct {
	RouteSpec // as the selection has it; Cluster is the cluster's own name, also for the caller's cluster

	State     RouteState
	Local     bool     // in the caller's own cluster
	Gateway   bool     // Addresses lead through a gateway
	Ramp      uint8    // percent of its traffic that it gets for now; 0 means all
	Ready     uint32   // instances ready behind the route
	Draining  uint32   // instances that take no new calls
	Addresses []string // "ip:port" each; or one "<host name>:port"; or one such for each shard
	// Instances are the tokens of the instances behind a gateway. With them, a caller can retry
	// elsewhere when one instance is no longer ready. Empty if they are unknown.
	Instances []uint32
	// Zones are the zones of Addresses or, behind a gateway, of Instances. It is nil unless the
	// caller prefers its own zone and some zone is known.
	Zones *Labels
	// Running are the versions of the ready instances, before Versions leaves some out. It is nil if none
	// is known, and in sidecars.
	Running *Labels
}

// Usable tells whether lookups may take the route.
func (r *Route) Usable() bool {
	return r.Weight > 0 && (r.State == Ready || r.State == Lapsed || r.State == LastResort)
}

// Percent is how much of its traffic the route gets while it ramps up.
func (r *Route) Percent() uint64 {
	if r.Ramp == 0 || r.Ramp > 100 {
		return 100
	}
	return uint64(r.Ramp)
}

// Lacks tells whether calls are due to the route that it can't take. They go on to the next priority,
// and not to the others of its own.
func (r *Route) Lacks() bool { return r.MinReady != 0 && r.Weight > 0 && !r.Usable() }

// Offer is what the route offers to calls.
func (r *Route) Offer() Offer {
	o := Offer{RouteSpec: r.RouteSpec, Ramp: float64(r.Percent()) / 100}
	switch {
	case r.Usable():
		o.Capacity = r.MinReady.Capacity(float64(r.Ready), r.Ready+r.Draining)
	case !r.Lacks():
		o.Weight = 0
	}
	return o
}

// offersOf appends the offers of routes.
func offersOf(routes []Route, to []Offer) []Offer {
	for i := range routes {
		to = append(to, routes[i].Offer())
	}
	return to
}

// firstShard is the prefix of the first shard's address; see [Domain.GatewayAddresses].
const firstShard = "0."

// Shards is how many host names callers spread over; 0 for a single one.
func (r *Route) Shards() int {
	if r.Gateway && len(r.Addresses) > 1 && strings.HasPrefix(r.Addresses[0], firstShard) {
		return len(r.Addresses)
	}
	return 0
}

// GatewayAddress is "<host name>:port" of the app behind a gateway route, without a shard; empty
// for any other route.
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

// LocalRoute is the route to ready instances in the caller's own cluster. draining is how many
// more are draining. It keeps the slice.
func LocalRoute(addresses []string, draining uint32) Route {
	return reachable(Route{Local: true, Ready: uint32(len(addresses)), Draining: draining, Addresses: addresses})
}

// RemoteRoute is the route to a cluster that exports an app, with its ready and draining
// instances. It leads directly to the direct addresses if there are any, or else through the
// gateway, with the result of [Domain.GatewayAddresses]. It keeps the slices.
func RemoteRoute(ready, draining uint32, direct, gateway []string) Route {
	r := Route{Ready: ready, Draining: draining, Addresses: direct}
	if len(direct) == 0 {
		r.Gateway, r.Addresses = true, gateway
	}
	return reachable(r)
}

func reachable(r Route) Route {
	if r.Ready == 0 {
		r.end(Empty)
	}
	return r
}

// end gives the route a state in which it leads nowhere.
func (r *Route) end(s RouteState) {
	r.State, r.Addresses, r.Instances, r.Zones, r.Running = s, nil, nil, nil, nil
}

func (r *Route) equal(o *Route) bool {
	return r.RouteSpec == o.RouteSpec && r.State == o.State && r.Local == o.Local && r.Gateway == o.Gateway && r.Ramp == o.Ramp &&
		r.Ready == o.Ready && r.Draining == o.Draining && sameAddresses(r.Addresses, o.Addresses) && slices.Equal(r.Instances, o.Instances) && r.Zones.Equal(o.Zones) && r.Running.Equal(o.Running)
}

// sameAddresses compares fast if routes share a slice.
func sameAddresses(a, b []string) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

// Why describes the route's state in a few words.
func (r *Route) Why(app App) string {
	why := r.why(app)
	if r.Lacks() {
		why += "; its share goes on to the next priority, since minReady is " + r.MinReady.String()
	}
	return why
}

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
		if r.Versions == "" {
			return "no ready instance of " + app.String() + r.suffix()
		}
		return fmt.Sprintf("no ready instance of %s of version %s; of those ready, %s", app, r.Versions, cmp.Or(r.Running.String(), "none says its version"))
	case NotExported:
		return "does not export " + app.String() + " to the caller: no AppExport there lets it in"
	case UnknownCluster:
		return "no Cluster object has this name"
	case GuestOnly:
		return "is a guest, which gets the calls that it takes and no other"
	case Unheard:
		return "nothing heard from its resolver service yet"
	case Asked:
		return "its resolver service is being asked"
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
	if c := r.Offer().Capacity; r.Usable() && c < 1 {
		more += fmt.Sprintf("; carries %.0f %% of its share, since minReady is %s", math.Ceil(100*c), r.MinReady)
	}
	return more
}
