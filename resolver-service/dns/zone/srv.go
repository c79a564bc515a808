package zone

import (
	"net/netip"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/dns/wire"
)

// serviceRecords answers _dapr._tcp below an app's name: SRV records for all usable routes, or
// for the one that is asked for (RFC 2782).
func (x *exchange) serviceRecords(n *name, entry *catalog.Entry, only *catalog.Route) {
	if x.asked.Type != wire.TypeSRV {
		x.empty(n)
		return
	}
	if only != nil && !reachable(only) || only == nil && entry.Outcome() != catalog.OK {
		x.nothingReady(n, entry, only)
		return
	}
	x.outcome = answered
	var more extras
	for i := range entry.Routes {
		r := &entry.Routes[i]
		if only == nil && usable(r) || only == r {
			x.routeRecords(n, entry, r, &more)
		}
	}
	if more.because != "" && x.response.Empty() {
		x.unresolved(more.because)
	}
	x.additional(&more)
}

func (x *exchange) routeRecords(n *name, entry *catalog.Entry, r *catalog.Route, more *extras) {
	ttl := x.routeTTL(r, x.zone.ttl)
	weights := weightsOf(entry.Routes, r.Priority)
	if r.Gateway {
		x.gatewayRecord(n, entry, r, ttl, weights.of(r, 1), more)
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
		target := x.zone.appendInstanceName(room[:0], at.Addr(), entry.App, r.Cluster)
		if !x.srv(ttl, uint16(r.Priority), weight, at.Port(), target) {
			return
		}
		more.add(&x.response, len(target), ttl, at.Addr())
	}
}

// gatewayRecord leads to the cluster's name of the app, or to the name of the shard that
// is asked for.
func (x *exchange) gatewayRecord(n *name, entry *catalog.Entry, r *catalog.Route, ttl uint32, weight uint16, more *extras) {
	packed, because := x.addresses(entry.Plan, r)
	if packed.none() {
		more.because = because
		return
	}
	var room [256]byte
	target := room[:0]
	if n.cluster != "" {
		target = append(target, x.asked.Name.From(n.base)...)
	} else {
		target = x.zone.appendHostName(target, entry.App, r.Cluster)
	}
	if x.srv(ttl, uint16(r.Priority), weight, packed.port, target) {
		packed.each(func(a netip.Addr) { more.add(&x.response, len(target), ttl, a) })
	}
}

// srv adds an SRV record. The target is in the form of the wire, without compression.
func (x *exchange) srv(ttl uint32, priority, weight, port uint16, target []byte) (fits bool) {
	mark := x.response.Open(wire.Owner, wire.TypeSRV, ttl)
	x.response.Uint16(priority, weight, port)
	x.response.Buf = append(x.response.Buf, target...)
	return x.response.Close(wire.Answer, mark)
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

func (x *exchange) additional(e *extras) {
	for _, extra := range e.all[:e.count] {
		if !x.response.Address(wire.Additional, extra.owner, extra.ttl, extra.address) {
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
