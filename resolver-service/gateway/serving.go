package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// serving is the state of one call of [Gateway.Serve].
type serving struct {
	*Gateway
	relay  relay
	hellos *hellos
	open   atomic.Int64   // connections accepted and not yet closed
	conns  sync.WaitGroup // the same, to wait for
	dials  context.Context
	giveUp context.CancelFunc // ends dials
}

func (g *Gateway) newServing() (*serving, error) {
	s := &serving{Gateway: g, hellos: newHellos(g.cfg.MaxHellos)}
	r, err := g.newRelay(relayConfig{
		stall:   g.cfg.StallTimeout,
		traffic: &g.metrics.traffic,
		ended:   s.ended,
		logger:  g.cfg.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("gateway: start relay: %w", err)
	}
	s.relay = r
	s.dials, s.giveUp = context.WithCancel(context.Background())
	return s, nil
}

// longestBackoff is the longest pause after a failed accept.
const longestBackoff = time.Second

// accept takes connections until ctx ends (nil) or the listener is closed by
// somebody else. Every other error passes: most often descriptors have run out,
// and one comes back when a connection ends.
func (s *serving) accept(ctx context.Context, l net.Listener) error {
	var backoff time.Duration
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			backoff = 0
			s.admit(conn)
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("gateway: listener %s was closed: %w", l.Addr(), err)
		default:
			backoff = min(max(2*backoff, 5*time.Millisecond), longestBackoff)
			s.refused.acceptFailed(err, backoff)
			s.hellos.evict() // gives a descriptor back
			select {
			case <-time.After(backoff):
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// admit starts to serve a connection, or closes it when there are too many.
func (s *serving) admit(conn net.Conn) {
	client, ok := conn.(*net.TCPConn)
	if !ok {
		s.refused.log(refusal{reason: notTCP, from: conn.RemoteAddr()})
		conn.Close()
		return
	}
	s.metrics.accepted.Inc()
	if s.open.Add(1) > int64(s.cfg.MaxConnections) {
		s.open.Add(-1)
		s.refused.log(refusal{reason: tooMany, from: client.RemoteAddr()})
		reset(client)
		return
	}
	s.metrics.open.Add(1)
	s.conns.Add(1)
	h := s.hellos.add(client)
	s.metrics.hellos.Add(1)
	go s.welcome(h)
}

// ended is called once for each admitted connection, when it is closed.
func (s *serving) ended() {
	s.open.Add(-1)
	s.metrics.open.Add(-1)
	s.conns.Done()
}

// welcome reads what a client wants, connects it and hands it to the relay.
func (s *serving) welcome(h *halfOpen) {
	backend, refused := s.introduce(h)
	if refused != nil {
		refused.from = h.conn.RemoteAddr()
		s.refused.log(*refused)
		s.turnAway(h.conn, refused)
		s.ended()
		return
	}
	s.relay.pass(h.conn, backend)
}

// introduce is welcome up to the relay: it returns a connected backend to which all
// that was read from the client has been written.
func (s *serving) introduce(h *halfOpen) (*net.TCPConn, *refusal) {
	h.conn.SetDeadline(time.Now().Add(s.cfg.HelloTimeout))
	in := newReplay(h.conn)
	defer in.release()
	greeting, refused := s.greet(in)
	evicted := s.hellos.done(h)
	s.metrics.hellos.Add(-1)
	if evicted {
		return nil, &refusal{reason: helloEvicted}
	}
	if refused != nil {
		return nil, refused
	}
	to, refused := s.route(greeting)
	if refused != nil {
		return nil, refused
	}
	backend, refused := s.dial(to)
	if refused != nil {
		refused.host, refused.stream = greeting.host, greeting.stream
		return nil, refused
	}
	backend.SetWriteDeadline(time.Now().Add(s.cfg.DialTimeout))
	if _, err := backend.Write(greeting.bytes); err != nil {
		reset(backend)
		return nil, &refusal{reason: broken, host: greeting.host, stream: greeting.stream, err: err}
	}
	h.conn.SetDeadline(time.Time{})
	backend.SetDeadline(time.Time{})
	return backend, nil
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
	s.relay.close()
	<-idle
}

// reset closes a connection so that its peer sees a reset and no TIME_WAIT is left.
func reset(conn *net.TCPConn) {
	conn.SetLinger(0)
	conn.Close()
}
