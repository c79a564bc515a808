package stream

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

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
	number uint64               // grows
	filter *pb.TapFilter
	rate   uint32
	lost   atomic.Uint64 // calls that the operator was too slow for
}

// taps are all that look. The zero value is nobody.
type taps struct {
	mu    sync.Mutex
	all   map[*Tap]struct{}
	begun uint64
}

// concerns tells whether sidecars of an app may have calls that the operator wants.
func (t *Tap) concerns(app catalog.App) bool {
	return wire.Passes(t.filter.GetCaller(), app) || wire.Passes(t.filter.GetCallee(), app)
}

// wanted is what anybody wants of an app's sidecar.
func (t *taps) wanted(app catalog.App) *pb.TapSidecar {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := &pb.TapSidecar{}
	for _, tap := range slices.SortedFunc(maps.Keys(t.all), func(a, b *Tap) int { return cmp.Compare(a.number, b.number) }) {
		if tap.concerns(app) {
			m.PerSecond = max(m.PerSecond, tap.rate)
			m.Filters = append(m.Filters, tap.filter)
		}
	}
	return m
}

// Tap has sidecars tell of some single calls until ctx ends. It returns how
// many sidecars of this replica do, and how many can't.
func (s *Server) Tap(ctx context.Context, filter *pb.TapFilter, perSecond uint32) (tap *Tap, sidecars, unable int, err error) {
	tap = &Tap{Calls: make(chan *pb.TapResponse, tapBacklog), filter: filter, rate: perSecond}
	s.taps.mu.Lock()
	if len(s.taps.all) >= maxTaps {
		s.taps.mu.Unlock()
		return nil, 0, 0, status.Errorf(codes.ResourceExhausted, "%d operators look at single calls already; wait until one has ended", maxTaps)
	}
	if s.taps.all == nil {
		s.taps.all = map[*Tap]struct{}{}
	}
	s.taps.begun++
	tap.number = s.taps.begun
	s.taps.all[tap] = struct{}{}
	s.taps.mu.Unlock()
	for _, c := range s.evidence.all() {
		switch {
		case !tap.concerns(c.app):
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

// sendTap tells a sidecar which calls are wanted, where that has changed.
func (w *watch) sendTap() error {
	wanted := w.s.taps.wanted(w.hello.app)
	if !w.hello.taps || proto.Equal(wanted, w.tapped) || w.tapped == nil && wanted.GetPerSecond() == 0 {
		return nil
	}
	w.tapped = wanted
	w.sending.Lock()
	defer w.sending.Unlock()
	return w.stream.Send(&pb.WatchResponse{Tap: wanted})
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
			if wire.Passes(tap.filter.GetCaller(), wire.AppOf(c.GetCaller())) && wire.Passes(tap.filter.GetCallee(), wire.AppOf(c.GetCallee())) {
				some.Calls = append(some.Calls, c)
			}
		}
		if len(some.Calls) == 0 || !tap.concerns(w.hello.app) {
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
	clip := func(most int, texts ...*string) {
		for _, text := range texts {
			*text = catalog.Clip(catalog.Printable(*text), most)
		}
	}
	clip(maxTappedText, &c.Address, &c.End, &c.Code, &c.TraceId)
	c.Earlier, c.Passed = c.Earlier[:min(len(c.Earlier), traffic.MaxSteps)], c.Passed[:min(len(c.Passed), traffic.MaxSteps)]
	for _, e := range c.GetEarlier() {
		clip(maxTappedText, &e.Cluster, &e.Address)
		clip(traffic.MaxReason, &e.Failed)
	}
	for _, p := range c.GetPassed() {
		clip(maxTappedText, &p.Cluster)
		clip(traffic.MaxReason, &p.Why)
	}
	return nil
}
