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
	for i := range l.entry.Routes {
		r := &l.entry.Routes[i]
		if l.only == nil && usable(r) || l.only == r {
			l.routeRecords(n, r, &more)
		}
	}
	if more.because != "" && l.response.Empty() {
		l.unresolved(more.because)
	}
	l.response.additional(&more)
}

func (l *lookup) routeRecords(n *name, r *catalog.Route, more *extras) {
	ttl := l.routeTTL(r, l.zone.ttl)
	weights := weightsOf(l.entry.Routes, r.Priority)
	if r.Gateway {
		l.gatewayRecord(n, r, ttl, weights.of(r, 1), more)
		return
	}
	weight := weights.of(r, len(r.Addresses))
	var room [128 + 256]byte
	first := anywhere(len(r.Addresses))
	for i := range r.Addresses {
		at, err := netip.ParseAddrPort(r.Addresses[(first+i)%len(r.Addresses)])
		if err != nil {
			continue
		}
		target := l.zone.appendInstanceName(room[:0], at.Addr(), l.entry.App, r.Cluster)
		if !l.response.srv(ttl, uint16(r.Priority), weight, at.Port(), target) {
			return
		}
		more.add(&l.response.Response, len(target), ttl, at.Addr())
	}
}

// gatewayRecord leads to the cluster's name of the app, or to the name of the shard that
// is asked for.
func (l *lookup) gatewayRecord(n *name, r *catalog.Route, ttl uint32, weight uint16, more *extras) {
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
	if l.response.srv(ttl, uint16(r.Priority), weight, packed.port, target) {
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

// weights make the weights of SRV records of one priority, which count for a target, from
// those of routes, which count for all the targets of a route together.
type weights struct {
	scale uint64
	ramps bool
}

// maxWeight is the most that an SRV record can have.
const maxWeight = 1<<16 - 1

// weightsOf finds a scale at which the instances of the largest route still have whole
// numbers, as far as they fit.
func weightsOf(routes []catalog.Route, priority uint32) weights {
	w := weights{scale: 1}
	heaviest := uint64(1)
	for i := range routes {
		r := &routes[i]
		if r.Priority != priority || !usable(r) {
			continue
		}
		w.ramps = w.ramps || r.Ramp != 0
		if !r.Gateway {
			w.scale = max(w.scale, uint64(len(r.Addresses)))
		}
		heaviest = max(heaviest, uint64(r.Weight))
	}
	if w.ramps {
		heaviest *= 100
	}
	w.scale = max(1, min(w.scale, maxWeight/heaviest))
	return w
}

// of is the weight of each of a route's targets.
func (w weights) of(r *catalog.Route, targets int) uint16 {
	weight := uint64(max(r.Weight, 1))
	if w.ramps {
		percent := uint64(r.Ramp)
		if percent == 0 {
			percent = 100
		}
		weight *= percent
	}
	return uint16(min(max(weight*w.scale/uint64(targets), 1), maxWeight))
}
