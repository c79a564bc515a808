package nameresolution

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// How a client comes back to a service that it has lost.
const (
	firstRetry = 100 * time.Millisecond // the longest wait after the first failure
	lastRetry  = 10 * time.Second       // the longest wait at all
	healthy    = 10 * time.Second       // how long a stream must live for the next failure to count as the first

	firstWord        = 3 * time.Second // how long a replica may keep silent while there are others
	longestFirstWord = 30 * time.Second
)

// maxViewBytes is the longest message taken from the service: a whole view of many
// apps is one message.
const maxViewBytes = 512 << 20

// Bounds of the entries that a hello names, as services take them: how many, and their bytes
// in the message. A client with more starts afresh.
const (
	maxKnown      = 20_000
	maxKnownBytes = 1<<20 - 16<<10
)

// client keeps a stream of an app's view, and with it this sidecar's registration.
type client struct {
	replicas    *replicas
	credentials credentials.TransportCredentials
	app         catalog.App
	instance    *pb.Instance
	log         *slog.Logger
	contact     *contact
	publish     func(*mirror)

	// Of run's goroutine.
	mirror *mirror // nil before the first view
	heard  bool    // the service, on the stream of now
	afresh bool    // the service refused a hello for what it named; the next one names nothing

	ready   context.Context // ends when the instance may be registered
	hailed  atomic.Bool     // a service was told of the instance
	drain   context.Context // ends when the instance must leave views
	leave   context.CancelFunc
	drained chan struct{} // closed once views are without the instance
	once    sync.Once     // closes drained
}

// run keeps the stream open until ctx ends. A replica of the service that is lost makes
// room for the next at once; after all were tried in vain there is a pause.
func (c *client) run(ctx context.Context) {
	var last replica
	for failures := 0; ; failures++ {
		lived := c.tryEach(ctx, &last, failures)
		if ctx.Err() != nil {
			return
		}
		if lived {
			failures = -1 // the next round is the first
			if c.replicas.several() {
				continue
			}
		}
		select {
		case <-time.After(wait(max(failures, 0))):
		case <-ctx.Done():
			return
		}
	}
}

// tryEach tries each replica once, last after the others; last becomes the one that was
// tried last. It returns before the end of the round, and true, when a stream has ended
// that lived for a while.
func (c *client) tryEach(ctx context.Context, last *replica, failures int) (lived bool) {
	var errs []error
	round := c.replicas.round(*last)
	for {
		to, ok, err := round.take(ctx)
		if !ok {
			return false
		}
		start := time.Now()
		if err == nil {
			*last, c.heard = to, false
			err = c.sessions(ctx, to, failures)
		}
		if ctx.Err() != nil {
			return false
		}
		errs = append(errs, err)
		c.contact.lose(errors.Join(errs...))
		if c.heard && time.Since(start) > healthy {
			return true
		}
	}
}

// sessions are the streams to one replica: one, and one more where the first was ended
// to come back and register.
func (c *client) sessions(ctx context.Context, to replica, failures int) error {
	for {
		ready := c.ready.Err() != nil
		err := c.session(ctx, to, ready, c.patience(failures))
		if ctx.Err() != nil || ready || c.ready.Err() == nil {
			return err
		}
	}
}

// patience is how long a replica may keep silent before another is tried; 0 is for ever,
// where there is no other. It grows, as all replicas may be busy.
func (c *client) patience(failures int) time.Duration {
	if !c.replicas.several() {
		return 0
	}
	return min(firstWord<<min(failures, 16), longestFirstWord)
}

// wait is how long to wait after so many failures before: anything up to a bound that
// doubles each time, so that many sidecars which lost one service don't come back in
// step.
func wait(failures int) time.Duration {
	return rand.N(min(firstRetry<<min(failures, 16), lastRetry))
}

// dial makes a connection that is used for one stream: coming back, and when, is
// run's to decide.
func (c *client) dial(to replica) (*grpc.ClientConn, error) {
	return grpc.NewClient(to.target,
		grpc.WithTransportCredentials(c.credentials),
		grpc.WithAuthority(to.authority()),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 5 * time.Second}),
		// A service that died silently is noticed within 13 s: before another replica gives up
		// what was registered with it, by instances.etcd.ttl.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxViewBytes)),
		grpc.WithSharedWriteBuffer(true),
		grpc.WithReadBufferSize(4<<10),
		grpc.WithWriteBufferSize(4<<10),
		// Windows that don't grow: measuring how far they might costs a ping for every
		// message.
		grpc.WithStaticStreamWindowSize(256<<10),
		grpc.WithStaticConnWindowSize(256<<10),
	)
}

// session is one stream from hello to its end, which always has a reason. Before the
// instance is ready, the stream is for the view alone, and ends when it gets ready. It
// ends too when there is no word for as long as patience; 0 is no limit.
func (c *client) session(ctx context.Context, to replica, ready bool, patience time.Duration) error {
	conn, err := c.dial(to)
	if err != nil {
		return fmt.Errorf("resolver service %s: %w", to, err)
	}
	defer func() { _ = conn.Close() }() // nothing is lost: the stream has ended
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if !ready {
		defer context.AfterFunc(c.ready, func() { end(nil) })()
	}
	heard := func() {}
	if patience > 0 {
		timer := time.AfterFunc(patience, func() { end(fmt.Errorf("it said nothing for %s, and there are others", patience)) })
		heard = func() { timer.Stop() }
		defer heard()
	}
	stream, err := pb.NewResolverClient(conn).Watch(ctx)
	if err == nil {
		err = c.follow(stream, to, ready && (c.drain.Err() == nil || c.hailed.Load()), heard)
		c.afresh = c.afresh || status.Code(err) == codes.ResourceExhausted
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return fmt.Errorf("resolver service %s: %w", to, explained(err))
}

// follow says hello, with the instance if it is to be registered, and takes in what
// comes. heard is called before the first of it is.
func (c *client) follow(stream pb.Resolver_WatchClient, to replica, register bool, heard func()) error {
	if c.contact.away() > provisionalFor {
		c.mirror = c.mirror.final()
	}
	base := c.mirror
	if c.afresh || !base.fits(maxKnown, maxKnownBytes) {
		base = nil
	}
	hello := &pb.Hello{App: wire.App(c.app), Revision: c.mirror.revision(), Known: base.known(), Provisional: c.mirror != nil && c.mirror.provisional}
	if register {
		hello.Instance = &pb.Instance{Id: c.instance.Id, Address: c.instance.Address, Draining: c.drain.Err() != nil}
	}
	if err := stream.Send(&pb.WatchRequest{Request: &pb.WatchRequest_Hello{Hello: hello}}); err != nil {
		return errors.Join(last(stream), err)
	}
	c.contact.reach("resolver service " + to.String())
	if register {
		c.hailed.Store(true)
		defer c.drainThrough(stream)()
	}
	for first := true; ; first = false {
		change, err := stream.Recv()
		if err != nil {
			return err
		}
		if first {
			heard()
			c.heard, c.afresh = true, false
			c.contact.gain(to.String())
		} else {
			base = c.mirror
		}
		c.take(base, change)
	}
}

// drainThrough says on a stream that the instance drains, now or when the time comes. It
// returns what ends that.
func (c *client) drainThrough(stream pb.Resolver_WatchClient) (end func()) {
	said := make(chan struct{})
	stop := context.AfterFunc(c.drain, func() {
		defer close(said)
		// A failure is that of the stream, which Recv returns.
		_ = stream.Send(&pb.WatchRequest{Request: &pb.WatchRequest_Drain{Drain: &pb.Drain{}}})
	})
	return func() {
		if !stop() {
			<-said
		}
	}
}

// last is why a stream on which nothing can be sent has ended.
func last(stream pb.Resolver_WatchClient) error {
	_, err := stream.Recv()
	return err
}

func (c *client) take(base *mirror, change *pb.WatchResponse) {
	next, err := base.with(change)
	if err != nil {
		c.log.Warn("a part of the view can't be read, and what stood before stays; is the service newer than this sidecar?",
			"err", err, "app", c.app.String(), "revision", change.Revision)
	}
	// base is not all that there was where that was too much to name.
	next.view.Revision = max(next.view.Revision, c.mirror.revision())
	next.provisional = next.provisional && c.mirror.first()
	c.mirror = next
	c.publish(next)
	if change.Drained {
		c.once.Do(func() { close(c.drained) })
	}
}
