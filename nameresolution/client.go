package nameresolution

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
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
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
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
	connect     func(ctx context.Context, address string) (net.Conn, error) // nil: as gRPC does
	app         catalog.App
	instance    *pb.Instance
	log         *slog.Logger
	contact     *contact
	publish     func(*mirror)
	version     string // for operators
	runtime     string
	plainText   bool
	unguarded   bool
	anchors     [][]byte // fingerprints of this sidecar's roots
	// renewal waits until the connection of a stream's context is to be made anew; its error
	// is that of the context.
	renewal func(context.Context) error

	// Of run's goroutine.
	mirror     *mirror // nil before the first view
	access     *access // nil before it is known who may call
	guard      *Guard
	heard      bool      // the service, on the stream of now
	afresh     bool      // the service refused a hello for what it named; the next one names nothing
	turnedAway time.Time // when a replica sent this client to another one last; zero for never

	ready          context.Context         // ends when the instance may be registered
	unwell         atomic.Pointer[string]  // why the instance can't take calls; nil: it can
	turned         chan struct{}           // has room for one: unwell has changed
	hailed         atomic.Bool             // a service was told of the instance
	reporting      sync.Mutex              // of those who store
	unreached      live.Value[*report]     // what calls don't get to
	refusals       *refusals               // lookups of this app that were refused
	made           func() []Made           // calls of this sidecar; nil: not known
	reportsOn      atomic.Pointer[channel] // that reports of calls go by; nil: none
	reportingCalls sync.Mutex              // guards reported and toldMade
	reported       map[callKey]Calls       // calls that the service was told of
	toldMade       map[madeKey]*told       // the same of calls that this sidecar made

	tap    *traffic.Tap // nil: it can't be tapped
	endTap func()       // of run's goroutine; nil: it is not tapped

	drain   context.Context // ends when the instance must leave views
	leave   context.CancelFunc
	drained chan struct{} // closed once views are without the instance
	once    sync.Once     // closes drained

	running sync.WaitGroup // goroutines of channels
}

// run keeps the stream open until ctx ends. A replica of the service that is lost makes
// room for the next at once; after all were tried in vain there is a pause.
func (c *client) run(ctx context.Context) {
	defer c.running.Wait()
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
	return live.Backoff(firstWord, longestFirstWord, failures)
}

// wait is how long to wait after so many failures before: anything up to a bound that
// doubles each time, so that many sidecars which lost one service don't come back in
// step.
func wait(failures int) time.Duration {
	return rand.N(live.Backoff(firstRetry, lastRetry, failures))
}

// dial makes a connection that is used for one stream: coming back, and when, is
// run's to decide.
func (c *client) dial(to replica) (*grpc.ClientConn, error) {
	options := []grpc.DialOption{
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
		grpc.WithReadBufferSize(4 << 10),
		grpc.WithWriteBufferSize(4 << 10),
		// Windows that don't grow: measuring how far they might costs a ping for every
		// message.
		grpc.WithStaticStreamWindowSize(256 << 10),
		grpc.WithStaticConnWindowSize(256 << 10),
	}
	if c.connect != nil {
		options = append(options, grpc.WithContextDialer(c.connect))
	}
	return grpc.NewClient(to.target, options...)
}

// session is the stream to one replica from hello to its end, which always has a reason, and
// the streams that take its place when certificates are renewed. Before the instance is
// ready, the stream is for the view alone, and ends when it gets ready. It ends too when
// there is no word for as long as patience; 0 is no limit.
func (c *client) session(ctx context.Context, to replica, ready bool, patience time.Duration) error {
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
	first, err := c.open(ctx, to, ready)
	if err == nil {
		c.contact.reach("resolver service " + to.String())
		err = c.follow(ctx, first, func() {
			heard()
			c.heard, c.afresh = true, false
			c.contact.gain(to.String())
		})
		c.afresh = c.afresh || status.Code(err) == codes.ResourceExhausted
	}
	c.noteTurnedAway(err)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return fmt.Errorf("resolver service %s: %w", to, explained(err))
}

// noteTurnedAway notes that a replica sent this client to another one, if it did. The next hello says
// so, and whoever can't tell that yet another one is better keeps this client.
func (c *client) noteTurnedAway(err error) {
	for _, detail := range status.Convert(err).Details() {
		if _, ok := detail.(*pb.TurnedAway); ok {
			c.turnedAway = time.Now()
		}
	}
}

// sinceTurnedAway is how long ago that was in milliseconds; 0 for never.
func (c *client) sinceTurnedAway() uint64 {
	if c.turnedAway.IsZero() {
		return 0
	}
	return uint64(max(time.Since(c.turnedAway).Milliseconds(), 1))
}

// follow takes in what comes on a channel. When the channel is to be renewed, or the
// instance gets ill or well, it opens another beside it, and goes over to that with its first word: so the instance stays
// registered, and no change is missed. heard is called at the first word of all.
func (c *client) follow(ctx context.Context, now *channel, heard func()) error {
	var next *channel // that is to take the place of now; nil while there is none
	defer func() {
		now.close()
		next.close()
	}()
	var late <-chan time.Time // next has had its time
	var renew <-chan struct{} = now.renew
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.turned:
			if now.registers { // with another hello, which says how the instance is
				next.close()
				next, late, renew = nil, nil, closedChannel
			}
		case r := <-now.received:
			if r.err != nil && next != nil {
				// The service may have ended it for next, whose first word is on its way.
				now.received = nil
				continue
			}
			if r.err != nil {
				return r.err
			}
			if !now.heard {
				heard()
			}
			c.take(now, r.change)
		case <-renew:
			renew = nil
			var err error
			if next, err = c.open(ctx, now.to, now.registers); err != nil {
				c.log.Debug("the stream can't be made anew for now", "resolver", now.to.String(), "err", err)
			}
			late = time.After(successionTimeout)
		case r := <-next.messages():
			if r.err == nil {
				c.take(next, r.change)
				now.close()
				now, next, late, renew = next, nil, nil, next.renew
				continue
			}
			if now.received == nil {
				return r.err // both have ended
			}
			c.noteTurnedAway(r.err)
			next.close()
			next = nil
		case <-late: // now goes on, and is renewed once more
			if now.received == nil {
				return errNoSuccessor
			}
			next.close()
			next, late, renew = nil, nil, closedChannel
		}
	}
}

// successionTimeout is how long a stream has for its first word that is to take another's
// place, and from one such attempt to the next.
const successionTimeout = 5 * time.Second

// errNoSuccessor ends a session whose stream has ended, while the one that was to take its
// place said nothing.
var errNoSuccessor = fmt.Errorf("the stream was made anew and has said nothing for %s", successionTimeout)

// closedChannel is always ready.
var closedChannel = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

// turn notes whether the instance can take calls: err is why it can't. Before it is ready
// nobody is sent there.
func (c *client) turn(err error) {
	var why *string
	if err != nil {
		text := err.Error()
		why = &text
	}
	if c.ready.Err() == nil || (c.unwell.Swap(why) != nil) == (err != nil) {
		return
	}
	if err != nil {
		c.log.Warn("the app can't take calls; this instance drains until it can", "app", c.app.String(), "err", err)
	} else {
		c.log.Info("the app can take calls again; this instance is ready", "app", c.app.String())
	}
	select {
	case c.turned <- struct{}{}:
	default:
	}
}

// draining tells whether the instance is to be in no view.
func (c *client) draining() bool { return c.drain.Err() != nil || c.unwell.Load() != nil }

// take takes in a message. The first on a channel is about the view that its hello named.
func (c *client) take(from *channel, change *pb.WatchResponse) {
	switch {
	case change.Access != nil:
		c.takeAccess(from, change.Access)
		return
	case change.Tap != nil:
		c.takeTap(from, change.Tap)
		return
	}
	if change.TellsAccess && !from.reportsCalls && from.registers {
		from.reportsCalls = true
		c.running.Go(func() { c.callReports(from.life, from) })
	}
	if !change.TellsAccess {
		c.access = &access{untold: true}
	}
	base := c.mirror
	if !from.heard {
		from.heard, base = true, from.base
	}
	from.base = nil
	if change.TakesUnreached && !from.reports {
		from.reports = true
		c.running.Go(func() { c.reports(from.life, from) })
	}
	next, err := base.with(change)
	if err != nil {
		c.log.Warn("a part of the view can't be read, and what stood before stays; is the service newer than this sidecar?",
			"err", err, "app", c.app.String(), "revision", change.Revision)
	}
	// base is not all that there was where that was too much to name.
	next.view.Revision = max(next.view.Revision, c.mirror.revision())
	next.provisional = next.provisional && c.mirror.first()
	c.publishMirror(next)
	if change.Drained {
		c.once.Do(func() { close(c.drained) })
	}
}

// publishMirror publishes a view, and who may call beside it.
func (c *client) publishMirror(m *mirror) {
	next := *m
	next.access, c.mirror = c.access, &next
	c.publish(&next)
}
