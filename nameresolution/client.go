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
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// How a client comes back to a service that it has lost.
const (
	firstRetry = 100 * time.Millisecond // the longest wait after the first failure
	lastRetry  = 10 * time.Second       // the longest wait at all
	healthy    = 10 * time.Second       // how long a stream must live for the next failure to count as the first
)

// maxViewBytes is the longest message taken from the service: a whole view of many
// apps is one message.
const maxViewBytes = 512 << 20

// maxKnown is how many entries a hello may name; services take no more. Who has more
// starts afresh.
const maxKnown = 100_000

// client keeps a stream of an app's view, and with it this sidecar's registration.
type client struct {
	target      string
	credentials credentials.TransportCredentials
	app         catalog.App
	instance    *pb.Instance
	log         *slog.Logger
	contact     *contact
	publish     func(*mirror)

	mirror *mirror // of run's goroutine; nil before the first view

	ready   context.Context // ends when the instance may be registered
	hailed  atomic.Bool     // a service was told of the instance
	drain   context.Context // ends when the instance must leave views
	leave   context.CancelFunc
	drained chan struct{} // closed once views are without the instance
	once    sync.Once     // closes drained
}

// run keeps the stream open until ctx ends.
func (c *client) run(ctx context.Context) {
	for failures := 0; ; failures++ {
		start, ready := time.Now(), c.ready.Err() != nil
		err := c.session(ctx, ready)
		if ctx.Err() != nil {
			return
		}
		if !ready && c.ready.Err() != nil {
			failures = -1 // it was ended to come back and register
			continue
		}
		c.contact.lose(err)
		if time.Since(start) > healthy {
			failures = 0
		}
		select {
		case <-time.After(wait(failures)):
		case <-ctx.Done():
			return
		}
	}
}

// wait is how long to wait after so many failures before: anything up to a bound that
// doubles each time, so that many sidecars which lost one service don't come back in
// step.
func wait(failures int) time.Duration {
	return rand.N(min(firstRetry<<min(failures, 16), lastRetry))
}

// dial makes a connection that is used for one stream: coming back, and when, is
// run's to decide.
func (c *client) dial() (*grpc.ClientConn, error) {
	return grpc.NewClient(c.target,
		grpc.WithTransportCredentials(c.credentials),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 5 * time.Second}),
		// A service that died silently is noticed within 15 s.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
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
// instance is ready, the stream is for the view alone, and ends when it gets ready.
func (c *client) session(ctx context.Context, ready bool) error {
	conn, err := c.dial()
	if err != nil {
		return fmt.Errorf("resolver service %s: %w", c.target, err)
	}
	defer func() { _ = conn.Close() }() // nothing is lost: the stream has ended
	ctx, end := context.WithCancel(ctx)
	defer end()
	if !ready {
		defer context.AfterFunc(c.ready, end)()
	}
	stream, err := pb.NewResolverClient(conn).Watch(ctx)
	if err == nil {
		err = c.follow(stream, ready && (c.drain.Err() == nil || c.hailed.Load()))
	}
	return fmt.Errorf("resolver service %s: %w", c.target, explained(err))
}

// follow says hello, with the instance if it is to be registered, and takes in what
// comes.
func (c *client) follow(stream pb.Resolver_WatchClient, register bool) error {
	base := c.mirror
	if base != nil && base.digests.Len() > maxKnown {
		base = nil
	}
	hello := &pb.Hello{App: wire.App(c.app), Revision: c.mirror.revision(), Known: base.known()}
	if register {
		hello.Instance = c.instance
	}
	if err := stream.Send(&pb.WatchRequest{Request: &pb.WatchRequest_Hello{Hello: hello}}); err != nil {
		return errors.Join(last(stream), err)
	}
	c.contact.reach("resolver service " + c.target)
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
			c.contact.gain(c.target)
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
	next.view.Revision = max(next.view.Revision, c.mirror.revision())
	c.mirror = next
	c.publish(next)
	if change.Drained {
		c.once.Do(func() { close(c.drained) })
	}
}
