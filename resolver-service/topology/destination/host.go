package destination

import (
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// interfaceTTL is how long the addresses of the interfaces are cached.
const interfaceTTL = 5 * time.Second

// Host knows the addresses of a machine or network namespace. It is safe for concurrent use.
type Host struct {
	interfaces func() ([]net.Addr, error)
	known      atomic.Pointer[addresses]
}

// addresses are those of the interfaces at one time.
type addresses struct {
	at  time.Time
	all map[netip.Addr]struct{}
}

// This is the host of this process.
var This = NewHost(net.InterfaceAddrs)

// NewHost makes a host whose interfaces have the given addresses.
func NewHost(interfaces func() ([]net.Addr, error)) *Host { return &Host{interfaces: interfaces} }

// Has tells whether an address is the host's own: loopback, or one of an interface. If the
// interfaces can't be read, the last known addresses count.
func (h *Host) Has(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	if ip.IsLoopback() {
		return true
	}
	known := h.known.Load()
	if known == nil || time.Since(known.at).Abs() > interfaceTTL { // also if the clock was set back
		known = h.read(known)
	}
	_, has := known.all[ip]
	return has
}

func (h *Host) read(before *addresses) *addresses {
	now := &addresses{at: time.Now(), all: map[netip.Addr]struct{}{}}
	all, err := h.interfaces()
	if err != nil && before != nil {
		now.all = before.all
	}
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			now.all[prefix.Addr().Unmap().WithZone("")] = struct{}{}
		}
	}
	h.known.Store(now)
	return now
}
