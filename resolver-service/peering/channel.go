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
	renew    time.Duration    // how often the peer is asked for a word; the same
	leading  bool             // it connects whether or not the peer is heard

	// open begins a stream.
	open func(ctx context.Context, conn *grpc.ClientConn) (receiver, error)
	// begins is told, from the first word of a stream on, how to end it. It may be nil.
	begins func(end context.CancelCauseFunc)
}

// receiver waits for the next message of a stream.
type receiver func() (incoming, error)

// incoming is a message of either kind of stream.
type incoming struct {
	echo uint64
	take func(at time.Time) error // takes it in, as a word that counts as of then
}

// How long a stream may be silent before a connection is made beside it, to replace it
// if that can be made first.
const (
	firstWordWithin = 5 * time.Second
	leastSilence    = time.Second
	silentRenewals  = 4
)

// silence is how long the channel may be.
func (c *channel) silence() time.Duration { return max(silentRenewals*c.renew, leastSilence) }

// How long a channel waits after a connection that could be made and was no good.
const (
	brokenPause  = 50 * time.Millisecond // at first, and twice as long each time
	brokenMost   = 700 * time.Millisecond
	unwantedMost = 5 * time.Second // where trying again is no help
)

// run keeps the stream up until ctx ends.
func (c *channel) run(ctx context.Context) {
	var next *reached
	for failures := 0; ; {
		var changed <-chan struct{}
		c.object, _, changed = c.link.object.Follow()
		c.renew = renewEvery(c.object.StaleAfter)
		conn, err := next, error(nil)
		if conn == nil {
			if conn, err = c.reach(ctx); err != nil {
				return
			}
		}
		var heard bool
		if next, heard, err = c.converse(ctx, conn); heard && !unwanted(err) {
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
func (c *channel) reach(ctx context.Context) (*reached, error) {
	for {
		conn, err := c.connect(ctx, c.wanted)
		if err == nil || ctx.Err() != nil {
			return conn, err
		}
		for !c.wanted() {
			_, _, changed := c.link.status.hearing.Follow()
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
	heard, _ := c.link.status.hearing.Load()
	return c.leading || heard || c.link.lease.state().fresh
}

func always() bool { return true }

// unreachable notes an attempt to connect that failed, and ends the lease once all
// gateways refuse.
func (c *channel) unreachable(err error) {
	object, _ := c.link.object.Load()
	c.failed(object, err)
	if heard, _ := c.link.status.hearing.Load(); heard {
		return
	}
	if text, all := c.gateways.refuse(); all && c.link.lease.end(text) {
		c.link.rouse()
	}
}

// failed notes why the channel is not up, by a Cluster object. What matters is the one with
// the exports.
func (c *channel) failed(by *catalog.Cluster, err error) {
	err = advised(plain(err), c.link.identity.Insecure())
	if c.leading && c.link.status.failed(by, err) {
		c.link.lines.warn("peer out of reach; trying again", "peer", c.link.cluster, "err", err)
	}
}

func (c *channel) discard(conn *reached) {
	if conn != nil {
		conn.Close()
		c.gateways.left(conn.gateway, false, c.object, nil)
	}
}

func pauseAfter(err error, failures int) time.Duration {
	most := brokenMost
	if unwanted(err) {
		most = unwantedMost
	}
	return spread(min(brokenPause<<min(failures, 10), most))
}

// misnamed is the error of a peer under another name than its Cluster object has.
type misnamed struct{ object, cluster string }

// Error has both names.
func (e misnamed) Error() string {
	return fmt.Sprintf("the Cluster object is named %q, but its gateways lead to cluster %.64q; correct metadata.name or spec.gateways",
		e.object, e.cluster)
}

// unwanted tells whether it is of little use to try again soon: one end refuses the other,
// or what answers there is no resolver service.
func unwanted(err error) bool {
	switch status.Code(err) {
	case codes.PermissionDenied, codes.Unauthenticated, codes.FailedPrecondition, codes.InvalidArgument, codes.ResourceExhausted, codes.Internal, codes.Unimplemented:
		return true
	}
	return errors.As(err, &misnamed{}) || strings.Contains(err.Error(), "identity: ") || strings.Contains(err.Error(), "certificate")
}

// errSilent ends a stream that another connection replaces; errNothing is the same where no
// word came on it.
var (
	errSilent  = errors.New("connected, but nothing more was heard")
	errNothing = errors.New("connected, but nothing was heard")
)

// converse has one stream on a connection until it fails, and tells whether anything was
// heard. next is a connection that was made when it had fallen silent.
func (c *channel) converse(ctx context.Context, conn *reached) (next *reached, heard bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	t := &talk{channel: c, beats: make(chan struct{}, 1), watched: make(chan *reached, 1), cancel: cancel}
	go func() { t.watched <- t.watch(ctx) }()
	err = t.stream(ctx, conn)
	if cause := context.Cause(ctx); cause != nil && (status.Code(err) == codes.Canceled || errors.Is(err, context.Canceled)) {
		err = cause
	}
	if !t.heard && errors.Is(err, errSilent) {
		err = errNothing
	}
	cancel(nil)
	next = <-t.watched
	c.link.speaks(t, false)
	if t.heard { // whom to trust was not what it failed for
		c.object, _ = c.link.object.Load()
	}
	c.gateways.left(conn.gateway, t.heard, c.object, plain(err))
	return next, t.heard, err
}

// talk is one stream.
type talk struct {
	*channel
	cancel  context.CancelCauseFunc
	beats   chan struct{} // a word came
	watched chan *reached // what came of the watch
	busy    atomic.Bool   // a message is being taken in: the silence is this end's
	heard   bool
}

// stream reads the stream until it fails.
func (t *talk) stream(ctx context.Context, conn *reached) error {
	opening := newOpening(t.link.identity.PeerCredentials(t.link.cfg.Namespace, t.link.cluster))
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
	if why := opening.why(); why != nil {
		return why
	}
	return err
}

// next takes in the next message.
func (t *talk) next(conn *reached, receive receiver) error {
	m, err := receive()
	if err != nil {
		return err
	}
	at, age := t.link.credit(m.echo)
	t.busy.Store(true)
	err = m.take(at)
	t.busy.Store(false)
	if err != nil {
		return err
	}
	if !t.heard {
		t.heard = true
		t.gateways.heard(conn.gateway)
		if t.leading {
			t.link.status.failed(nil, nil)
		}
		if t.begins != nil {
			t.begins(t.cancel)
		}
	}
	if t.link.status.answers(age < grace+t.silence()) {
		t.link.speaks(t, true)
		select {
		case t.beats <- struct{}{}:
		default:
		}
	}
	return nil
}

// watch waits for the stream to fall silent, and then makes a connection beside it. It
// returns the connection once it has ended the stream for it, and nil once ctx ends.
func (t *talk) watch(ctx context.Context) *reached {
	timer := time.NewTimer(firstWordWithin)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.beats:
			timer.Reset(t.silence())
		case <-timer.C:
			if t.busy.Load() {
				timer.Reset(t.silence())
				continue
			}
			t.link.speaks(t, false)
			if next, ended := t.beside(ctx); ended {
				return next
			}
			timer.Reset(t.silence())
		}
	}
}

// beside makes a connection unless a word comes first.
func (t *talk) beside(ctx context.Context) (next *reached, ended bool) {
	dialing, stop := context.WithCancel(ctx)
	made := make(chan *reached, 1)
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
	case <-t.beats:
		stop()
		t.discard(<-made)
		return nil, false
	}
}

// client speaks gRPC on a connection that there is, and makes no other.
func (l *link) client(conn *reached, by credentials.TransportCredentials) (*grpc.ClientConn, error) {
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
			Backoff: backoff.Config{BaseDelay: time.Hour, Multiplier: 1, MaxDelay: time.Hour}, MinConnectTimeout: 2 * firstWordWithin,
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
func plain(err error) error {
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
	return errors.New(printable(ownEnd.ReplaceAllString(message, "$1 ")))
}

// ownEnd is this end of a connection in an error: it is another one each time.
var ownEnd = regexp.MustCompile(`\b((?:read|write) tcp) \S+->`)
