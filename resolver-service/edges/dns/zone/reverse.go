package zone

import (
	"net/netip"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

// address4 reads d.c.b.a.in-addr.arpa, with so many labels before in-addr.arpa.
func address4(n *wire.Name, below int) (a netip.Addr, ok bool) {
	if below != 4 {
		return a, false
	}
	var four [4]byte
	for i := range four {
		label := n.Label(i)
		if !isShard(label) || len(label) > 3 {
			return a, false
		}
		part := 0
		for _, c := range []byte(label) {
			part = part*10 + int(c-'0')
		}
		if part > 255 {
			return a, false
		}
		four[3-i] = byte(part)
	}
	return netip.AddrFrom4(four), true
}

// address6 is address4 for names below ip6.arpa, of 32 labels of a digit each.
func address6(n *wire.Name, below int) (a netip.Addr, ok bool) {
	if below != 32 {
		return a, false
	}
	var sixteen [16]byte
	for i := range below {
		label := n.Label(i)
		if len(label) != 1 {
			return a, false
		}
		var digit byte
		switch c := label[0]; {
		case '0' <= c && c <= '9':
			digit = c - '0'
		case 'a' <= c && c <= 'f':
			digit = c - 'a' + 10
		default:
			return a, false
		}
		sixteen[15-i/2] |= digit << (4 * (i % 2))
	}
	return netip.AddrFrom16(sixteen), true
}

// reverse answers the reverse name of an address where it is that of an instance here, of one
// app that the caller's view leads to here: with the name that answers with the address.
func (x *exchange) reverse(address netip.Addr, ok bool) bool {
	if !ok {
		return false
	}
	z := x.zone
	callers, _ := z.topology.Callers().Load()
	owner, known := callers.Get(address)
	known = known && x.who.known
	view, synced := z.view(x.who.app)
	switch {
	case x.who.shared || owner.Shared:
		return false
	case !synced:
		return early(x, address, whyNotSynced)
	case !known && !x.settled:
		return early(x, address, whyNotSettled)
	case !known:
		return false
	}
	x.view = view
	entry, holds := view.ByOwnName(owner.App)
	if !holds {
		if owner.App != x.who.app || view.Open {
			return false
		}
		if entry = x.self(); entry == nil {
			return true
		}
	}
	route := routeTo(entry, z.cfg.Cluster)
	if route == nil {
		return false
	}
	pointTo(x, address, entry, route)
	return true
}

// early answers the reverse name of an address that nobody is known to have yet, if it is not a
// public one. What other servers say of the others is, for most, that they are not there, and
// that for hours (RFC 6303); of a public address they say what they will say later too.
func early(x *exchange, address netip.Addr, about about) bool {
	if !private(address) {
		return false
	}
	x.wait(about)
	return true
}

// pointTo answers the reverse name of an instance, which is ready where the route has its
// address.
func pointTo(x *exchange, address netip.Addr, entry *catalog.Entry, route *catalog.Route) {
	packed, _ := x.addresses(entry.Plan, route)
	ready := reachable(route) && packed.has(plain(address))
	if !ready && !x.settled {
		x.wait(whyNotSettled)
		return
	}
	r := &x.response
	r.Authoritative = true
	if x.asked.Type != wire.TypePTR || !ready {
		x.empty(&name{}) // of all reverse names this one alone is ours
		return
	}
	x.outcome = answered
	mark := r.Open(wire.Owner, wire.TypePTR, x.zone.ttl)
	r.Buf = x.zone.appendInstanceName(r.Buf, address, entry.App, x.zone.cfg.Cluster)
	r.Close(wire.Answer, mark)
}
