package zone

import (
	"net/netip"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

// Keys of the parameters of a service binding (RFC 9460, 14.3.2), in the order in which they
// must come.
const (
	keyALPN = 1
	keyPort = 3
	key4    = 4
	key6    = 6
)

// maxHints is how many addresses of a family a binding names at most; all are at the name
// itself.
const maxHints = 8

// maxPorts is how many different ports of a route's instances have a binding each.
const maxPorts = 16

// bindings adds service bindings, HTTPS or SVCB: one for each port of a route.
func (l *lookup) bindings(packed *addresses, route *catalog.Route, ttl uint32) {
	if route.Gateway {
		l.response.binding(l.asked.Type, packed.port, packed, ttl)
		return
	}
	var ports [maxPorts]uint16
	count := 0
	for i := range route.Addresses {
		at, err := netip.ParseAddrPort(route.Addresses[i])
		if err != nil || count == maxPorts || slices.Contains(ports[:count], at.Port()) {
			continue
		}
		ports[count] = at.Port()
		count++
	}
	for _, port := range ports[:count] {
		if !l.response.binding(l.asked.Type, port, portsAddresses(packed, route, port, count), ttl) {
			return
		}
	}
}

// portsAddresses are the addresses of the instances on one port, out of so many ports.
func portsAddresses(packed *addresses, route *catalog.Route, port uint16, ports int) *addresses {
	if ports == 1 {
		return packed
	}
	var some []netip.Addr
	for _, instance := range route.Addresses {
		if at, err := netip.ParseAddrPort(instance); err == nil && at.Port() == port {
			some = append(some, at.Addr())
		}
	}
	return pack(some)
}

// binding adds one binding: 1 . alpn=h2 port=… ipv4hint=… ipv6hint=….
func (r *response) binding(t wire.Type, port uint16, packed *addresses, ttl uint32) (fits bool) {
	mark := r.Open(wire.Owner, t, ttl)
	r.Uint16(1)
	r.Buf = append(r.Buf, 0) // the name itself
	r.Uint16(keyALPN, 3)
	r.Buf = append(r.Buf, "\x02h2"...)
	r.Uint16(keyPort, 2, port)
	r.hints(packed, wire.TypeA, key4, 4)
	r.hints(packed, wire.TypeAAAA, key6, 16)
	return r.Close(wire.Answer, mark)
}

// hints adds the addresses of a family, each of so many bytes, that end packed records.
func (r *response) hints(packed *addresses, t wire.Type, key uint16, bytes int) {
	records, size := packed.of(t)
	count := len(records) / size
	if count == 0 {
		return
	}
	named := min(count, maxHints)
	r.Uint16(key, uint16(named*bytes))
	first := anywhere(count)
	for i := range named {
		end := ((first+i)%count + 1) * size
		r.Buf = append(r.Buf, records[end-bytes:end]...)
	}
}
