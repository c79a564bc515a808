// Package destination says which addresses may be instances of apps. One set of rules holds
// for every source of instances, for what peers are told, and for what the gateway dials: so
// nobody who names an address leads calls to the service itself, to the machine that it runs
// on, or to a metadata service.
package destination

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Rules are what a service allows. They are not changed once they are in use, and any
// goroutine may ask. Nil rules have no listeners and refuse to export loopback.
type Rules struct {
	// Loopback lets instances on loopback be exported: all clusters are on one machine.
	Loopback bool
	// Allow are the networks that exported instances must be in; none: any.
	Allow []netip.Prefix
	// Listeners are the service's own. One that listens on all addresses owns its port on
	// every address of the host: 0.0.0.0 on those of IPv4, and :: on those of both.
	Listeners []netip.AddrPort
	// Host is the one that the listeners are on; nil: This.
	Host *Host
}

// Instance tells why an address can't be that of an instance, of whichever app.
func (r *Rules) Instance(a netip.AddrPort) error {
	if err := catalog.CheckAddress(a); err != nil {
		return err
	}
	if r.listens(a) {
		return fmt.Errorf("address %s is one that this resolver service itself listens on; give the app's sidecar a port of its own", a)
	}
	return nil
}

// Direct tells why an address that a peer names can't be called without a gateway.
func (r *Rules) Direct(a netip.AddrPort) error {
	if err := r.Instance(a); err != nil {
		return err
	}
	if catalog.LoopbackAddress(a.Addr()) && (r == nil || !r.Loopback) {
		return fmt.Errorf("address %s is loopback, so it is another host for each that calls it; register the IP that other hosts reach, "+
			"or set development: {loopback: true} where all clusters are on one machine", a)
	}
	return nil
}

// Exported tells why an address can't be that of an instance of an exported app. It asks all
// that Instance asks, too.
func (r *Rules) Exported(a netip.AddrPort) error {
	if err := r.Direct(a); err != nil {
		return err
	}
	if r == nil || len(r.Allow) == 0 {
		return nil
	}
	ip := a.Addr().Unmap()
	for _, network := range r.Allow {
		if network.Contains(ip) {
			return nil
		}
	}
	return fmt.Errorf("address %s is in no network of gateway.allow; add its network there if apps are meant to be exported from it", a)
}

// listens tells whether an address is that of one of the service's listeners.
func (r *Rules) listens(a netip.AddrPort) bool {
	if r == nil {
		return false
	}
	ip := a.Addr().Unmap()
	return slices.ContainsFunc(r.Listeners, func(l netip.AddrPort) bool {
		if l.Port() != a.Port() {
			return false
		}
		switch on := l.Addr(); {
		case on == netip.IPv4Unspecified():
			return ip.Is4() && r.host().Has(ip)
		case on.IsUnspecified(): // :: takes IPv4 as well
			return r.host().Has(ip)
		default:
			return on.Unmap() == ip
		}
	})
}

// Local tells whether an IP address is one of this host.
func (r *Rules) Local(ip netip.Addr) bool { return r.host().Has(ip) }

func (r *Rules) host() *Host {
	if r == nil || r.Host == nil {
		return This
	}
	return r.Host
}
