// Package destination says which addresses can be instances of apps. The same rules hold for
// every source of instances, for exports to peers, and for the gateway's connections. So nobody
// can name an address that leads calls to this service, to its machine, or to a metadata service.
package destination

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Rules are the rules of one service. They don't change once they are in use, and are safe for
// concurrent use. Nil rules have no listeners and refuse to export loopback.
type Rules struct {
	// Loopback allows instances on loopback to be exported, since all clusters are on one
	// machine.
	Loopback bool
	// Allow are the networks of exported instances; none means any.
	Allow []netip.Prefix
	// Listeners are the service's own. A listener on all addresses owns its port on every address
	// of the host: 0.0.0.0 on the IPv4 ones, :: on all.
	Listeners []netip.AddrPort
	// Host is the host of the listeners; nil means This.
	Host *Host
}

// Instance returns an error for an address that no instance can have.
func (r *Rules) Instance(a netip.AddrPort) error {
	if err := catalog.CheckAddress(a); err != nil {
		return err
	}
	if r.Listens(a) {
		return fmt.Errorf("address %s is one that this resolver service itself listens on; give the app's sidecar a port of its own", a)
	}
	return nil
}

// Direct returns an error for an address of a peer that can't be called without a gateway.
func (r *Rules) Direct(a netip.AddrPort) error {
	if err := r.Instance(a); err != nil {
		return err
	}
	if catalog.LoopbackAddress(a.Addr()) && (r == nil || !r.Loopback) {
		return fmt.Errorf("address %s is loopback, so each caller would call its own host; register the IP that other hosts reach, "+
			"or set development: {loopback: true} where all clusters are on one machine", a)
	}
	return nil
}

// Elsewhere returns an error for an address that no gateway of another cluster has, by the word of a
// third one.
func (r *Rules) Elsewhere(a netip.AddrPort) error {
	if err := catalog.CheckAddress(a); err != nil {
		return err
	}
	if r.Listens(a) || (catalog.LoopbackAddress(a.Addr()) || r.Local(a.Addr())) && (r == nil || !r.Loopback) {
		return fmt.Errorf("address %s is of this machine, and so of this cluster; if a gateway of that cluster is meant to be there, write a Cluster object for it here", a)
	}
	return nil
}

// Exported returns an error for an address that no instance of an exported app can have. That
// includes the errors of Instance.
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

// Listens tells whether an address belongs to one of the service's listeners.
func (r *Rules) Listens(a netip.AddrPort) bool {
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

// Local tells whether an IP address belongs to this host.
func (r *Rules) Local(ip netip.Addr) bool { return r.host().Has(ip) }

func (r *Rules) host() *Host {
	if r == nil || r.Host == nil {
		return This
	}
	return r.Host
}
