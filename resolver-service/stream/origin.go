package stream

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

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

func (d *Delegate) speaksFor(app catalog.App, source netip.Addr) bool {
	return within(d.Networks, source) && slices.ContainsFunc(d.Apps, func(pattern string) bool {
		namespace, all := strings.CutSuffix(pattern, "/*")
		return pattern == "*" || pattern == app.String() || all && namespace == app.Namespace
	})
}

func within(networks []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(ip) })
}

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
	seat := seat{app: h.app, source: source, most: s.cfg.MaxInstances, idle: s.cfg.MaxStreams}
	own := h.instance == nil || source.IsValid() && (claimed == source || s.cfg.Destinations.Local(source) && s.cfg.Destinations.Local(claimed))
	for i := range s.cfg.Delegates {
		d := &s.cfg.Delegates[i]
		if !d.speaksFor(h.app, source) {
			continue
		}
		seat.most, seat.idle = max(seat.most, d.Most), max(seat.idle, d.Most)
		if !own && (len(d.Addresses) == 0 || within(d.Addresses, claimed)) {
			own = true
			h.instance.Unverified, h.instance.ID = true, source.String()+"/"+h.instance.ID
		}
	}
	if !own {
		return nil, status.Errorf(codes.PermissionDenied, "%s can't register %s: the stream comes from %s, and an instance is registered from its own IP; "+
			"set advertise of the sidecar to %s, or, if a NAT or a proxy is between, list that network and the app in instances.delegates of the resolver service",
			h.app, h.instance.Address, printed(source), printed(source))
	}
	if h.instance != nil {
		seat.instance = h.instance.ID
	}
	return s.seats.take(seat, s.cfg.MaxStreams)
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
