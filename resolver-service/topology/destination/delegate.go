package destination

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Delegate may register instances whose IP is not its own: a NAT or a proxy is between, or one
// process speaks for several hosts.
type Delegate struct {
	Networks  []netip.Prefix // the registration comes from here
	Apps      []string       // and is for one of these: "shop/orders", "shop/*" or "*"
	Addresses []netip.Prefix // where the instances may be; none: anywhere
	Most      int            // instances of one app from one source there; 0: as many as of any
}

// SpeaksFor tells whether an app from a source is one of the delegate's.
func (d *Delegate) SpeaksFor(app catalog.App, source netip.Addr) bool {
	return within(d.Networks, source) && slices.ContainsFunc(d.Apps, func(pattern string) bool {
		namespace, all := strings.CutSuffix(pattern, "/*")
		return pattern == "*" || pattern == app.String() || all && namespace == app.Namespace
	})
}

// Delegates are all of a service.
type Delegates []Delegate

// Allow tells whether an app may register an IP address that is not that of the source.
func (ds Delegates) Allow(app catalog.App, source, claimed netip.Addr) bool {
	return slices.ContainsFunc(ds, func(d Delegate) bool {
		return d.SpeaksFor(app, source) && (len(d.Addresses) == 0 || within(d.Addresses, claimed))
	})
}

// OwnAddress tells whether an IP address is that of the sender of a registration: it is where
// the registration comes from, or both are this host's.
func (r *Rules) OwnAddress(source, claimed netip.Addr) bool {
	source, claimed = source.Unmap(), claimed.Unmap()
	return source.IsValid() && (claimed == source || r.Local(source) && r.Local(claimed))
}

func within(networks []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(ip.Unmap()) })
}
