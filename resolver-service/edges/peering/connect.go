package peering

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// The pauses between attempts to connect. While the lease is fresh, attempts are frequent,
// because they decide whether it ends early. An attempt without an answer does not hold up the
// next one, whose first packet leaves sooner than a retransmission would.
const (
	refusedPause   = 100 * time.Millisecond // after a refusal, while the lease is fresh
	longestPause   = 900 * time.Millisecond // after many failures, without a lease
	unknownPause   = 2 * time.Second        // after a name that could not be resolved
	silentAfter    = 500 * time.Millisecond // without an answer, while the lease is fresh
	staleAttempt   = 900 * time.Millisecond // without an answer or a lease
	attemptWithin  = 3 * time.Second
	headStart      = 150 * time.Millisecond // of one gateway before the next
	maxAttempts    = 16                     // at a time, for each gateway
	keepAliveIdle  = 5 * time.Second
	keepAlivePause = 2 * time.Second
	keepAliveCount = 5
)

// gatewayConn is a connection, and the gateway that it goes through.
type gatewayConn struct {
	net.Conn
	gateway *gateway
}

// attempt is the result of one attempt to connect.
type attempt struct {
	which int
	conn  net.Conn
	err   error
}

// errUnwanted says that no connection is wanted any more.
var errUnwanted = errors.New("no connection is wanted")

// connect makes a connection to the first gateway that answers, until ctx ends or wanted returns
// false. The caller must return the connection to gateways.closed.
func (c *channel) connect(ctx context.Context, wanted func() bool) (*gatewayConn, error) {
	ctx, cancel := context.WithCancel(ctx)
	order, tried := c.gateways.tryOrder()
	defer tried()
	race := &dialRace{channel: c, wanted: wanted, order: order, results: make(chan attempt)}
	defer race.running.Wait()
	defer cancel()
	return race.run(ctx)
}

// dialRace tries all gateways of a cluster, and takes the first connection.
type dialRace struct {
	*channel
	wanted   func() bool
	order    []*gateway
	attempts []gatewayAttempts
	results  chan attempt
	running  sync.WaitGroup
}

// gatewayAttempts is the state of the attempts at one gateway.
type gatewayAttempts struct {
	next     time.Time // when the next one is due
	pending  int
	failures int
}

func (r *dialRace) run(ctx context.Context) (*gatewayConn, error) {
	r.attempts = make([]gatewayAttempts, len(r.order))
	for i := range r.attempts {
		r.attempts[i].next = time.Now().Add(time.Duration(i) * headStart)
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if !r.wanted() {
			return nil, errUnwanted
		}
		timer.Reset(time.Until(r.start(ctx)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		case a := <-r.results:
			if conn := r.finish(a); conn != nil {
				return conn, nil
			}
		}
	}
}

// start starts the attempts that are due, and returns when the next one is.
func (r *dialRace) start(ctx context.Context) (next time.Time) {
	now := time.Now()
	for i := range r.attempts {
		n := &r.attempts[i]
		if !now.Before(n.next) {
			if n.pending > 0 {
				r.gateways.silent(r.order[i])
			}
			if n.pending < maxAttempts {
				n.pending++
				r.running.Go(func() { r.attempt(ctx, i) })
			}
			n.next = now.Add(live.Jitter(r.attemptPause()))
		}
		if next.IsZero() || n.next.Before(next) {
			next = n.next
		}
	}
	return next
}

func (r *dialRace) attemptPause() time.Duration {
	if r.link.lease.state().fresh {
		return silentAfter
	}
	return staleAttempt
}

func (r *dialRace) attempt(ctx context.Context, which int) {
	limited, cancel := context.WithTimeoutCause(ctx, attemptWithin, errNoAnswer)
	defer cancel()
	conn, err := r.link.dial(limited, r.order[which].address)
	if err != nil && errors.Is(context.Cause(limited), errNoAnswer) {
		err = errNoAnswer
	}
	select {
	case r.results <- attempt{which, conn, err}:
	case <-ctx.Done():
		if err == nil {
			conn.Close()
		}
	}
}

var errNoAnswer = noAnswer{}

type noAnswer struct{}

// Error says how long the attempt waited.
func (noAnswer) Error() string { return fmt.Sprintf("no answer within %s", attemptWithin) }

// Timeout is true.
func (noAnswer) Timeout() bool { return true }

// finish processes the result of an attempt.
func (r *dialRace) finish(a attempt) *gatewayConn {
	n := &r.attempts[a.which]
	n.pending--
	at := r.order[a.which]
	if a.err == nil {
		r.gateways.connected(at)
		return &gatewayConn{a.conn, at}
	}
	if r.gateways.failed(at, a.err) {
		r.link.attemptFailed("gateway of a peer is not reached", "peer", r.link.cluster, "gateway", at.address, "err", a.err)
	}
	r.connectFailed(a.err)
	n.failures++
	if n.pending == 0 {
		n.next = time.Now().Add(live.Jitter(r.pause(a.err, n.failures)))
	}
	// A failure ends the head start of the other gateways.
	for i := range r.attempts {
		if o := &r.attempts[i]; o.failures == 0 && o.pending == 0 {
			o.next = time.Now()
		}
	}
	return nil
}

func (r *dialRace) pause(err error, failures int) time.Duration {
	var unknown *net.DNSError
	switch {
	case errors.As(err, &unknown):
		return unknownPause
	case r.link.lease.state().fresh:
		return refusedPause
	default:
		return live.Backoff(refusedPause, longestPause, failures)
	}
}

// byTunnel stands for a gateway's address where the cluster dials this one.
const byTunnel = "tunnel"

// ways are the addresses of a cluster's gateways, or byTunnel.
func ways(c *catalog.Cluster) []string {
	if c.Tunnel == catalog.TunnelAccept {
		return []string{byTunnel}
	}
	return c.Gateways
}

// dial makes one attempt.
func (l *link) dial(ctx context.Context, address string) (net.Conn, error) {
	if address == byTunnel && l.cfg.Tunnel != nil {
		return l.cfg.Tunnel(ctx, l.cluster)
	}
	if l.cfg.Dial != nil {
		return l.cfg.Dial(ctx, address)
	}
	// TCP_USER_TIMEOUT is not set. Linux counts it from the first lost packet for as long as any
	// is missing, which would break connections on a lossy path. The channel itself notices
	// silence.
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle, Interval: keepAlivePause, Count: keepAliveCount}}
	if l.cfg.Resolver != nil {
		d.Resolver = l.cfg.Resolver()
	}
	return d.DialContext(ctx, "tcp", address)
}
