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
)

// channel keeps one stream to a peer, on a connection of its own.
type channel struct {
	link     *link
	gateways *gateways
	object   *catalog.Cluster // as of the connection
	interval time.Duration    // how often the peer is asked for a word; the same
	primary  bool             // it connects whether or not the peer is heard

	// open begins a stream.
	open func(ctx context.Context, conn *grpc.ClientConn) (receiver, error)
	// begins is told, from the first word of a stream on, how to end it. It may be nil.
	onStart func(end context.CancelCauseFunc)
}

// receiver waits for the next message of a stream.
type receiver func() (incoming, error)

// incoming is a message of either kind of stream.
type incoming struct {
	echo  uint64
	apply func(at time.Time) error // takes it in, as a word that counts as of then
}

// How long a stream may be silent before a connection is made beside it, to replace it
// if that can be made first.
const (
	firstMessageWithin = 5 * time.Second
	leastSilence       = time.Second
	silentRenewals     = 4
)

// silence is how long the channel may be.
func (c *channel) silence() time.Duration { return max(silentRenewals*c.interval, leastSilence) }

// How long a channel waits after a connection that could be made and was no good.
const (
	brokenPause = 50 * time.Millisecond // at first, and twice as long each time
	brokenMost  = 700 * time.Millisecond
	refusedMost = 5 * time.Second // where trying again is no help
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
		case <-changed: // whom to trust, perhaps
			failures = 0
		case <-ctx.Done():
			return
		}
	}
}

// reach makes a connection once one is wanted.
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

// wanted tells whether the channel is of use: those that only renew the lease wait until
// the peer is heard, or was lately.
func (c *channel) wanted() bool {
	heard, _ := c.link.status.heard.Load()
	return c.primary || heard || c.link.lease.state().fresh
}

func always() bool { return true }

// unreachable notes an attempt to connect that failed, and ends the lease once all
// gateways refuse.
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

// failed notes why the channel is not up, by a Cluster object. What matters is the one with
// the exports.
func (c *channel) failed(by *catalog.Cluster, err error) {
	err = withRemedy(unwrapGRPC(err), c.link.identity.Insecure())
	if c.primary && c.link.status.failed(by, err) {
		c.link.warn("peer unreachable; retrying, and its last state stands until its lease ends", "peer", c.link.cluster, "err", err)
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
	return jitter(min(brokenPause<<min(failures, 10), most))
}

// misnamed is the error of a peer under another name than its Cluster object has.
type wrongCluster struct{ object, cluster string }

// Error has both names.
func (e wrongCluster) Error() string {
	return fmt.Sprintf("the Cluster object is named %q, but its gateways lead to cluster %.64q; correct metadata.name or spec.gateways",
		e.object, e.cluster)
}

// unwanted tells whether it is of little use to try again soon: one end refuses the other,
// or what answers there is no resolver service.
func isRefusal(err error) bool {
	switch status.Code(err) {
	case codes.PermissionDenied, codes.Unauthenticated, codes.FailedPrecondition, codes.InvalidArgument, codes.ResourceExhausted, codes.Internal, codes.Unimplemented:
		return true
	}
	return errors.As(err, &wrongCluster{}) || strings.Contains(err.Error(), "identity: ") || strings.Contains(err.Error(), "certificate")
}

// errSilent ends a stream that another connection replaces; errNothing is the same where no
// word came on it.
var (
	errSilent     = errors.New("connected, but nothing more was heard")
	errNeverHeard = errors.New("connected, but nothing was heard")
)

// converse has one stream on a connection until it fails, and tells whether anything was
// heard. next is a connection that was made when it had fallen silent.
func (c *channel) runStream(ctx context.Context, conn *gatewayConn) (next *gatewayConn, heard bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	t := &clientStream{channel: c, arrivals: make(chan struct{}, 1), replacement: make(chan *gatewayConn, 1), cancel: cancel}
	go func() { t.replacement <- t.watchSilence(ctx) }()
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
	if t.heard { // whom to trust was not what it failed for
		c.object, _ = c.link.object.Load()
	}
	c.gateways.closed(conn.gateway, t.heard, c.object, unwrapGRPC(err))
	return next, t.heard, err
}

// talk is one stream.
type clientStream struct {
	*channel
	cancel      context.CancelCauseFunc
	arrivals    chan struct{}     // a word came
	replacement chan *gatewayConn // what came of the watch
	receiving   atomic.Bool       // a message is being taken in: the silence is this end's
	heard       bool
}

// stream reads the stream until it fails.
func (t *clientStream) read(ctx context.Context, conn *gatewayConn) error {
	opening := newCloseRecorder(t.link.identity.PeerCredentials(t.link.cfg.Namespace, t.link.cluster))
	client, err := t.link.client(conn, opening)
	if err != nil {
		conn.Close()
		return err
	}
	defer client.Close()
	defer conn.Close() // first, so that nobody waits for what can't be sent any more
	receive, err := t.open(ctx, client)
	for err == nil {
		err = t.next(conn, receive)
	}
	if why := opening.reason(); why != nil {
		return why
	}
	return err
}

// next takes in the next message.
func (t *clientStream) next(conn *gatewayConn, receive receiver) error {
	m, err := receive()
	if err != nil {
		return err
	}
	at, age := t.link.heardAt(m.echo)
	t.receiving.Store(true)
	err = m.apply(at)
	t.receiving.Store(false)
	if err != nil {
		return err
	}
	if !t.heard {
		t.heard = true
		t.gateways.heard(conn.gateway)
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

// watch waits for the stream to fall silent, and then makes a connection beside it. It
// returns the connection once it has ended the stream for it, and nil once ctx ends.
func (t *clientStream) watchSilence(ctx context.Context) *gatewayConn {
	timer := time.NewTimer(firstMessageWithin)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.arrivals:
			timer.Reset(t.silence())
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

// beside makes a connection unless a word comes first.
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

// client speaks gRPC on a connection that there is, and makes no other.
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
		// Windows that don't grow: they bound what a peer can have lying here.
		grpc.WithInitialWindowSize(peerWindow), grpc.WithInitialConnWindowSize(peerWindow),
		grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
	)
	if err != nil {
		return nil, fmt.Errorf("speak to the resolver service of cluster %s: %w", l.cluster, err)
	}
	return client, nil
}

// peerWindow is how much of what a peer says may wait to be taken in, in bytes.
const peerWindow = 1 << 20

// maxReason is how much of what a peer gives as its reason is logged and told, in bytes.
const maxReason = 1 << 10

// plain is an error without what gRPC wraps it in.
func unwrapGRPC(err error) error {
	s, ok := status.FromError(err)
	if !ok || err == nil {
		return err
	}
	message := s.Message()
	if len(message) > maxReason { // the peer may have written it
		message = message[:maxReason] + "…"
	}
	for _, wrapping := range []string{`connection error: desc = "`, "transport: Error while dialing: ", "transport: "} {
		if i := strings.LastIndex(message, wrapping); i >= 0 {
			message = message[i+len(wrapping):]
		}
	}
	message = strings.ReplaceAll(strings.TrimSuffix(message, `"`), `\"`, `"`)
	return errors.New(printable(localAddress.ReplaceAllString(message, "$1 ")))
}

// ownEnd is this end of a connection in an error: it is another one each time.
var localAddress = regexp.MustCompile(`\b((?:read|write) tcp) \S+->`)
