package zone

import (
	"net/netip"

	"github.com/isthmus-mesh/isthmus/resolver-service/dns/wire"
)

// pointer4 answers d.c.b.a.in-addr.arpa where a.b.c.d is an instance that the caller may
// see. It tells whether it is.
func (x *exchange) pointer4(below int) bool {
	if below != 4 {
		return false
	}
	var four [4]byte
	for i := range four {
		label := x.asked.Name.Label(i)
		if !isShard(label) || len(label) > 3 {
			return false
		}
		part := 0
		for _, c := range []byte(label) {
			part = part*10 + int(c-'0')
		}
		if part > 255 {
			return false
		}
		four[3-i] = byte(part)
	}
	return x.pointer(netip.AddrFrom4(four))
}

// pointer6 is pointer4 for names below ip6.arpa, of 32 labels of a digit each.
func (x *exchange) pointer6(below int) bool {
	if below != 32 {
		return false
	}
	var sixteen [16]byte
	for i := range below {
		label := x.asked.Name.Label(i)
		if len(label) != 1 {
			return false
		}
		var digit byte
		switch c := label[0]; {
		case '0' <= c && c <= '9':
			digit = c - '0'
		case 'a' <= c && c <= 'f':
			digit = c - 'a' + 10
		default:
			return false
		}
		sixteen[15-i/2] |= digit << (4 * (i % 2))
	}
	return x.pointer(netip.AddrFrom16(sixteen))
}

// pointer answers the reverse name of an address where it is an instance's, of one app
// that the caller's view holds.
func (x *exchange) pointer(address netip.Addr) bool {
	z := x.zone
	callers, _ := z.topology.Callers().Load()
	owner, ok := callers.Get(address)
	if !ok || owner.Shared || !x.who.known {
		return false
	}
	view, ok := z.view(x.who.app)
	if !ok {
		return false
	}
	if _, holds := view.Entries.Get(owner.App); !holds && owner.App != x.who.app {
		return false
	}
	x.view, x.outcome = view, answered
	r := &x.response
	r.Authoritative = true
	if x.asked.Type != wire.TypePTR {
		x.empty(&name{}) // of all reverse names this one alone is ours
		return true
	}
	mark := r.Open(wire.Owner, wire.TypePTR, z.ttl)
	r.Buf = z.appendInstanceName(r.Buf, address, owner.App, z.cfg.Cluster)
	r.Close(wire.Answer, mark)
	return true
}
