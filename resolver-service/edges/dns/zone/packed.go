package zone

import (
	"net/netip"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// packedPlan is what is kept with a plan of several routes: for each of them its packed
// *addresses of instances, or the *cluster whose gateways it leads through; nil where the
// route can't be taken, or where the cluster was not known when it was packed. Most plans
// have one route, and that is kept without the slice. Nothing is kept with a plan until
// somebody asks for its app.
type packedPlan []any

// packed is what is kept of one of a plan's routes.
func (z *Zone) packed(p *catalog.Plan, r *catalog.Route) any {
	memo := p.Memo(catalog.MemoDNS)
	if memo == nil {
		memo = z.keep(p)
	}
	several, ok := memo.(packedPlan)
	if !ok {
		return memo
	}
	for i := range p.Routes {
		if r == &p.Routes[i] {
			return several[i]
		}
	}
	return nil
}

// keep packs the routes of a plan, and keeps them.
func (z *Zone) keep(p *catalog.Plan) (memo any) {
	if len(p.Routes) == 1 {
		memo = z.packRoute(&p.Routes[0])
	} else {
		several := make(packedPlan, len(p.Routes))
		for i := range p.Routes {
			several[i] = z.packRoute(&p.Routes[i])
		}
		memo = several
	}
	if memo != nil {
		p.Keep(catalog.MemoDNS, memo)
	}
	return memo
}

func (z *Zone) packRoute(r *catalog.Route) any {
	switch {
	case len(r.Addresses) == 0:
	case !r.Gateway:
		return packInstances(r.Addresses)
	default:
		if c := z.gateways.load().byName[r.Cluster]; c != nil {
			return c
		}
	}
	return nil
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

// addresses are those of one of a plan's routes: of instances, or of the gateways that it
// leads through, as they are at the moment; for names that callers may dial without a
// server name, of those for the app alone if there are any. Where there are none, because
// says why.
func (x *exchange) addresses(p *catalog.Plan, r *catalog.Route) (packed *addresses, because string) {
	if !r.Gateway {
		packed, _ = x.zone.packed(p, r).(*addresses)
		return packed, ""
	}
	all := x.zone.gateways.load()
	gateway, _ := x.zone.packed(p, r).(*cluster)
	if gateway == nil || gateway.gone.Load() {
		gateway = all.byName[r.Cluster]
	}
	switch {
	case gateway != nil && x.unnamed:
		return gateway.loadFor(p.App)
	case gateway != nil:
		return gateway.load()
	}
	// The view is a moment older or newer than what is published of all clusters.
	return packGateways(r.Cluster, x.view.Gateways.Addresses[r.Cluster], x.zone.gateways.hosts())
}

// usable tells whether lookups may fall on a route.
func usable(r *catalog.Route) bool { return r.Usable() && reachable(r) }

// reachable tells whether a route leads somewhere, also one that takes no traffic.
func reachable(r *catalog.Route) bool { return len(r.Addresses) > 0 }
