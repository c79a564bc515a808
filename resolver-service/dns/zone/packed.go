package zone

import (
	"net/netip"
	"unsafe"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// packedPlan is what is kept with a plan: a packed route for each route. It is made when
// somebody asks for the app for the first time.
type packedPlan struct{ routes []packedRoute }

// packedRoute has either the addresses of instances, or the cluster whose gateways the
// route leads through; neither where the route can't be taken, or where the cluster was
// not known when it was packed.
type packedRoute struct {
	direct  *addresses
	gateway *cluster
}

// packedOf is what is kept with a plan.
func (z *Zone) packedOf(p *catalog.Plan) *packedPlan {
	if packed, ok := p.Memo().(*packedPlan); ok {
		return packed
	}
	packed := &packedPlan{routes: make([]packedRoute, len(p.Routes))}
	for i := range p.Routes {
		switch r := &p.Routes[i]; {
		case len(r.Addresses) == 0:
		case r.Gateway:
			packed.routes[i].gateway = z.gateways.load().byName[r.Cluster]
		default:
			packed.routes[i].direct = packInstances(r.Addresses)
		}
	}
	p.Keep(packed)
	return packed
}

func packInstances(listed []string) *addresses {
	all := make([]netip.Addr, 0, len(listed))
	for _, instance := range listed {
		if at, err := netip.ParseAddrPort(instance); err == nil {
			all = append(all, at.Addr())
		}
	}
	return pack(all)
}

// addresses are those of one of a plan's routes: of instances, or as they are at the moment of
// the gateways that it leads through. It is nil where none is known.
func (z *Zone) addresses(p *catalog.Plan, r *catalog.Route) (packed *addresses, gateway *cluster) {
	i := 0
	for r != &p.Routes[i] {
		i++
	}
	kept := &z.packedOf(p).routes[i]
	if !r.Gateway {
		return kept.direct, nil
	}
	all := z.gateways.load()
	gateway = kept.gateway
	if gateway == nil || gateway.gone.Load() {
		if gateway = all.byName[r.Cluster]; gateway == nil {
			return nil, nil
		}
	}
	return gateway.packed.Load(), gateway
}

// usable tells whether lookups may fall on a route.
func usable(r *catalog.Route) bool { return r.Weight > 0 && reachable(r) }

// reachable tells whether a route leads somewhere, also one that takes no traffic.
func reachable(r *catalog.Route) bool {
	return (r.State == catalog.Ready || r.State == catalog.Lapsed) && len(r.Addresses) > 0
}

// manyAddresses is from how many on the one that a lookup chose is not searched for.
const manyAddresses = 64

// place is where among a route's addresses the one is that a lookup chose, out of n.
func place(r *catalog.Route, chosen string, n int) int {
	if n < 2 {
		return 0
	}
	if len(r.Addresses) < manyAddresses {
		for i := range r.Addresses {
			if unsafe.StringData(r.Addresses[i]) == unsafe.StringData(chosen) {
				return i * n / len(r.Addresses)
			}
		}
	}
	return anywhere(n)
}
