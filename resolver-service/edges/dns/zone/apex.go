package zone

import (
	"net/netip"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

// Times of the zone that secondaries would go by; there are none.
const (
	soaRefresh = 3600
	soaRetry   = 600
	soaExpire  = 86400
)

// soa adds the zone's SOA record to what says that nothing is there (RFC 2308).
func (r *response) soa(m *wire.Name, n *name) { r.soaRecord(wire.Authority, m, n) }

func (r *response) soaRecord(section wire.Section, m *wire.Name, n *name) {
	z := r.zone
	owner := m.Pointer(n.zone)
	mark := r.Open(owner, wire.TypeSOA, z.negative)
	r.Buf = wire.AppendLabel(r.Buf, "ns")
	r.domainName(n, owner)
	r.Buf = wire.AppendLabel(r.Buf, "hostmaster")
	r.domainName(n, owner)
	r.Uint32(z.serial(), soaRefresh, soaRetry, soaExpire, z.negative)
	r.Close(section, mark)
}

// domainName ends a name with the domain: by a pointer where the question's name has it.
func (r *response) domainName(n *name, owner uint16) {
	if n.domain {
		r.Uint16(owner)
		return
	}
	r.Buf = append(r.Buf, r.zone.domain.wire...)
}

// apex answers the name of the zone itself.
func (x *exchange) apex() {
	n := name{domain: true}
	r := &x.response
	x.outcome = answered
	switch x.asked.Type {
	case wire.TypeSOA:
		x.response.soaRecord(wire.Answer, &x.asked.Name, &n)
	case wire.TypeNS:
		mark := r.Open(wire.Owner, wire.TypeNS, x.zone.gatewayTTL)
		target := len(r.Buf)
		r.Buf = wire.AppendLabel(r.Buf, "ns")
		r.Uint16(wire.Owner)
		if pointer, ok := wire.PointerTo(target); r.Close(wire.Answer, mark) && ok {
			nameservers(x, func(a netip.Addr) { r.Address(wire.Additional, pointer, x.zone.gatewayTTL, a) })
		}
	default:
		x.empty(&n)
	}
}

// nameserver answers ns.<domain>, which is where this server is.
func (x *exchange) nameserver() {
	n := name{zone: 1, domain: true}
	x.outcome = noData
	nameservers(x, func(a netip.Addr) {
		if t := x.asked.Type; t == wire.TypeA && a.Is4() || t == wire.TypeAAAA && a.Is6() {
			x.outcome = answered
			x.response.Address(wire.Answer, wire.Owner, x.zone.gatewayTTL, a)
		}
	})
	if x.outcome == noData {
		x.empty(&n)
	}
}

// nameservers are the addresses of this server: those that are configured, or the one
// that was asked.
func nameservers(x *exchange, each func(netip.Addr)) {
	if len(x.zone.cfg.Nameserver) == 0 {
		if a := plain(x.query.To); a.IsValid() {
			each(a)
		}
		return
	}
	for _, a := range x.zone.cfg.Nameserver {
		each(plain(a))
	}
}

// dnsVersion answers dns-version.<domain>: the version of the specification of names
// in several clusters (KEP 1645) that these names follow.
func (x *exchange) dnsVersion() {
	n := name{zone: 1, domain: true}
	if x.asked.Type != wire.TypeTXT {
		x.empty(&n)
		return
	}
	x.outcome = answered
	mark := x.response.Open(wire.Owner, wire.TypeTXT, x.zone.gatewayTTL)
	x.response.Text("1.0.0")
	x.response.Close(wire.Answer, mark)
}

// The names about the server itself, in the form of the wire.
const (
	versionBind   = "\x07version\x04bind\x00"
	versionServer = "\x07version\x06server\x00"
	idServer      = "\x02id\x06server\x00"
	hostnameBind  = "\x08hostname\x04bind\x00"
)

// chaos answers questions about the server (RFC 4892).
func (x *exchange) chaos() {
	var text string
	switch string(x.asked.Name.Wire()) {
	case versionBind, versionServer:
		text = x.zone.cfg.Version
	case idServer, hostnameBind:
		text = x.zone.cfg.NSID
	default:
		x.outcome = otherClass
		return
	}
	x.outcome = aboutServer
	x.response.Authoritative = true
	if t := x.asked.Type; text == "" || t != wire.TypeTXT && t != wire.TypeANY {
		return
	}
	mark := x.response.OpenClass(wire.Owner, wire.TypeTXT, wire.ClassCH, 0)
	x.response.Text(text)
	x.response.Close(wire.Answer, mark)
}

// Clients ask below resolver.arpa for the same resolver by another protocol (RFC 9462). An
// upstream's answer would name the upstream's servers in our place, so we never pass one on
// (6.1).
var resolverArpa = newSuffix("resolver.arpa")

// noResolvers answers such a name, with so many labels before resolver.arpa: there is no data,
// for any type (RFC 9462, 4 and 6.4). RFC 6303, 3 has the SOA.
func (x *exchange) noResolvers(labels int) {
	const ttl = 3600
	r, apex := &x.response, x.asked.Name.Pointer(labels)
	x.outcome = aboutServer
	r.Authoritative = true
	mark := r.Open(apex, wire.TypeSOA, ttl)
	r.Uint16(apex)
	r.Buf = wire.AppendName(r.Buf, "nobody.invalid")
	r.Uint32(1, 3600, 1200, 604_800, ttl)
	r.Close(wire.Authority, mark)
}
