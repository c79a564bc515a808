package stream

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Delegate lets streams from some networks register instances whose IP is not the stream's
// source: a NAT or a proxy is between, or one process speaks for several hosts. What it
// registers is unverified: it takes no address from anybody.
type Delegate struct {
	Networks  []netip.Prefix // where the stream comes from
	Apps      []string       // whose certificate it has: "shop/orders", "shop/*" or "*"
	Addresses []netip.Prefix // where the instances may be; none: anywhere
	Most      int            // instances of an app from one source there; 0: Config.MaxInstances
}

func (d *Delegate) allows(app catalog.App, source netip.Addr) bool {
	return within(d.Networks, source) && slices.ContainsFunc(d.Apps, func(pattern string) bool {
		namespace, all := strings.CutSuffix(pattern, "/*")
		return pattern == "*" || pattern == app.String() || all && namespace == app.Namespace
	})
}

func within(networks []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(ip) })
}

// sourceOf is the source IP address of a stream. A Unix socket counts as this host. The address
// is invalid if it is unknown, so that nothing can be registered from there.
func sourceOf(ctx context.Context) netip.Addr {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return netip.Addr{}
	}
	switch at := from.Addr.(type) {
	case *net.TCPAddr:
		return at.AddrPort().Addr().Unmap().WithZone("")
	case *net.UnixAddr:
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.Addr{}
}

// admit decides what a stream may register, and takes a seat for it. The instance's IP must
// be the stream's source, or both must be this host's. Where a delegate speaks for it, the
// instance is unverified, and its ID is one that nobody registers from its own address.
func (s *Server) admit(ctx context.Context, h *hello) (leave func(), err error) {
	var claimed netip.Addr
	if h.instance != nil {
		claimed = h.instance.Address.Addr()
	}
	source := sourceOf(ctx)
	if s.cfg.Source != nil {
		source = s.cfg.Source(ctx, claimed)
	}
	seat := streamRequest{app: h.app, source: source, maxInstances: s.cfg.MaxInstances, maxStreams: s.cfg.MaxStreams}
	own := h.instance == nil || source.IsValid() && (claimed == source || s.cfg.Destinations.Local(source) && s.cfg.Destinations.Local(claimed))
	for i := range s.cfg.Delegates {
		d := &s.cfg.Delegates[i]
		if !d.allows(h.app, source) {
			continue
		}
		seat.maxInstances, seat.maxStreams = max(seat.maxInstances, d.Most), max(seat.maxStreams, d.Most)
		if !own && (len(d.Addresses) == 0 || within(d.Addresses, claimed)) {
			own = true
			h.instance.Unverified, h.instance.ID = true, source.String()+"/"+h.instance.ID
		}
	}
	if !own {
		return nil, status.Errorf(codes.PermissionDenied, "%s can't register %s: the stream comes from %s, and an instance is registered from its own IP; "+
			"set advertise of the sidecar to %s, or, if a NAT or a proxy is between, list that network and the app in instances.delegates of the resolver service",
			h.app, h.instance.Address, sourceText(source), sourceText(source))
	}
	if h.instance != nil {
		seat.instance = h.instance.ID
	}
	return s.limiter.acquire(seat, s.cfg.MaxStreams)
}

func sourceText(source netip.Addr) string {
	if !source.IsValid() {
		return "an unknown address"
	}
	return source.String()
}
