package topology

import (
	"encoding/binary"
	"iter"
	"net/netip"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// hosts knows which app has each address of an instance, by IP address: most have one
// instance, in a small part of the room that another map for them would take.
type hosts struct {
	v4      map[uint32]host
	v6      map[[16]byte]host
	several map[netip.Addr]*several
	count   int // addresses with their ports
}

// host is the one address at an IP address. The node is nil where there are several.
type host struct {
	*node
	port       uint16
	unverified bool // only a delegate says that the app is there
}

// several are the addresses at an IP address with more than one.
type several struct {
	ports map[uint16]host
	apps  map[*node]int // how many of the ports each app has
	sure  map[*node]int // the same without those that are unverified
}

func newHosts() hosts {
	return hosts{v4: map[uint32]host{}, v6: map[[16]byte]host{}, several: map[netip.Addr]*several{}}
}

func (hs *hosts) at(ip netip.Addr) (h host, ok bool) {
	if ip.Is4() {
		four := ip.As4()
		h, ok = hs.v4[binary.BigEndian.Uint32(four[:])]
		return h, ok
	}
	h, ok = hs.v6[ip.As16()]
	return h, ok
}

func (hs *hosts) put(ip netip.Addr, h host) {
	if ip.Is4() {
		four := ip.As4()
		hs.v4[binary.BigEndian.Uint32(four[:])] = h
		return
	}
	hs.v6[ip.As16()] = h
}

func (hs *hosts) delete(ip netip.Addr) {
	if ip.Is4() {
		four := ip.As4()
		delete(hs.v4, binary.BigEndian.Uint32(four[:]))
		return
	}
	delete(hs.v6, ip.As16())
}

// owner is who has an address; nil if nobody has.
func (hs *hosts) owner(a netip.AddrPort) *node {
	h, ok := hs.at(a.Addr())
	switch {
	case !ok:
		return nil
	case h.node == nil:
		return hs.several[a.Addr()].ports[a.Port()].node
	case h.port != a.Port():
		return nil
	default:
		return h.node
	}
}

// set gives an address to an app.
func (hs *hosts) set(a netip.AddrPort, n *node, unverified bool) {
	is := host{n, a.Port(), unverified}
	h, ok := hs.at(a.Addr())
	switch {
	case !ok:
		hs.count++
		hs.put(a.Addr(), is)
		return
	case h.node != nil && h.port == a.Port():
		if h != is {
			hs.put(a.Addr(), is)
		}
		return
	case h.node != nil:
		hs.put(a.Addr(), host{})
		s := &several{map[uint16]host{}, map[*node]int{}, map[*node]int{}}
		s.enter(h)
		hs.several[a.Addr()] = s
	}
	s := hs.several[a.Addr()]
	if old := s.ports[a.Port()]; old.node != nil {
		s.leave(old)
	} else {
		hs.count++
	}
	s.enter(is)
}

// remove takes an address from whoever has it.
func (hs *hosts) remove(a netip.AddrPort) {
	h, ok := hs.at(a.Addr())
	if !ok || h.node != nil && h.port != a.Port() {
		return
	}
	if h.node != nil {
		hs.count--
		hs.delete(a.Addr())
		return
	}
	s := hs.several[a.Addr()]
	old := s.ports[a.Port()]
	if old.node == nil {
		return
	}
	hs.count--
	delete(s.ports, a.Port())
	s.leave(old)
	if len(s.ports) == 1 {
		for _, h := range s.ports {
			hs.put(a.Addr(), h)
		}
		delete(hs.several, a.Addr())
	}
}

// enter notes who has a port.
func (s *several) enter(h host) {
	s.ports[h.port] = h
	s.apps[h.node]++
	if !h.unverified {
		s.sure[h.node]++
	}
}

// leave notes that an app has a port less.
func (s *several) leave(h host) {
	less := func(apps map[*node]int) {
		if apps[h.node]--; apps[h.node] == 0 {
			delete(apps, h.node)
		}
	}
	less(s.apps)
	if !h.unverified {
		less(s.sure)
	}
}

// caller is the app that asks from an IP address. An unverified instance counts only where no
// other app is known at that IP address.
func (hs *hosts) caller(ip netip.Addr) (caller catalog.Caller, ok bool) {
	h, ok := hs.at(ip)
	switch {
	case !ok:
		return catalog.Caller{}, false
	case h.node != nil:
		return catalog.Caller{App: h.app}, true
	}
	apps := hs.several[ip].sure
	if len(apps) == 0 {
		apps = hs.several[ip].apps
	}
	if len(apps) > 1 {
		return catalog.Caller{Shared: true}, true
	}
	for n := range apps {
		caller.App = n.app
	}
	return caller, true
}

// all yields every IP address.
func (hs *hosts) all() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for key := range hs.v4 {
			var four [4]byte
			binary.BigEndian.PutUint32(four[:], key)
			if !yield(netip.AddrFrom4(four)) {
				return
			}
		}
		for key := range hs.v6 {
			if !yield(netip.AddrFrom16(key)) {
				return
			}
		}
	}
}

// callerChanged notes that somebody else may have an IP address now.
func (o *ownership) callerChanged(ip netip.Addr) {
	if o.synced && !o.dirty.all { // with the full set, all are looked at
		o.dirty.callers[ip] = struct{}{}
	}
}

// flushCallers brings who has which IP address up to date.
func (o *ownership) flushCallers(d *dirty, u *Update) {
	var edits []catalog.CallerEdit
	if d.all {
		edits = make([]catalog.CallerEdit, 0, len(o.v4)+len(o.v6))
		for ip := range o.all() {
			caller, _ := o.caller(ip)
			edits = append(edits, catalog.CallerEdit{Address: ip, Caller: caller})
		}
	}
	for ip := range d.callers {
		was, had := o.callers.Get(ip)
		is, has := o.caller(ip)
		if was != is || had != has {
			edits = append(edits, catalog.CallerEdit{Address: ip, Caller: is, Remove: !has})
		}
	}
	if len(edits) > 0 || d.all {
		o.callers = o.callers.With(edits...)
		u.Callers = o.callers
	}
}
