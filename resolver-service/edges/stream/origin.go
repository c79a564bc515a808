package stream

import (
	"context"
	"net"
	"net/netip"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// sourceOf is the IP address that a stream comes from. A Unix socket is this host. It is
// invalid where it can't be told, so nothing can be registered from there.
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

// admit decides what a stream may register, and takes a seat for it: an instance at the stream's
// own address or, where a delegate speaks for it, an unverified one. The ID of that is one that
// nobody registers from its own address.
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
	for i := range s.cfg.Delegates {
		if d := &s.cfg.Delegates[i]; d.SpeaksFor(h.app, source) {
			seat.maxInstances, seat.maxStreams = max(seat.maxInstances, d.Most), max(seat.maxStreams, d.Most)
		}
	}
	if h.instance != nil && !s.cfg.Destinations.OwnAddress(source, claimed) {
		if err := s.delegated(ctx, h, source); err != nil {
			return nil, err
		}
		h.instance.Unverified, h.instance.ID = true, source.String()+"/"+h.instance.ID
	}
	if h.instance != nil {
		seat.instance = h.instance.ID
	}
	return s.limiter.acquire(seat, s.cfg.MaxStreams)
}

// delegated refuses an instance at another address than the stream's, unless a delegate speaks
// for it and no other app has registered that address itself.
func (s *Server) delegated(ctx context.Context, h *hello, source netip.Addr) error {
	if !s.cfg.Delegates.Allow(h.app, source, h.instance.Address.Addr()) {
		return status.Errorf(codes.PermissionDenied, "%s can't register %s: the stream comes from %s, and an instance is registered from its own IP; "+
			"set advertise of the sidecar to %s, or, if a NAT or a proxy is between, list that network and the app in instances.delegates of the resolver service",
			h.app, h.instance.Address, sourceText(source), sourceText(source))
	}
	holder, err := s.topology.Inventory().Holder(ctx, h.instance.Address)
	if err != nil || holder.App == (catalog.App{}) || holder.App == h.app {
		return err
	}
	return status.Error(codes.PermissionDenied, holder.Refuse(s.throttled, h.app, h.instance.Address, source).Error())
}

func sourceText(source netip.Addr) string {
	if !source.IsValid() {
		return "an unknown address"
	}
	return source.String()
}
