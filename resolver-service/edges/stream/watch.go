package stream

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/rawgrpc"
	"github.com/isthmus-mesh/isthmus/resolver-service/limits/bounded"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// errSuperseded ends a stream whose instance or address another stream has registered.
var errSuperseded = status.Error(codes.Aborted, "another stream has registered this instance or its address")

// watch is one stream.
type watch struct {
	s      *Server
	stream grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]
	end    context.CancelCauseFunc // ends the stream

	client   string             // whose budget pays for the stream's memory
	first    chan *firstRequest // the client's first message
	started  chan struct{}      // closed once hello and held are set
	viewed   chan struct{}      // closed once the first message about the view is sent
	hello    *hello
	held     *registration // nil for a stream that only watches
	sub      *topology.Subscription
	caller   *caller
	inFlight inFlight
	since    time.Time
	draining atomic.Bool    // the client has said so after its hello
	guard    atomic.Int32   // whether the guard sees the calls of its app; a guardState
	retap    chan struct{}  // has room for one: who looks at single calls has changed
	tapped   *pb.TapSidecar // what the client was last told to tell of, nil: nothing yet; of followAccess

	sending sync.Mutex // guards the fields below; held while a message is sent
	sent    *catalog.View
	number  uint64 // the highest revision sent
	drained uint64 // a revision to confirm as drained; 0 for none
	// provisional is what the client was last told about its view.
	provisional bool
}

// Watch streams an app's view and registers the caller.
func (s *Server) Watch(stream grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]) error {
	if !s.enter() {
		return errStopping
	}
	defer s.running.Done()
	ctx, end := context.WithCancelCause(stream.Context())
	defer end(nil)
	defer context.AfterFunc(s.stopping, func() { end(context.Cause(s.stopping)) })()
	w := &watch{s: s, stream: stream, end: end, client: ClientOf(ctx), since: time.Now(), first: make(chan *firstRequest, 1), started: make(chan struct{}), viewed: make(chan struct{}), retap: make(chan struct{}, 1)}
	w.inFlight = inFlight{timeout: s.cfg.StallTimeout, stalled: w.stalled}
	defer w.inFlight.close()
	// A compressed message would be held once for each client, and its delivery could not be
	// tracked.
	if err := grpc.SetSendCompressor(stream.Context(), encoding.Identity); err != nil {
		s.log.Debug("answers may be compressed", "err", err)
	}
	// The reader ends soon after this returns; close waits for it.
	go w.read(ctx)
	err := w.serve(ctx)
	if ctx.Err() != nil {
		err = edge.StreamError(ctx)
	}
	s.noteEnd(w, err)
	return err
}

// ClientOf names the budget of a call: that of the app in its certificate, or of its address.
func ClientOf(ctx context.Context) string {
	if id, ok := identity.FromContext(ctx); ok {
		return id.App.String()
	}
	if p, ok := peer.FromContext(ctx); ok {
		return bounded.ClientOf(p.Addr).String()
	}
	return ""
}

// stalled ends a stream whose client does not read. Ending the stream alone would not help: the
// end waits behind the unread messages.
func (w *watch) stalled() {
	w.end(status.Errorf(codes.DeadlineExceeded, "the client has read nothing for %s", w.s.cfg.StallTimeout))
	p, ok := peer.FromContext(w.stream.Context())
	if !ok || w.s.cfg.Hangup == nil {
		return
	}
	w.s.throttled.Warn("stalled "+w.client, "closed the connection of a client that does not read", "client", w.client, "remote", p.Addr.String(), "after", w.s.cfg.StallTimeout)
	w.s.cfg.Hangup(p.Addr)
}

// noteEnd counts and logs how a stream ended.
func (s *Server) noteEnd(w *watch, err error) {
	code := status.Code(err)
	if code == codes.OK || code == codes.Canceled {
		return
	}
	s.metrics.refused.WithLabelValues(code.String()).Inc()
	switch code { // others pass by themselves
	case codes.PermissionDenied, codes.InvalidArgument, codes.FailedPrecondition:
		s.throttled.Warn("refused "+w.client+code.String(), "refused a sidecar", "client", w.client, "err", catalog.Printable(status.Convert(err).Message()))
	}
	if w.hello != nil {
		s.log.Debug("ended a stream", "app", w.hello.app.String(), "err", err)
		return
	}
	s.log.Debug("refused a stream", "err", err)
}

// serve receives the hello, registers the instance and follows the app's view.
func (w *watch) serve(ctx context.Context) error {
	if err := w.receiveHello(ctx); err != nil {
		return err
	}
	leave, err := w.s.admit(ctx, w.hello)
	if err != nil {
		w.s.throttled.Warn("refused "+w.hello.app.String(), "refused a stream", "app", w.hello.app.String(), "err", status.Convert(err).Message())
		return err
	}
	defer leave()
	select {
	case <-w.s.restored:
	case <-ctx.Done():
		return edge.StreamError(ctx)
	}
	w.s.metrics.open.Inc()
	defer w.s.metrics.open.Dec()
	until, gone, err := w.s.away.admit(appSource{w.hello.app, sourceOf(ctx)}, w.hello, time.Now())
	if err != nil {
		return err
	}
	defer gone()
	defer context.AfterFunc(until, func() { w.end(context.Cause(until)) })()
	if w.hello.instance != nil {
		moved, move := context.WithCancel(context.Background())
		w.held = &registration{instance: *w.hello.instance, superseded: func() {
			move()
			w.end(errSuperseded)
		}}
		if _, err := w.s.registry.request(ctx, register, w.held); err != nil {
			return unavailable(err)
		}
		// The instance leaves with the stream, however that ends.
		defer w.withdraw(until, moved)
	}
	if err := w.s.topology.AtLeast(ctx, w.hello.app, w.hello.revision); err != nil {
		return unavailable(err)
	}
	w.number = w.hello.revision
	w.sub = w.s.topology.Subscribe(w.hello.app)
	defer w.sub.Close()
	who := &caller{app: w.hello.app, source: sourceOf(ctx), view: w.sub.View, watch: w}
	w.s.evidence.add(who)
	defer w.s.evidence.remove(who)
	if gone := w.s.cfg.Gone; gone != nil {
		defer gone(who.app, who.number)
	}
	w.caller = who
	close(w.started)
	w.s.cfg.Events.Info("sidecar connected", "app", w.hello.app.String(), "from", who.source.String(), "registers", w.held != nil)
	defer func() {
		w.s.cfg.Events.Info("sidecar left", "app", w.hello.app.String(), "from", who.source.String(), "registered", w.held != nil)
	}()
	if w.hello.guards {
		following, stop := context.WithCancel(ctx)
		var guard sync.WaitGroup
		guard.Go(func() {
			if err := w.followAccess(following); err != nil {
				w.end(err)
			}
		})
		defer guard.Wait()
		defer stop()
	}
	return w.follow(ctx)
}

// withdraw ends the registration. That of a client that was turned away stays until it has moved,
// or had the time for it: so its app is in views throughout.
func (w *watch) withdraw(away, moved context.Context) {
	withdrawn := func() { _, _ = w.s.registry.request(context.WithoutCancel(w.stream.Context()), withdraw, w.held) }
	if away.Err() == nil {
		withdrawn()
		return
	}
	w.s.running.Go(func() {
		limit := time.NewTimer(TurnAwayFor)
		defer limit.Stop()
		select {
		case <-limit.C:
		case <-moved.Done():
		case <-w.s.stopping.Done():
		}
		withdrawn()
	})
}

func unavailable(err error) error {
	return status.Errorf(codes.Unavailable, "the instance can't be registered: %v", err)
}

// receiveHello waits for the client's hello, and checks it.
func (w *watch) receiveHello(ctx context.Context) error {
	limit := time.NewTimer(w.s.cfg.HelloTimeout)
	defer limit.Stop()
	var req *firstRequest
	select {
	case req = <-w.first:
	case <-limit.C:
		return status.Errorf(codes.DeadlineExceeded, "no hello within %s", w.s.cfg.HelloTimeout)
	case <-ctx.Done():
		return cmp.Or(edge.StreamError(ctx), status.Error(codes.InvalidArgument, "the client closed the stream before it sent a hello"))
	}
	h, err := parseHello(req, &w.s.cfg)
	if err != nil {
		return err
	}
	if err := authorizeOwn(ctx, h.app); err != nil {
		return err
	}
	if h.revision > maxPlausible(time.Now()) && h.revision > w.s.topology.Revision() {
		// The client lies, or one of the clocks is wrong. It is served as if it had no revision,
		// and keeps the higher number itself.
		w.s.log.Debug("the revision of a client is implausibly high; it is ignored",
			"app", h.app.String(), "revision", h.revision)
		h.revision = 0
	}
	w.hello = h
	if h.known != nil {
		w.s.metrics.resumed.Inc()
	}
	return nil
}

// read processes the client's messages until the stream ends.
func (w *watch) read(ctx context.Context) {
	defer w.s.running.Done()
	first, err := w.readFirst(ctx)
	if err != nil {
		w.end(err)
		return
	}
	defer first.known.release()
	w.first <- first
	for {
		var raw rawgrpc.Received
		err := w.stream.RecvMsg(&raw)
		if err == nil {
			err = w.handle(ctx, &raw)
		}
		if err != nil {
			w.end(err)
			return
		}
	}
}

// readFirst reads the first message once there is room for the largest possible one. Until then
// flow control holds the client back.
func (w *watch) readFirst(ctx context.Context) (*firstRequest, error) {
	release, err := w.s.hellos.Acquire(ctx, w.client, helloBytes)
	if err != nil {
		return nil, err
	}
	defer release()
	var raw rawgrpc.Received
	if err := w.stream.RecvMsg(&raw); err != nil {
		return nil, err
	}
	return parseFirstRequest(&raw, w.s.known, w.client, w.s.cfg.MaxKnown)
}

// maxLaterBytes bounds each message after the first.
const maxLaterBytes = 64 << 10

// handle processes a message after the first.
func (w *watch) handle(ctx context.Context, raw *rawgrpc.Received) error {
	if len(raw.Bytes) > maxLaterBytes {
		return status.Errorf(codes.ResourceExhausted, "a message of %d bytes after the hello; at most %d are allowed", len(raw.Bytes), maxLaterBytes)
	}
	req := &pb.WatchRequest{}
	if err := proto.Unmarshal(raw.Bytes, req); err != nil {
		return malformed(err)
	}
	select {
	case <-w.started:
	case <-ctx.Done():
		return edge.StreamError(ctx)
	}
	switch {
	case req.GetUnreached() != nil:
		return w.unreached(ctx, req.GetUnreached())
	case req.GetCalls() != nil:
		return w.callReport(ctx, req.GetCalls())
	case req.GetTapped() != nil:
		return w.tappedCalls(ctx, req.GetTapped())
	case req.GetDrain() == nil:
		return status.Error(codes.FailedPrecondition, "only drain, unreached, calls and tapped may follow the hello")
	case w.held == nil:
		return status.Error(codes.FailedPrecondition, "drain: the hello named no instance")
	}
	w.draining.Store(true)
	revision, err := w.s.registry.request(ctx, drain, w.held)
	if err != nil {
		return unavailable(err)
	}
	return w.send(revision)
}

// reportPause is the least time between two reports of a client.
const reportPause = 100 * time.Millisecond

// unreached processes a report on clusters that the client does not reach.
func (w *watch) unreached(ctx context.Context, m *pb.Unreached) error {
	all, err := parseUnreached(m)
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "unreached: %v", err)
	}
	w.s.evidence.report(w.caller, all)
	live.Sleep(ctx, reportPause)
	return nil
}

// follow sends the view and each change of it until the stream ends.
func (w *watch) follow(ctx context.Context) error {
	if w.hello.keeps {
		select {
		case <-w.s.settling.Done():
		case <-ctx.Done():
			return edge.StreamError(ctx)
		}
	}
	until, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(w.s.settling, end)()
	var seen *catalog.View
	for {
		next, err := w.sub.Next(until, seen)
		if ctx.Err() != nil {
			return edge.StreamError(ctx)
		}
		if err != nil { // settled: the client must learn that its view is final
			until, next = ctx, seen
			if next == nil {
				continue
			}
		}
		if next.Revision < w.floor() {
			// The app has lost its selection, and now follows the default.
			if err := w.s.topology.AtLeast(ctx, w.hello.app, w.floor()); err != nil {
				return unavailable(err)
			}
		}
		seen = next
		if err := w.send(0); err != nil {
			return err
		}
	}
}

func (w *watch) floor() uint64 {
	w.sending.Lock()
	defer w.sending.Unlock()
	return w.number
}

// send sends the difference between the view that was sent last and the newest one, if there is
// any. If drained is not 0, the message confirms the drain as of that revision in any case.
func (w *watch) send(drained uint64) error {
	w.sending.Lock()
	defer w.sending.Unlock()
	w.drained = max(w.drained, drained)
	provisional := w.s.settling.Err() == nil // must be read before the view
	view, ok := w.sub.View()
	if !ok || view == w.sent && w.drained == 0 && w.provisional == provisional {
		return nil // before the first view, follow sends it
	}
	if provisional && w.hello.keeps && w.hello.known != nil {
		return w.confirmDrain(view)
	}
	msg, err := w.message(w.stream.Context(), view, provisional)
	if err != nil {
		return err
	}
	if err := w.inFlight.send(msg, w.stream.SendMsg, w.deliveryOf(view)); err != nil {
		return err
	}
	w.hello.known.release()
	w.hello.known = nil
	if w.sent == nil {
		close(w.viewed)
	}
	w.sent, w.drained, w.number, w.provisional = view, 0, max(w.number, msg.revision), provisional
	w.hello.known = nil
	w.s.metrics.updates.Inc()
	w.s.metrics.bytes.Add(float64(len(msg.encoded)))
	w.s.metrics.entries.Add(float64(msg.entries))
	return nil
}

// confirmDrain confirms the drain to a client that keeps its own view, and sends nothing else.
func (w *watch) confirmDrain(view *catalog.View) error {
	revision := max(w.drained, w.number)
	if err := w.stream.Send(&pb.WatchResponse{Revision: revision, Open: view.Open, Rule: view.Rule, Drained: true, TakesUnreached: true, TellsAccess: true}); err != nil {
		return err
	}
	w.drained, w.number = 0, revision
	return nil
}
