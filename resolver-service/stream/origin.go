package stream

import (
	"context"
	"net"
	"net/netip"
	"sync"

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
	seat := seat{app: h.app, source: source, most: s.cfg.MaxInstances, idle: s.cfg.MaxStreams}
	for i := range s.cfg.Delegates {
		if d := &s.cfg.Delegates[i]; d.SpeaksFor(h.app, source) {
			seat.most, seat.idle = max(seat.most, d.Most), max(seat.idle, d.Most)
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
	return s.seats.take(seat, s.cfg.MaxStreams)
}

// delegated refuses an instance at another address than the stream's, unless a delegate speaks
// for it and no other app has registered that address itself.
func (s *Server) delegated(ctx context.Context, h *hello, source netip.Addr) error {
	if !s.cfg.Delegates.Allow(h.app, source, h.instance.Address.Addr()) {
		return status.Errorf(codes.PermissionDenied, "%s can't register %s: the stream comes from %s, and an instance is registered from its own IP; "+
			"set advertise of the sidecar to %s, or, if a NAT or a proxy is between, list that network and the app in instances.delegates of the resolver service",
			h.app, h.instance.Address, printed(source), printed(source))
	}
	holder, err := s.topology.Holder(ctx, h.instance.Address)
	if err != nil || holder.App == (catalog.App{}) || holder.App == h.app {
		return err
	}
	s.often.Warn("held "+h.app.String(), "refused a registration: another app has registered that address itself",
		"app", h.app.String(), "address", h.instance.Address.String(), "from", printed(source), "holder", holder.App.String())
	return status.Errorf(codes.PermissionDenied, "%s can't register %s from %s: another app's sidecar has registered that address itself; correct the address that is registered",
		h.app, h.instance.Address, printed(source))
}

func printed(source netip.Addr) string {
	if !source.IsValid() {
		return "an unknown address"
	}
	return source.String()
}

// seats count the streams that are open, by app and source. Any goroutine may use them.
type seats struct {
	mu    sync.Mutex
	taken map[table]map[string]int // streams by the ID of the instance that each registers; empty for none
}

// table is where the streams of one app from one source sit.
type table struct {
	app    catalog.App
	source netip.Addr
}

// seat is what one stream asks for.
type seat struct {
	app      catalog.App
	source   netip.Addr
	instance string // its ID; empty for a stream that registers none
	most     int    // instances
	idle     int    // streams that register none
}

// take takes a seat, or says why there is none. same is how many streams may register one
// instance at a time.
func (s *seats) take(want seat, same int) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := table{want.app, want.source}
	streams := s.taken[at]
	instances := len(streams)
	if streams[""] > 0 {
		instances--
	}
	switch n := streams[want.instance]; {
	case want.instance == "" && n >= want.idle:
		return nil, status.Errorf(codes.ResourceExhausted, "%s has %d streams from %s that register no instance, and no more are taken; close some", want.app, n, printed(want.source))
	case want.instance != "" && n >= same:
		return nil, status.Errorf(codes.ResourceExhausted, "%s has %d streams from %s for the instance %q, and no more are taken; close some", want.app, n, printed(want.source), want.instance)
	case want.instance != "" && n == 0 && instances >= want.most:
		return nil, status.Errorf(codes.ResourceExhausted, "%s has %d instances registered from %s, and no more are taken; "+
			"if that many sidecars are behind one address, list it with most: in instances.delegates of the resolver service", want.app, instances, printed(want.source))
	}
	if streams == nil {
		streams = map[string]int{}
		s.taken[at] = streams
	}
	streams[want.instance]++
	return func() { s.leave(at, want.instance) }, nil
}

func (s *seats) leave(at table, instance string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	streams := s.taken[at]
	if streams[instance]--; streams[instance] == 0 {
		delete(streams, instance)
	}
	if len(streams) == 0 {
		delete(s.taken, at)
	}
}
