package zone

import (
	"math/rand/v2"
	"net/netip"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/dns/wire"
)

// appRecords answers an app's name, and the names of its shards and instances: by the view that
// holds the entry where route is nil, else by that route alone.
func (x *exchange) appRecords(n *name, entry *catalog.Entry, route *catalog.Route) {
	if n.host != "" && !isShard(n.host) {
		x.instance(n, entry, route)
		return
	}
	switch n.service {
	case noProtocol:
		x.empty(n)
		return
	case daprService:
		x.serviceRecords(n, entry, route)
		return
	}
	switch x.asked.Type {
	case wire.TypeA, wire.TypeAAAA, wire.TypeHTTPS, wire.TypeSVCB:
		if route == nil {
			x.byView(n, entry)
		} else {
			x.byRoute(n, entry, route)
		}
	case wire.TypeTXT:
		x.explain(entry, route)
	default:
		x.empty(n)
	}
}

// byView answers an app's name without a cluster with addresses: each query falls on one
// route, by priority and weight.
func (x *exchange) byView(n *name, entry *catalog.Entry) {
	chosen, route := entry.Pick()
	if route == nil || chosen == "" {
		x.nothingReady(n, entry, nil)
		return
	}
	if len(entry.Routes) > 1 && !x.serves(entry.Plan, route) {
		route, chosen = x.instead(entry.Plan, route), ""
	}
	x.taken(n, entry, route, chosen, x.zone.ttl)
}

// serves tells whether a route has an address to answer with, of the family that is asked
// for where it is one.
func (x *exchange) serves(p *catalog.Plan, r *catalog.Route) bool {
	packed, _ := x.addresses(p, r)
	if t := x.asked.Type; !packed.none() && (t == wire.TypeA || t == wire.TypeAAAA) {
		records, _ := packed.of(t)
		return len(records) > 0
	}
	return !packed.none()
}

// instead is what answers where the route that a lookup chose does not serve: another of its
// priority, by weight, and the chosen one where none does. A client asks for A and AAAA
// apart, and each may fall on a route that has the other family alone; so it would be left
// without any address now and then.
func (x *exchange) instead(p *catalog.Plan, chosen *catalog.Route) *catalog.Route {
	found, total := chosen, uint32(0)
	for i := range p.Routes {
		r := &p.Routes[i]
		if r.Priority != chosen.Priority || !usable(r) || !x.serves(p, r) {
			continue
		}
		if total += r.Weight; rand.Uint32N(total) < r.Weight {
			found = r
		}
	}
	return found
}

// byRoute answers an app's name in a cluster with addresses.
func (x *exchange) byRoute(n *name, entry *catalog.Entry, route *catalog.Route) {
	if !reachable(route) {
		x.nothingReady(n, entry, route)
		return
	}
	ttl := x.zone.ttl
	if route.Gateway {
		ttl = x.zone.gatewayTTL
	}
	x.taken(n, entry, route, "", ttl)
}

// taken answers with a route's addresses. Chosen is the one that comes first; empty: any.
func (x *exchange) taken(n *name, entry *catalog.Entry, route *catalog.Route, chosen string, ttl uint32) {
	packed, because := x.addresses(entry.Plan, route)
	if packed.none() {
		x.unresolved(because)
		return
	}
	x.outcome = answered
	ttl = x.routeTTL(route, ttl)
	if t := x.asked.Type; t != wire.TypeA && t != wire.TypeAAAA {
		x.bindings(packed, route, ttl)
		return
	}
	records, size := packed.of(x.asked.Type)
	if len(records) == 0 {
		x.soa(n)
		if x.outcome == answered {
			x.outcome = noData
		}
		return
	}
	if x.unnamed && route.Gateway {
		x.unnamedCallers(n, route, packed)
	}
	first := 0
	if count := len(records) / size; count > 1 {
		if first = anywhere(count); !route.Gateway && chosen != "" {
			first = place(route, chosen, count)
		}
	}
	x.response.Rotated(records, size, first, ttl)
}

// routeTTL is the TTL of what comes of a route: less where it is served although its
// cluster's lease has run out, and then the outcome says so.
func (x *exchange) routeTTL(route *catalog.Route, ttl uint32) uint32 {
	if route.State != catalog.Lapsed {
		return ttl
	}
	x.outcome, x.why = servedStale, why{about: whyLapsed, text: route.Cluster}
	return min(ttl, x.zone.negative)
}

// throughGateway answers, for a caller that is not known, the name of an app in another
// cluster, or of a shard of one.
func (x *exchange) throughGateway(n *name, gateway *cluster) {
	packed, because := gateway.load()
	t := x.asked.Type
	switch {
	case n.service == noProtocol, n.service == daprService && t != wire.TypeSRV, n.service == noService && t == wire.TypeTXT:
		x.empty(n)
	case packed.none():
		x.unresolved(because)
	case n.service == daprService:
		x.outcome = answered
		x.srv(x.zone.gatewayTTL, 0, 1, packed.port, x.asked.Name.From(n.base))
	case t == wire.TypeA || t == wire.TypeAAAA:
		x.outcome = answered
		records, size := packed.of(t)
		if len(records) == 0 {
			x.empty(n)
			return
		}
		x.response.Rotated(records, size, anywhere(len(records)/size), x.zone.gatewayTTL)
	case t == wire.TypeHTTPS || t == wire.TypeSVCB:
		x.outcome = answered
		x.binding(packed.port, packed, x.zone.gatewayTTL)
	default:
		x.empty(n)
	}
}

// instance answers the name of one ready instance.
func (x *exchange) instance(n *name, entry *catalog.Entry, route *catalog.Route) {
	address, ok := parseInstance(n.host)
	if ok && route.State == catalog.Unheard {
		x.nothingReady(n, entry, route)
		return
	}
	if !ok || !reachable(route) || route.Gateway || !hasInstance(route, address) {
		x.missing(n, notFound, whyNoInstance)
		return
	}
	x.outcome = answered
	ttl := x.routeTTL(route, x.zone.ttl)
	switch t := x.asked.Type; {
	case n.service == noProtocol:
		x.empty(n)
	case n.service == daprService && t == wire.TypeSRV:
		for i := range route.Addresses {
			if at, err := netip.ParseAddrPort(route.Addresses[i]); err == nil && plain(at.Addr()) == address {
				x.srv(ttl, 0, 1, at.Port(), x.asked.Name.From(n.base))
			}
		}
	case n.service == daprService:
		x.empty(n)
	case t == wire.TypeA && address.Is4(), t == wire.TypeAAAA && address.Is6():
		x.response.Address(wire.Answer, wire.Owner, ttl, address)
	case t == wire.TypeTXT:
		x.explain(entry, route)
	default:
		x.empty(n)
	}
}

func hasInstance(route *catalog.Route, address netip.Addr) bool {
	for i := range route.Addresses {
		if at, err := netip.ParseAddrPort(route.Addresses[i]); err == nil && plain(at.Addr()) == address {
			return true
		}
	}
	return false
}

// nothingReady answers for an app that the caller may call, with nothing ready behind the
// entry, or behind the one route that is asked for.
func (x *exchange) nothingReady(n *name, entry *catalog.Entry, route *catalog.Route) {
	if !x.settled {
		x.wait(whyNotSettled)
		return
	}
	x.soa(n)
	x.outcome = unavailable
	if route == nil && entry.Outcome() == catalog.Stale || route != nil && route.State == catalog.LeaseExpired {
		x.outcome = stale
	}
	if x.asked.EDNS { // made of strings, so only where somebody reads it
		var plan *catalog.Plan
		if route == nil {
			plan = x.withUnheard(entry).Plan
		} else {
			plan = catalog.NewPlan(entry.App, []catalog.Route{*route})
		}
		x.why = why{about: whyText, text: plan.Refusal().Error()}
	}
}

// unresolved answers where a route leads through gateways of which no address is known.
func (x *exchange) unresolved(because string) {
	x.outcome, x.why = unresolved, why{about: whyText, text: because}
	x.response.Authoritative = false
}

// missing answers for a name that is not there for the caller.
func (x *exchange) missing(n *name, o outcome, about about) {
	if (about == whyUnknown || about == whyNotHeld && o == notFound || about == whyNoInstance) && !x.settled {
		x.wait(whyNotSettled)
		return
	}
	x.outcome, x.why = o, why{about: about, app: n.label(), trim: !n.domain}
	x.soa(n)
}

// empty answers for a name that is there and has no records of the type that is asked for:
// without data, or for ANY with as little as may be (RFC 8482).
func (x *exchange) empty(n *name) {
	if x.asked.Type == wire.TypeANY {
		x.hinfo()
		return
	}
	x.outcome, x.why = noData, why{}
	x.soa(n)
}

// between is empty for a name that is not an app's, and that people write who leave the
// namespace out.
func (x *exchange) between(n *name) {
	if x.empty(n); x.outcome == noData {
		x.why = why{about: whyBetween}
	}
}

func (x *exchange) hinfo() {
	x.outcome = answered
	mark := x.response.Open(wire.Owner, wire.TypeHINFO, x.zone.ttl)
	x.response.Text("RFC8482")
	x.response.Text("")
	x.response.Close(wire.Answer, mark)
}

// itself is rule 1 of a lookup for an app without a selection, in a cluster where such
// apps see nothing: it sees its own instances all the same. They have to be asked for.
func (x *exchange) itself(n *name) {
	if entry := x.self(); entry != nil {
		x.held(n, entry)
	}
}

// self is what the caller sees of itself. Where it is nil, the exchange is later, or its outcome
// not ready.
func (x *exchange) self() *catalog.Entry {
	if x.ctx == nil {
		x.later = true
		return nil
	}
	entry, err := x.zone.topology.Self(x.ctx, x.who.app)
	if err != nil {
		x.wait(whyText)
		x.why.text = "not ready: the service is stopping, or has too much to do; ask again"
		return nil
	}
	return entry
}
