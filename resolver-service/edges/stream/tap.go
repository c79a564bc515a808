package stream

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
)

// Bounds of taps: of all together, of the messages that wait for one, of the calls of one message, and
// of a text.
const (
	maxTaps       = 16
	tapBacklog    = 64
	maxTapped     = 2 * traffic.MaxTapped
	maxTappedText = 128
)

// Tap is an operator who looks at single calls.
type Tap struct {
	Calls  chan *pb.TapResponse // of calls that this operator wants
	caller func(catalog.App) bool
	callee func(catalog.App) bool
	rate   uint32
	lost   atomic.Uint64 // calls that the operator was too slow for
}

// taps are all that look. The zero value is nobody.
type taps struct {
	mu  sync.Mutex
	all map[*Tap]struct{}
}

// wanted is how many calls a second anybody wants of an app's sidecar.
func (t *taps) wanted(app catalog.App) (rate uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for tap := range t.all {
		if tap.caller(app) || tap.callee(app) {
			rate = max(rate, tap.rate)
		}
	}
	return rate
}

// Tap has sidecars tell of single calls of some callers to some callees until ctx ends. It returns how
// many sidecars of this replica do, and how many can't.
func (s *Server) Tap(ctx context.Context, caller, callee func(catalog.App) bool, perSecond uint32) (tap *Tap, sidecars, unable int, err error) {
	tap = &Tap{Calls: make(chan *pb.TapResponse, tapBacklog), caller: caller, callee: callee, rate: perSecond}
	s.taps.mu.Lock()
	if len(s.taps.all) >= maxTaps {
		s.taps.mu.Unlock()
		return nil, 0, 0, status.Errorf(codes.ResourceExhausted, "%d operators look at single calls already; wait until one has ended", maxTaps)
	}
	if s.taps.all == nil {
		s.taps.all = map[*Tap]struct{}{}
	}
	s.taps.all[tap] = struct{}{}
	s.taps.mu.Unlock()
	for _, c := range s.evidence.all() {
		switch {
		case !caller(c.app) && !callee(c.app):
		case c.watch.hello.taps:
			sidecars++
		default:
			unable++
		}
	}
	s.retap()
	context.AfterFunc(ctx, func() {
		s.taps.mu.Lock()
		delete(s.taps.all, tap)
		s.taps.mu.Unlock()
		s.retap()
	})
	return tap, sidecars, unable, nil
}

// retap has the sidecars told whose taps have changed. Each stream does that for itself.
func (s *Server) retap() {
	for _, c := range s.evidence.all() {
		if c.watch.hello.taps {
			select {
			case c.watch.retap <- struct{}{}:
			default: // it has yet to look
			}
		}
	}
}

// sendTap tells a sidecar how many calls are wanted, where that has changed.
func (w *watch) sendTap() error {
	rate := w.s.taps.wanted(w.hello.app)
	if !w.hello.taps || rate == w.tapped {
		return nil
	}
	w.tapped = rate
	w.sending.Lock()
	defer w.sending.Unlock()
	return w.stream.Send(&pb.WatchResponse{Tap: &pb.TapSidecar{PerSecond: rate}})
}

// tappedCalls hands single calls on to who wants them. What a sidecar tells is about its own app: it
// can't speak for another.
func (w *watch) tappedCalls(ctx context.Context, m *pb.TappedCalls) error {
	if n := len(m.GetCalls()); n > maxTapped {
		return status.Errorf(codes.InvalidArgument, "tapped: %d calls; at most %d are taken", n, maxTapped)
	}
	for _, c := range m.GetCalls() {
		if err := w.ownCall(c); err != nil {
			return status.Errorf(codes.InvalidArgument, "tapped: %v", err)
		}
	}
	w.s.taps.mu.Lock()
	for tap := range w.s.taps.all {
		some := &pb.TapResponse{LeftOut: m.GetLeftOut() + tap.lost.Swap(0)}
		for _, c := range m.GetCalls() {
			if tap.caller(wire.AppOf(c.GetCaller())) && tap.callee(wire.AppOf(c.GetCallee())) {
				some.Calls = append(some.Calls, c)
			}
		}
		if len(some.Calls) == 0 {
			continue
		}
		select {
		case tap.Calls <- some:
		default:
			tap.lost.Add(uint64(len(some.Calls)) + some.LeftOut)
		}
	}
	w.s.taps.mu.Unlock()
	live.Sleep(ctx, reportPause)
	return nil
}

// ownCall checks a call, and sets the end that is this sidecar's.
func (w *watch) ownCall(c *pb.TappedCall) error {
	other := c.GetCallee()
	if c.GetByCallee() {
		other = c.GetCaller()
	}
	if other != nil {
		if _, err := wire.ParseApp(other); err != nil {
			return err
		}
	}
	for _, cluster := range []string{c.GetCluster(), c.GetCallerCluster()} {
		if cluster != "" && catalog.CheckCluster(cluster) != nil {
			return fmt.Errorf("cluster: %w", catalog.CheckCluster(cluster))
		}
	}
	if c.GetByCallee() {
		c.Callee, c.Cluster = wire.App(w.hello.app), w.s.cfg.Cluster
	} else {
		c.Caller, c.CallerCluster = wire.App(w.hello.app), w.s.cfg.Cluster
	}
	for _, text := range []*string{&c.Address, &c.End, &c.Code, &c.TraceId} {
		*text = catalog.Clip(catalog.Printable(*text), maxTappedText)
	}
	return nil
}
