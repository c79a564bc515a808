package stream

import (
	"context"
	"errors"
	"io"
	"sync"
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
	"github.com/isthmus-mesh/isthmus/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/bounded"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// errSuperseded ends a stream whose instance has another one by now.
var errSuperseded = status.Error(codes.Aborted, "another stream has taken this instance or its address over")

// watch is one stream.
type watch struct {
	s      *Server
	stream grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]
	end    context.CancelCauseFunc // ends the stream

	client   string             // whose budget the stream's memory counts to
	first    chan *firstRequest // the client's first message
	started  chan struct{}      // closed once hello and held are set
	hello    *hello
	held     *registration // nil for one that only watches
	sub      *topology.Subscription
	caller   *caller
	inFlight inFlight

	sending sync.Mutex // guards what is below; held while a message leaves
	sent    *catalog.View
	number  uint64 // the highest revision sent
	drained uint64 // a revision to be told as drained; 0 for none
	// provisional is whether the client was last told that its view is.
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
	w := &watch{s: s, stream: stream, end: end, client: ClientOf(ctx), first: make(chan *firstRequest, 1), started: make(chan struct{})}
	w.inFlight = inFlight{timeout: s.cfg.StallTimeout, stalled: w.stalled}
	defer w.inFlight.close()
	// Compressed, a message would be held once for each client, and not be known to have left.
	if err := grpc.SetSendCompressor(stream.Context(), encoding.Identity); err != nil {
		s.log.Debug("answers may be compressed", "err", err)
	}
	// The reader ends when the stream does, that is soon after this returns; close
	// waits for it.
	go w.read(ctx)
	err := w.serve(ctx)
	if ctx.Err() != nil {
		err = endError(ctx)
	}
	s.noteEnd(w, err)
	return err
}

// ClientOf is whose budget a call counts to: the app's by its certificate, or the address's.
func ClientOf(ctx context.Context) string {
	if id, ok := identity.FromContext(ctx); ok {
		return id.App.String()
	}
	if p, ok := peer.FromContext(ctx); ok {
		return bounded.ClientOf(p.Addr).String()
	}
	return ""
}

// stalled ends a stream whose client does not read. To end the stream alone would not do:
// its end waits behind what the client does not take.
func (w *watch) stalled() {
	w.end(status.Errorf(codes.DeadlineExceeded, "the client has taken nothing for %s", w.s.cfg.StallTimeout))
	p, ok := peer.FromContext(w.stream.Context())
	if !ok || w.s.cfg.Hangup == nil {
		return
	}
	w.s.throttled.Warn("stalled "+w.client, "closed the connection of a client that does not read", "client", w.client, "remote", p.Addr.String(), "after", w.s.cfg.StallTimeout)
	w.s.cfg.Hangup(p.Addr)
}

// note counts and logs how a stream ended.
func (s *Server) noteEnd(w *watch, err error) {
	code := status.Code(err)
	if code == codes.OK || code == codes.Canceled {
		return
	}
	s.metrics.refused.WithLabelValues(code.String()).Inc()
	if w.hello != nil {
		s.log.Debug("ended a stream", "app", w.hello.app.String(), "err", err)
		return
	}
	s.log.Debug("refused a stream", "err", err)
}

// ending is why a stream's context has ended, as a gRPC status.
func endError(ctx context.Context) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, io.EOF): // the client has closed its side: it is done
		return nil
	case errors.Is(cause, context.Canceled), errors.Is(cause, context.DeadlineExceeded):
		return status.FromContextError(cause).Err()
	default:
		return cause
	}
}

// serve greets the client, registers its instance and follows its app's view.
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
		return endError(ctx)
	}
	w.s.metrics.open.Inc()
	defer w.s.metrics.open.Dec()
	if w.hello.instance != nil {
		w.held = &registration{instance: *w.hello.instance, superseded: func() { w.end(errSuperseded) }}
		if _, err := w.s.registry.request(ctx, register, w.held); err != nil {
			return unavailable(err)
		}
		// However the stream ends, its instance goes with it, and at once.
		defer func() { _, _ = w.s.registry.request(context.WithoutCancel(ctx), withdraw, w.held) }()
	}
	if err := w.s.topology.AtLeast(ctx, w.hello.app, w.hello.revision); err != nil {
		return unavailable(err)
	}
	w.number = w.hello.revision
	w.sub = w.s.topology.Subscribe(w.hello.app)
	defer w.sub.Close()
	who := &caller{app: w.hello.app, source: sourceOf(ctx), view: w.sub.View}
	w.s.evidence.add(who)
	defer w.s.evidence.remove(who)
	w.caller = who
	close(w.started)
	return w.follow(ctx)
}

func unavailable(err error) error {
	return status.Errorf(codes.Unavailable, "the instance can't be registered: %v", err)
}

// greet waits for the client's hello, and checks it.
func (w *watch) receiveHello(ctx context.Context) error {
	limit := time.NewTimer(w.s.cfg.HelloTimeout)
	defer limit.Stop()
	var req *firstRequest
	select {
	case req = <-w.first:
	case <-limit.C:
		return status.Errorf(codes.DeadlineExceeded, "no hello within %s", w.s.cfg.HelloTimeout)
	case <-ctx.Done():
		return endError(ctx)
	}
	h, err := parseHello(req, &w.s.cfg)
	if err != nil {
		return err
	}
	if err := authorizeOwn(ctx, h.app); err != nil {
		return err
	}
	if h.revision > maxPlausible(time.Now()) && h.revision > w.s.topology.Revision() {
		// It lies, or the clock of one of us is wrong. It is served as one without a revision,
		// and keeps the higher number itself.
		w.s.log.Debug("a client holds a revision beyond any that can have been given out; it is not counted on from there",
			"app", h.app.String(), "revision", h.revision)
		h.revision = 0
	}
	w.hello = h
	if h.known != nil {
		w.s.metrics.resumed.Inc()
	}
	return nil
}

// read takes the client's messages until the stream ends.
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
		var raw rawRequest
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

// readFirst reads the first message once there is room for the largest that it may be. Until
// then flow control holds the client back.
func (w *watch) readFirst(ctx context.Context) (*firstRequest, error) {
	release, err := w.s.hellos.Acquire(ctx, w.client, helloBytes)
	if err != nil {
		return nil, endError(ctx)
	}
	defer release()
	var raw rawRequest
	if err := w.stream.RecvMsg(&raw); err != nil {
		return nil, err
	}
	return parseFirstRequest(&raw, w.s.known, w.client, w.s.cfg.MaxKnown)
}

// maxLater bounds the messages after the first, in bytes.
const maxLaterBytes = 64 << 10

// later handles a message after the first.
func (w *watch) handle(ctx context.Context, raw *rawRequest) error {
	if len(raw.bytes) > maxLaterBytes {
		return status.Errorf(codes.ResourceExhausted, "a message of %d bytes after the hello; at most %d are taken", len(raw.bytes), maxLaterBytes)
	}
	req := &pb.WatchRequest{}
	if err := proto.Unmarshal(raw.bytes, req); err != nil {
		return malformed(err)
	}
	select {
	case <-w.started:
	case <-ctx.Done():
		return endError(ctx)
	}
	switch {
	case req.GetUnreached() != nil:
		return w.unreached(ctx, req.GetUnreached())
	case req.GetDrain() == nil:
		return status.Error(codes.FailedPrecondition, "only drain and unreached may follow the hello")
	case w.held == nil:
		return status.Error(codes.FailedPrecondition, "drain: the hello named no instance")
	}
	revision, err := w.s.registry.request(ctx, drain, w.held)
	if err != nil {
		return unavailable(err)
	}
	return w.send(revision)
}

// reportPause is the least time between two reports of a client that are read.
const reportPause = 100 * time.Millisecond

// unreached takes in what the client does not reach.
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
			return endError(ctx)
		}
	}
	until, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(w.s.settling, end)()
	var seen *catalog.View
	for {
		next, err := w.sub.Next(until, seen)
		if ctx.Err() != nil {
			return endError(ctx)
		}
		if err != nil { // the service has settled, which is to be told
			until, next = ctx, seen
			if next == nil {
				continue
			}
		}
		if next.Revision < w.floor() {
			// The app has lost its selection, and follows the default by now.
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

// send brings the client up to date: it sends what differs between the view that was
// sent last and the newest, if anything does. A drained other than 0 is the revision
// from which on views are without the instance, and is told in any case.
func (w *watch) send(drained uint64) error {
	w.sending.Lock()
	defer w.sending.Unlock()
	w.drained = max(w.drained, drained)
	provisional := w.s.settling.Err() == nil // of the view as it is read after this
	view, ok := w.sub.View()
	if !ok || view == w.sent && w.drained == 0 && w.provisional == provisional {
		return nil // before the first view, follow will send what is to be told
	}
	if provisional && w.hello.keeps && w.hello.known != nil {
		return w.confirmDrain(view)
	}
	msg, err := w.message(w.stream.Context(), view, provisional)
	if err != nil {
		return err
	}
	if err := w.inFlight.send(msg, w.stream.SendMsg); err != nil {
		return err
	}
	w.hello.known.release()
	w.hello.known = nil
	w.sent, w.drained, w.number, w.provisional = view, 0, max(w.number, msg.revision), provisional
	w.hello.known = nil
	w.s.metrics.updates.Inc()
	w.s.metrics.bytes.Add(float64(len(msg.encoded)))
	w.s.metrics.entries.Add(float64(msg.entries))
	return nil
}

// confirm tells a client that keeps the view that it has of its drain, and of nothing else.
func (w *watch) confirmDrain(view *catalog.View) error {
	revision := max(w.drained, w.number)
	if err := w.stream.Send(&pb.WatchResponse{Revision: revision, Open: view.Open, Rule: view.Rule, Drained: true, TakesUnreached: true}); err != nil {
		return err
	}
	w.drained, w.number = 0, revision
	return nil
}
