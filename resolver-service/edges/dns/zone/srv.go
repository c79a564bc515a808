package zone

import (
	"net/netip"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

// services answers _dapr._tcp below an app's name: SRV records for all usable routes, or
// for the one that is asked for (RFC 2782).
func (l *lookup) services(n *name) {
	if l.asked.Type != wire.TypeSRV {
		l.empty(n)
		return
	}
	if l.only != nil && !reachable(l.only) || l.only == nil && l.entry.Outcome() != catalog.OK {
		l.nothingReady(n)
		return
	}
	l.outcome = answered
	var more extras
	var room [16]catalog.Place
	places := l.entry.Places(room[:0])
	for i := range l.entry.Routes {
		r := &l.entry.Routes[i]
		if l.only == nil && usable(r) || l.only == r {
			l.routeRecords(n, r, places[i], scaleOf(l.entry.Routes, places, places[i].Priority), &more)
		}
	}
	if more.because != "" && l.response.Empty() {
		l.unresolved(more.because)
	}
	l.response.additional(&more)
}

func (l *lookup) routeRecords(n *name, r *catalog.Route, place catalog.Place, scale uint32, more *extras) {
	ttl := l.routeTTL(r, l.zone.ttl)
	if r.Gateway {
		l.gatewayRecord(n, r, ttl, place, scale, more)
		return
	}
	weight := weightOf(place, scale, len(r.Addresses))
	var room [128 + 256]byte
	first := anywhere(len(r.Addresses))
	for i := range r.Addresses {
		at, err := netip.ParseAddrPort(r.Addresses[(first+i)%len(r.Addresses)])
		if err != nil {
			continue
		}
		target := l.zone.appendInstanceName(room[:0], at.Addr(), l.entry.App, r.Cluster)
		if !l.response.srv(ttl, uint16(place.Priority), weight, at.Port(), target) {
			return
		}
		more.add(&l.response.Response, len(target), ttl, at.Addr())
	}
}

// gatewayRecord leads to the cluster's name of the app, or to the name of the shard that
// is asked for.
func (l *lookup) gatewayRecord(n *name, r *catalog.Route, ttl uint32, place catalog.Place, scale uint32, more *extras) {
	packed, because := l.addresses(l.entry.Plan, r)
	if packed.none() {
		more.because = because
		return
	}
	var room [256]byte
	target := room[:0]
	if n.cluster != "" {
		target = append(target, l.asked.Name.From(n.base)...)
	} else {
		target = l.zone.appendHostName(target, l.entry.App, r.Cluster)
	}
	if l.response.srv(ttl, uint16(place.Priority), weightOf(place, scale, 1), packed.port, target) {
		packed.each(func(a netip.Addr) { more.add(&l.response.Response, len(target), ttl, a) })
	}
}

// srv adds an SRV record. The target is in the form of the wire, without compression.
func (r *response) srv(ttl uint32, priority, weight, port uint16, target []byte) (fits bool) {
	mark := r.Open(wire.Owner, wire.TypeSRV, ttl)
	r.Uint16(priority, weight, port)
	r.Buf = append(r.Buf, target...)
	return r.Close(wire.Answer, mark)
}

// extras are addresses of targets, for the additional section.
type extras struct {
	all     [maxExtras]extra
	count   int
	because string // why a route has no target
}

type extra struct {
	owner   uint16 // a pointer to the target in its SRV record
	ttl     uint32 // as of that record
	address netip.Addr
}

// maxExtras is how many addresses come with SRV records; for others their names are
// asked.
const maxExtras = 16

// add notes an address of the target that ended the response and was so long.
func (e *extras) add(r *wire.Response, target int, ttl uint32, address netip.Addr) {
	if owner, ok := wire.PointerTo(len(r.Buf) - target); ok && e.count < maxExtras {
		e.all[e.count] = extra{owner, ttl, plain(address)}
		e.count++
	}
}

func (r *response) additional(e *extras) {
	for _, extra := range e.all[:e.count] {
		if !r.Address(wire.Additional, extra.owner, extra.ttl, extra.address) {
			return
		}
	}
}

func (z *Zone) appendHostName(b []byte, app catalog.App, cluster string) []byte {
	b = wire.AppendLabel(wire.AppendLabel(wire.AppendLabel(b, app.ID), app.Namespace), cluster)
	return append(b, z.domain.wire...)
}

// appendInstanceName appends the name of an instance; that of its app in the cluster where
// the whole would be too long for a name.
func (z *Zone) appendInstanceName(b []byte, a netip.Addr, app catalog.App, cluster string) []byte {
	at := len(b)
	b = appendInstance(append(b, 0), a)
	b[at] = byte(len(b) - at - 1)
	if b = z.appendHostName(b, app, cluster); len(b)-at > wire.MaxName {
		return z.appendHostName(b[:at], app, cluster)
	}
	return b
}

// maxWeight is the most that an SRV record can have.
const maxWeight = 1<<16 - 1

// scaleOf is a factor for weights of one priority. With it the instances of the largest route still
// have whole numbers, as far as they fit: a route's weight counts for all its targets together, and
// that of an SRV record for one.
func scaleOf(routes []catalog.Route, places []catalog.Place, priority uint32) uint32 {
	scale, heaviest := uint32(1), uint32(1)
	for i := range routes {
		r := &routes[i]
		if places[i].Priority != priority || !usable(r) {
			continue
		}
		if !r.Gateway {
			scale = max(scale, uint32(len(r.Addresses)))
		}
		heaviest = max(heaviest, places[i].Weight)
	}
	return max(1, min(scale, maxWeight/heaviest))
}

// weightOf is the weight of each of a route's targets.
func weightOf(place catalog.Place, scale uint32, targets int) uint16 {
	return uint16(min(max(max(place.Weight, 1)*scale/uint32(targets), 1), maxWeight))
}
