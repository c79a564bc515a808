package zone

import (
	"math/rand/v2"
	"net/netip"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

// lookup answers the name of an app, and the names of its shards, instances and services.
type lookup struct {
	*exchange
	entry *catalog.Entry // of the app in the caller's view
	only  *catalog.Route // the one to a cluster that the name says; nil: all of the entry's
	token bool           // the name is that of one instance behind a gateway
}

// addresses are those of a route that the name leads to. A route to some versions of an app can't be
// taken by the app's name, which any version answers at the gateway.
func (l *lookup) addresses(p *catalog.Plan, r *catalog.Route) (packed *addresses, because string) {
	if r.Narrowed() && !l.token {
		return nil, "the route is for some versions alone, which callers without Isthmus in their daprd can't name at a gateway"
	}
	return l.exchange.addresses(p, r)
}

func (l *lookup) answer(n *name) {
	part := n.host != "" && !isShard(n.host)
	if l.token = part && l.only.Gateway && catalog.IsInstanceLabel(n.host); part && !l.token {
		l.instance(n)
		return
	}
	switch n.service {
	case noProtocol:
		l.empty(n)
		return
	case daprService:
		l.services(n)
		return
	}
	switch l.asked.Type {
	case wire.TypeA, wire.TypeAAAA, wire.TypeHTTPS, wire.TypeSVCB:
		if l.only == nil {
			l.byView(n)
		} else {
			l.byRoute(n)
		}
	case wire.TypeTXT:
		l.explain()
	default:
		l.empty(n)
	}
}

// byView answers an app's name without a cluster with addresses: each query falls on one
// route, by priority and weight.
func (l *lookup) byView(n *name) {
	i, chosen := l.entry.PickAt()
	if chosen < 0 {
		l.nothingReady(n)
		return
	}
	route := &l.entry.Routes[i]
	if len(l.entry.Routes) > 1 && !l.serves(route) {
		route, chosen = l.instead(route), -1
	}
	l.taken(n, route, chosen, l.zone.ttl)
}

// serves tells whether a route has an address to answer with, of the family that is asked
// for where it is one.
func (l *lookup) serves(r *catalog.Route) bool {
	packed, _ := l.addresses(l.entry.Plan, r)
	if t := l.asked.Type; !packed.none() && (t == wire.TypeA || t == wire.TypeAAAA) {
		records, _ := packed.of(t)
		return len(records) > 0
	}
	return !packed.none()
}

// instead is what answers where the route that a lookup chose does not serve: another of its
// priority, by weight, and the chosen one where none does. A client asks for A and AAAA
// apart, and each may fall on a route that has the other family alone; so it would be left
// without any address now and then.
func (l *lookup) instead(chosen *catalog.Route) *catalog.Route {
	found, total := chosen, uint32(0)
	for i := range l.entry.Routes {
		r := &l.entry.Routes[i]
		if r.Priority != chosen.Priority || !usable(r) || !l.serves(r) {
			continue
		}
		if total += r.Weight; rand.Uint32N(total) < r.Weight {
			found = r
		}
	}
	return found
}

// byRoute answers an app's name in a cluster with addresses.
func (l *lookup) byRoute(n *name) {
	if !reachable(l.only) {
		l.nothingReady(n)
		return
	}
	ttl := l.zone.ttl
	if l.only.Gateway {
		ttl = l.zone.gatewayTTL
	}
	l.taken(n, l.only, -1, ttl)
}

// taken answers with a route's addresses. Chosen is the index of the one that comes first; -1: any.
func (l *lookup) taken(n *name, route *catalog.Route, chosen int, ttl uint32) {
	packed, because := l.addresses(l.entry.Plan, route)
	if packed.none() {
		l.unresolved(because)
		return
	}
	l.outcome = answered
	ttl = l.routeTTL(route, ttl)
	if t := l.asked.Type; t != wire.TypeA && t != wire.TypeAAAA {
		l.bindings(packed, route, ttl)
		return
	}
	records, size := packed.of(l.asked.Type)
	if len(records) == 0 {
		l.response.soa(&l.asked.Name, n)
		if l.outcome == answered {
			l.outcome = noData
		}
		return
	}
	if l.unnamed && route.Gateway {
		l.unnamedCallers(n, route, packed)
	}
	first := 0
	if count := len(records) / size; count > 1 {
		if first = anywhere(count); !route.Gateway && chosen >= 0 {
			first = chosen * count / len(route.Addresses)
		}
	}
	l.response.Rotated(records, size, first, ttl)
}

// routeTTL is the TTL of what comes of a route: less where it is served although its
// cluster's lease has run out, and then the outcome says so.
func (l *lookup) routeTTL(route *catalog.Route, ttl uint32) uint32 {
	if route.State != catalog.Lapsed {
		return ttl
	}
	l.outcome, l.why = servedStale, why{about: whyLapsed, text: route.Cluster}
	return min(ttl, l.zone.negative)
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
		x.response.srv(x.zone.gatewayTTL, 0, 1, packed.port, x.asked.Name.From(n.base))
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
		x.response.binding(x.asked.Type, packed.port, packed, x.zone.gatewayTTL)
	default:
		x.empty(n)
	}
}

// instance answers the name of one ready instance.
func (l *lookup) instance(n *name) {
	address, ok := parseInstance(n.host)
	if ok && (l.only.State == catalog.Unheard || l.only.State == catalog.Asked) {
		l.nothingReady(n)
		return
	}
	if !ok || !reachable(l.only) || l.only.Gateway || !hasInstance(l.only, address) {
		l.missing(n, notFound, whyNoInstance)
		return
	}
	l.outcome = answered
	ttl := l.routeTTL(l.only, l.zone.ttl)
	switch t := l.asked.Type; {
	case n.service == noProtocol:
		l.empty(n)
	case n.service == daprService && t == wire.TypeSRV:
		for i := range l.only.Addresses {
			if at, err := netip.ParseAddrPort(l.only.Addresses[i]); err == nil && plain(at.Addr()) == address {
				l.response.srv(ttl, 0, 1, at.Port(), l.asked.Name.From(n.base))
			}
		}
	case n.service == daprService:
		l.empty(n)
	case t == wire.TypeA && address.Is4(), t == wire.TypeAAAA && address.Is6():
		l.response.Address(wire.Answer, wire.Owner, ttl, address)
	case t == wire.TypeTXT:
		l.explain()
	default:
		l.empty(n)
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
func (l *lookup) nothingReady(n *name) {
	if !l.settled {
		l.wait(whyNotSettled)
		return
	}
	if l.entry.AwaitedIn(n.cluster) {
		l.awaitAnswer(n)
		return
	}
	l.response.soa(&l.asked.Name, n)
	l.outcome = unavailable
	if l.only == nil && l.entry.Outcome() == catalog.Stale || l.only != nil && l.only.State == catalog.LeaseExpired {
		l.outcome = stale
	}
	if l.asked.EDNS { // made of strings, so only where somebody reads it
		var plan *catalog.Plan
		if l.only == nil {
			plan = l.zone.withUnheard(l.entry).Plan
		} else {
			plan = catalog.NewPlan(l.entry.App, []catalog.Route{*l.only})
		}
		l.why = why{about: whyText, text: plan.Refusal().Error()}
	}
}

// awaitAnswer answers a name once a cluster has told of the app, or should have.
func (l *lookup) awaitAnswer(n *name) {
	if l.ctx == nil {
		l.later = true
		return
	}
	sub := l.zone.topology.Subscribe(l.who.app)
	defer sub.Close()
	view, ok := sub.Until(l.ctx, func(v *catalog.View) bool {
		e, held := v.ByOwnName(n.app)
		return !held || !e.AwaitedIn(n.cluster)
	})
	if !ok {
		l.wait(whyAsked)
		return
	}
	l.view = view
	l.app(n)
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
	x.response.soa(&x.asked.Name, n)
}

// empty answers for a name that is there and has no records of the type that is asked for:
// without data, or for ANY with as little as may be (RFC 8482).
func (x *exchange) empty(n *name) {
	if x.asked.Type == wire.TypeANY {
		x.outcome = answered
		x.response.hinfo()
		return
	}
	x.outcome, x.why = noData, why{}
	x.response.soa(&x.asked.Name, n)
}

// between is empty for a name that is not an app's, and that people write who leave the
// namespace out.
func (x *exchange) between(n *name) {
	if x.empty(n); x.outcome == noData {
		x.why = why{about: whyBetween}
	}
}

// hinfo is as little as may be of all records of a name.
func (r *response) hinfo() {
	mark := r.Open(wire.Owner, wire.TypeHINFO, r.zone.ttl)
	r.Text("RFC8482")
	r.Text("")
	r.Close(wire.Answer, mark)
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
