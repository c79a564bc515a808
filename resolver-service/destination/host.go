package destination

import (
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// fresh is how long the addresses of the interfaces are taken for those of now.
const interfaceTTL = 5 * time.Second

// Host knows which addresses are those of the machine, or the network namespace, that the
// process runs in. Its methods may be called from any goroutine.
type Host struct {
	interfaces func() ([]net.Addr, error)
	known      atomic.Pointer[addresses]
}

// addresses are those of the interfaces as they were at one time.
type addresses struct {
	at  time.Time
	all map[netip.Addr]struct{}
}

// This is the machine that the process runs on.
var This = NewHost(net.InterfaceAddrs)

// NewHost is a host whose interfaces have the addresses that are given.
func NewHost(interfaces func() ([]net.Addr, error)) *Host { return &Host{interfaces: interfaces} }

// Has tells whether an address is the host's own: loopback, or one of an interface. Where the
// interfaces can't be read, it goes by the last time that they could.
func (h *Host) Has(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	if ip.IsLoopback() {
		return true
	}
	known := h.known.Load()
	if known == nil || time.Since(known.at).Abs() > interfaceTTL { // or the clock was set back
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
