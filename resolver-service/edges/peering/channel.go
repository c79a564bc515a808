package peering

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// channel keeps one stream to a peer, on a connection of its own.
type channel struct {
	link     *link
	gateways *gateways
	object   *catalog.Cluster // as of the connection
	interval time.Duration    // of the renewals that it requests, as of the connection
	primary  bool             // it carries the exports, and connects even if the peer is not heard

	// open begins a stream.
	open func(ctx context.Context, conn *grpc.ClientConn) (receiver, error)
	// onStart receives, at the first message of a stream, a function that ends the stream. It may
	// be nil.
	onStart func(end context.CancelCauseFunc)
}

// receiver waits for the next message of a stream.
type receiver func() (incoming, error)

// incoming is a message of either kind of stream.
type incoming struct {
	echo    uint64
	service string                   // in the first of a stream: see namesakes
	apply   func(at time.Time) error // processes it as of a moment
}

// How long a stream may be silent before the channel makes a second connection. That one replaces
// the first unless a message arrives before.
const (
	firstMessageWithin = 5 * time.Second
	leastSilence       = time.Second
	silentRenewals     = 4
)

// silence is how long the stream may be silent.
func (c *channel) silence() time.Duration { return max(silentRenewals*c.interval, leastSilence) }

// How long a channel waits after a connection that failed after it was made.
const (
	brokenPause = 50 * time.Millisecond // at first; doubled each time
	brokenMost  = 700 * time.Millisecond
	refusedMost = 5 * time.Second // if retrying soon is no help
	spreadPause = 10 * time.Second
)

// run keeps the stream up until ctx ends.
func (c *channel) run(ctx context.Context) {
	var next *gatewayConn
	for failures := 0; ; {
		var changed <-chan struct{}
		c.object, _, changed = c.link.object.Follow()
		c.interval = renewInterval(c.object.StaleAfter)
		conn, err := next, error(nil)
		if conn == nil {
			if conn, err = c.connectWhenWanted(ctx); err != nil {
				return
			}
			c.link.reached.Store(true)
		}
		var heard bool
		if next, heard, err = c.runStream(ctx, conn); heard && !isRefusal(err) {
			failures = 0
		}
		if ctx.Err() != nil {
			c.discard(next)
			return
		}
		c.failed(c.object, err)
		failures++
		if next != nil {
			continue
		}
		select {
		case <-time.After(pauseAfter(err, failures-1)):
		case <-changed: // the trust may have changed
			failures = 0
		case <-ctx.Done():
			return
		}
	}
}

// connectWhenWanted makes a connection once one is wanted.
func (c *channel) connectWhenWanted(ctx context.Context) (*gatewayConn, error) {
	for {
		conn, err := c.connect(ctx, c.wanted)
		if err == nil || ctx.Err() != nil {
			return conn, err
		}
		for !c.wanted() {
			_, _, changed := c.link.status.heard.Follow()
			if c.wanted() {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
}

// wanted tells whether the channel is of use. A channel that only renews the lease waits until
// the peer is heard, or its lease is fresh.
func (c *channel) wanted() bool {
	heard, _ := c.link.status.heard.Load()
	return c.primary || heard || c.link.lease.state().fresh
}

func always() bool { return true }

// connectFailed records a failed attempt to connect, and ends the lease once all gateways refuse.
func (c *channel) connectFailed(err error) {
	object, _ := c.link.object.Load()
	c.failed(object, err)
	if heard, _ := c.link.status.heard.Load(); heard {
		return
	}
	if text, all := c.gateways.allRefuse(); all && c.link.lease.end(text) {
		c.link.recheckLease()
	}
}

// failed records why the channel is down, with the Cluster object that was used. Only the primary
// channel's error is logged.
func (c *channel) failed(by *catalog.Cluster, err error) {
	err = withRemedy(unwrapGRPC(err), c.link.identity.Insecure())
	if !c.primary {
		return
	}
	c.link.failures.Add(1)
	news := c.link.status.failed(by, err)
	c.link.recheckLease()
	if news {
		c.link.attemptFailed("peer unreachable; retrying, and its last state stands until its lease ends", "peer", c.link.cluster, "err", err)
	}
}

func (c *channel) discard(conn *gatewayConn) {
	if conn != nil {
		conn.Close()
		c.gateways.closed(conn.gateway, false, c.object, nil)
	}
}

func pauseAfter(err error, failures int) time.Duration {
	most := brokenMost
	if isRefusal(err) {
		most = refusedMost
	}
	return live.Jitter(live.Backoff(brokenPause, most, failures))
}

// wrongCluster is the error of a peer whose name is not that of its Cluster object.
type wrongCluster struct{ object, cluster string }

// Error has both names.
func (e wrongCluster) Error() string {
	return fmt.Sprintf("the Cluster object is named %q, but its gateways lead to cluster %.64q; correct metadata.name or spec.gateways",
		e.object, e.cluster)
}

// isRefusal tells whether retrying soon is no help: one end refuses the other, or the other end
// is no resolver service.
func isRefusal(err error) bool {
	switch status.Code(err) {
	case codes.PermissionDenied, codes.Unauthenticated, codes.FailedPrecondition, codes.InvalidArgument, codes.ResourceExhausted, codes.Internal, codes.Unimplemented:
		return true
	}
	return errors.As(err, &wrongCluster{}) || errors.As(err, &secondCluster{}) || strings.Contains(err.Error(), "identity: ") || strings.Contains(err.Error(), "certificate")
}

// errSilent ends a stream that another connection replaces. errNeverHeard is the same for a
// stream without any message.
var (
	errSilent     = errors.New("connected, but no further message arrived")
	errNeverHeard = errors.New("connected, but nothing was heard")
	errSpread     = errors.New("another gateway answers again, and each channel has one of its own")
)

// runStream runs one stream on a connection until it fails. heard tells whether any message
// arrived. next is a connection that was made while the stream was silent.
func (c *channel) runStream(ctx context.Context, conn *gatewayConn) (next *gatewayConn, heard bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	t := &clientStream{channel: c, arrivals: make(chan struct{}, 1), replacement: make(chan *gatewayConn, 1), cancel: cancel}
	go func() { t.replacement <- t.watchSilence(ctx, conn.gateway) }()
	err = t.read(ctx, conn)
	if cause := context.Cause(ctx); cause != nil && (status.Code(err) == codes.Canceled || errors.Is(err, context.Canceled)) {
		err = cause
	}
	if !t.heard && errors.Is(err, errSilent) {
		err = errNeverHeard
	}
	cancel(nil)
	next = <-t.replacement
	c.link.setHeard(t, false)
	if t.heard { // it did not fail for want of trust
		c.object, _ = c.link.object.Load()
	}
	c.gateways.closed(conn.gateway, t.heard, c.object, unwrapGRPC(err))
	return next, t.heard, err
}

// clientStream is one stream.
type clientStream struct {
	*channel
	cancel      context.CancelCauseFunc
	arrivals    chan struct{}     // signals a message
	replacement chan *gatewayConn // the result of watchSilence
	receiving   atomic.Bool       // a message is being processed: the delay is on this side
	heard       bool
	// Who answers; linkStatus.mu guards it.
	service string
	since   time.Time // the first message that did not say so
	at      string    // the gateway that it came by
}

// read reads the stream until it fails.
func (t *clientStream) read(ctx context.Context, conn *gatewayConn) error {
	recorder := newCloseRecorder(t.link.identity.PeerCredentials(t.link.cluster))
	client, err := t.link.client(conn, recorder)
	if err != nil {
		conn.Close()
		return err
	}
	defer client.Close()
	defer conn.Close() // first, so that nothing waits for bytes that can't be sent any more
	receive, err := t.open(ctx, client)
	for err == nil {
		err = t.next(conn, receive)
	}
	if why := recorder.reason(); why != nil {
		return why
	}
	return err
}

// next processes the next message.
func (t *clientStream) next(conn *gatewayConn, receive receiver) error {
	m, err := receive()
	if err != nil {
		return err
	}
	news, err := t.link.status.admit(t, t.link.cluster, conn.gateway.address, m.service)
	if news != "" {
		t.link.warn(news, "peer", t.link.cluster, "gateway", conn.gateway.address, "service", m.service, "err", err)
	}
	if err != nil {
		return err
	}
	at, age := t.link.pings.heardAt(m.echo)
	t.receiving.Store(true)
	err = m.apply(at)
	t.receiving.Store(false)
	if err != nil {
		return err
	}
	if !t.heard {
		t.heard = true
		if t.gateways.heard(conn.gateway) {
			t.link.info("gateway of a peer answers again", "peer", t.link.cluster, "gateway", conn.gateway.address)
		}
		if t.primary {
			t.link.status.failed(nil, nil)
		}
		if t.onStart != nil {
			t.onStart(t.cancel)
		}
	}
	if t.link.status.noteAnswer(age < echoGrace+t.silence()) {
		t.link.setHeard(t, true)
		select {
		case t.arrivals <- struct{}{}:
		default:
		}
	}
	return nil
}

// watchSilence waits until the stream, by way of gateway at, is silent, and then makes a second
// connection. It returns that connection once it has ended the stream for it, and nil when ctx ends.
// A channel that only renews the lease also moves to a gateway that has no channel, once it answers.
func (t *clientStream) watchSilence(ctx context.Context, at *gateway) *gatewayConn {
	timer := time.NewTimer(firstMessageWithin)
	defer timer.Stop()
	var spread <-chan time.Time
	if !t.primary {
		ticker := time.NewTicker(live.Jitter(spreadPause))
		defer ticker.Stop()
		spread = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.arrivals:
			timer.Reset(t.silence())
		case <-spread:
			if next := t.spread(ctx, at); next != nil {
				t.cancel(errSpread)
				return next
			}
		case <-timer.C:
			if t.receiving.Load() {
				timer.Reset(t.silence())
				continue
			}
			t.link.setHeard(t, false)
			if next, ended := t.replace(ctx); ended {
				return next
			}
			timer.Reset(t.silence())
		}
	}
}

// replace makes a second connection unless a message arrives first.
func (t *clientStream) replace(ctx context.Context) (next *gatewayConn, ended bool) {
	dialing, stop := context.WithCancel(ctx)
	made := make(chan *gatewayConn, 1)
	go func() {
		conn, _ := t.connect(dialing, always)
		made <- conn
	}()
	select {
	case next = <-made:
		stop()
		if next == nil { // ctx has ended
			return nil, true
		}
		t.cancel(errSilent)
		return next, true
	case <-t.arrivals:
		stop()
		t.discard(<-made)
		return nil, false
	}
}

// spread connects to a gateway that no channel goes through, if another channel shares gateway at.
func (t *clientStream) spread(ctx context.Context, at *gateway) *gatewayConn {
	idle := t.gateways.idle(at)
	if idle == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, silentAfter)
	defer cancel()
	conn, err := t.link.dial(limited, idle.address)
	if err != nil {
		t.gateways.failed(idle, err)
		return nil
	}
	t.gateways.connected(idle)
	return &gatewayConn{conn, idle}
}

// client returns a gRPC client on an existing connection. It never makes another one.
func (l *link) client(conn *gatewayConn, by credentials.TransportCredentials) (*grpc.ClientConn, error) {
	once := make(chan net.Conn, 1)
	once <- conn.Conn
	client, err := grpc.NewClient("passthrough:///"+conn.gateway.address,
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			select {
			case c := <-once:
				return c, nil
			default:
				return nil, errors.New("the connection has ended")
			}
		}),
		grpc.WithAuthority(l.cfg.Domain.PeerHost(l.cluster)),
		grpc.WithTransportCredentials(by),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: time.Hour, Multiplier: 1, MaxDelay: time.Hour}, MinConnectTimeout: 2 * firstMessageWithin,
		}),
		grpc.WithIdleTimeout(0),
		// Fixed windows bound how much a peer can make this service buffer.
		grpc.WithInitialWindowSize(peerWindow), grpc.WithInitialConnWindowSize(peerWindow),
		grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to the resolver service of cluster %s: %w", l.cluster, err)
	}
	return client, nil
}

// peerWindow is how many bytes of a peer may wait to be processed.
const peerWindow = 1 << 20

// maxReason bounds the error text of a peer that is logged and shown, in bytes.
const maxReason = 1 << 10

// unwrapGRPC returns an error without gRPC's wrapping.
func unwrapGRPC(err error) error {
	s, ok := status.FromError(err)
	if !ok || err == nil {
		return err
	}
	message := catalog.Clip(s.Message(), maxReason) // the peer may have written it
	for _, wrapping := range []string{`connection error: desc = "`, "transport: Error while dialing: ", "transport: "} {
		if i := strings.LastIndex(message, wrapping); i >= 0 {
			message = message[i+len(wrapping):]
		}
	}
	message = strings.ReplaceAll(strings.TrimSuffix(message, `"`), `\"`, `"`)
	return errors.New(catalog.Printable(localAddress.ReplaceAllString(message, "$1 ")))
}

// localAddress matches this end of a connection in an error, which differs each time.
var localAddress = regexp.MustCompile(`\b((?:read|write) tcp) \S+->`)
