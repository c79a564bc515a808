package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// serving is the state of one call of [Gateway.Serve] or [Gateway.ServeApp].
type serving struct {
	*Gateway
	only   catalog.App // zero: every app that is exported
	relay  relay
	hellos *hellos
	open   atomic.Int64   // connections accepted and not yet closed
	conns  sync.WaitGroup // the same, to wait for
	peers  peerConns      // those that Config.Peers took over
	dials  context.Context
	giveUp context.CancelFunc // ends dials
}

func (g *Gateway) newServing(only catalog.App) (*serving, error) {
	s := &serving{Gateway: g, only: only, hellos: newHellos(g.cfg.MaxHellos)}
	r, err := g.newRelay(relayConfig{
		stall:   g.cfg.StallTimeout,
		traffic: &g.metrics.traffic,
		ended:   s.ended,
		failed:  func(err error) { s.refused.acceptFailed(err, 0) },
		logger:  g.cfg.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("gateway: start relay: %w", err)
	}
	s.relay = r
	s.dials, s.giveUp = context.WithCancel(context.Background())
	return s, nil
}

// backoff is the pause after a failed accept. Most often descriptors have run out, and
// one comes back when a connection ends.
type backoff time.Duration

const (
	shortestBackoff = 5 * time.Millisecond
	longestBackoff  = time.Second
)

// next is the pause to make now.
func (b *backoff) next() time.Duration {
	*b = backoff(min(max(2*time.Duration(*b), shortestBackoff), longestBackoff))
	return time.Duration(*b)
}

// accept takes connections until ctx ends (nil) or the listener is closed by
// somebody else, in the way that works everywhere. Every other error passes.
func (s *serving) accept(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer l.Close()
	defer stop()
	var pause backoff
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			s.take(conn)
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("gateway: listener %s was closed: %w", l.Addr(), err)
		default:
			select {
			case <-time.After(s.acceptFailed(err, &pause)):
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// acceptFailed reports it, tries to give a descriptor back, and says how long to wait.
func (s *serving) acceptFailed(err error, b *backoff) time.Duration {
	pause := b.next()
	s.refused.acceptFailed(err, pause)
	s.hellos.evict()
	return pause
}

// take begins with a connection that was accepted.
func (s *serving) take(conn net.Conn) {
	client, ok := conn.(*net.TCPConn)
	if !ok {
		s.refused.log(refusal{reason: notTCP, from: conn.RemoteAddr()})
		conn.Close()
		return
	}
	if !s.admit() {
		s.refused.log(refusal{reason: tooMany, from: client.RemoteAddr()})
		reset(client)
		return
	}
	s.begin(newReplay(client), client)
}

// admit counts a connection in, unless there are too many.
func (s *serving) admit() bool {
	s.metrics.accepted.Inc()
	if s.open.Add(1) > int64(s.cfg.MaxConnections) {
		s.open.Add(-1)
		return false
	}
	s.metrics.open.Add(1)
	s.conns.Add(1)
	return true
}

// begin serves an admitted connection in a goroutine of its own.
func (s *serving) begin(in *replay, client *net.TCPConn) {
	h := s.hellos.add(client)
	s.metrics.hellos.Add(1)
	go s.welcome(h, in)
}

// ended is called once for each admitted connection, when it is closed, with the
// instance that had it, if any.
func (s *serving) ended(instance string) {
	s.loads.remove(instance)
	s.open.Add(-1)
	s.metrics.open.Add(-1)
	s.conns.Done()
}

// welcome reads what a client wants, and connects it.
func (s *serving) welcome(h *halfOpen, in *replay) {
	defer in.release()
	greeting, to, refused := s.meet(h, in)
	switch {
	case refused != nil:
	case to.ofPeers():
		s.handOver(h.conn, greeting)
	default:
		refused = s.connect(h.conn, greeting, to, nil)
	}
	if refused != nil {
		s.refuse(h.conn, refused)
	}
}

// meet reads what a client wants and chooses where that is.
func (s *serving) meet(h *halfOpen, in *replay) (greeting, destination, *refusal) {
	h.conn.SetDeadline(time.Now().Add(s.cfg.HelloTimeout))
	greeting, refused := s.greet(in)
	evicted := s.hellos.done(h)
	s.metrics.hellos.Add(-1)
	if evicted {
		refused = &refusal{reason: helloEvicted}
	}
	if refused != nil {
		return greeting, destination{}, refused
	}
	to, refused := s.route(greeting)
	return greeting, to, refused
}

// connect connects a client to one of a destination's instances, other than those that
// were tried, and hands both to the relay.
func (s *serving) connect(client *net.TCPConn, in greeting, to destination, tried *attempt) *refusal {
	backend, instance, refused := s.dial(in, to, tried)
	if refused != nil {
		refused.host, refused.stream = in.host, in.stream
		return refused
	}
	backend.SetWriteDeadline(time.Now().Add(s.cfg.DialTimeout))
	if _, err := backend.Write(in.bytes); err != nil {
		reset(backend)
		s.loads.remove(instance)
		return &refusal{reason: broken, app: to.app, host: in.host, stream: in.stream, err: err}
	}
	client.SetDeadline(time.Time{})
	backend.SetDeadline(time.Time{})
	s.relay.pass(client, backend, instance)
	return nil
}

// refuse counts a refusal, tells the client and closes its connection.
func (s *serving) refuse(client *net.TCPConn, r *refusal) {
	r.from = client.RemoteAddr()
	s.refused.log(*r)
	turnAway(client, r)
	s.ended("")
}

// drain waits until every connection has ended, or closes them when the time is up.
func (s *serving) drain(timeout time.Duration) {
	defer s.giveUp()
	idle := make(chan struct{})
	go func() {
		s.conns.Wait()
		close(idle)
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-idle:
		s.relay.close()
		return
	case <-timer.C:
	}
	s.cfg.Logger.Info("gateway closes connections that did not end in time", "connections", s.open.Load(), "timeout", timeout)
	s.giveUp()
	s.hellos.close()
	s.peers.close()
	s.relay.close()
	<-idle
}

// reset closes a connection so that its peer sees a reset and no TIME_WAIT is left.
func reset(conn *net.TCPConn) {
	conn.SetLinger(0)
	conn.Close()
}
