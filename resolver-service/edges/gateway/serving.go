package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/gateway/relay"
)

// serving is the state of one call of [Gateway.Serve] or [Gateway.ServeApp].
type serving struct {
	*Gateway
	only   catalog.App // zero: every app that is exported
	relay  relay.Relay // of TCP with TCP; nil where all clients are streams
	copies *relay.Copy // with streams
	hellos *hellos
	spare  *hellos        // those in the reserve
	open   atomic.Int64   // connections accepted and not yet closed
	conns  sync.WaitGroup // the same, to wait for
	peers  peerConns      // those that Config.Peers took over

	farewells atomic.Int64 // refused clients that are being told
	dials     context.Context
	giveUp    context.CancelFunc // ends dials
}

func (g *Gateway) newServing(only catalog.App, tcp bool) (*serving, error) {
	s := &serving{Gateway: g, only: only, hellos: newHellos(g.cfg.MaxHellos, g.cfg.shareOf(g.cfg.MaxHellos)), spare: newHellos(reserveOf(g.cfg.MaxPeers), reservedPerSource)}
	cfg := relay.Config{
		Stall:   g.cfg.StallTimeout,
		Answer:  g.cfg.AnswerTimeout,
		Connect: g.cfg.DialTimeout,
		Failed:  func(err error) { s.refused.acceptFailed(err, 0) },
		Logger:  g.cfg.Logger,
	}
	s.copies = relay.NewStreams(cfg)
	if tcp {
		r, err := g.newRelay(cfg)
		if err != nil {
			return nil, fmt.Errorf("gateway: start relay: %w", err)
		}
		s.relay = r
	}
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
	if !s.hellos.evict() {
		s.spare.evict()
	}
	return pause
}

// take begins with a connection that was accepted.
func (s *serving) take(conn net.Conn) {
	client, ok := conn.(relay.Conn)
	from, isTCP := conn.RemoteAddr().(*net.TCPAddr)
	if !ok || !isTCP {
		s.refused.log(refusal{reason: notTCP, err: fmt.Errorf("a connection from %v", conn.RemoteAddr())})
		conn.Close()
		return
	}
	a := s.admit(from.AddrPort())
	if a == nil {
		relay.Reset(client)
		return
	}
	s.begin(newReplay(client), client, a)
}

// admit counts a connection in. Where it is one too many, it may still ask for the resolver
// service; it is nil where there is none, and has been refused.
func (s *serving) admit(from netip.AddrPort) *admitted {
	s.metrics.accepted.Inc()
	a := &admitted{serving: s, from: from}
	if a.over = s.shares.admit(a); a.over != "" {
		if s.cfg.Peers == nil {
			s.refused.log(refusal{reason: a.over, from: from})
			return nil
		}
		a.place = inReserve
	}
	s.open.Add(1)
	s.running.Add(1)
	s.metrics.open.Add(1)
	s.conns.Add(1)
	return a
}

// hellosOf are the half-open connections among which one has its place.
func (s *serving) hellosOf(a *admitted) *hellos {
	if a.place == inReserve {
		return s.spare
	}
	return s.hellos
}

// begin serves an admitted connection in a goroutine of its own.
func (s *serving) begin(in *replay, client relay.Conn, a *admitted) {
	h := s.hellosOf(a).add(a, func() {
		s.shares.leave(a)
		relay.Reset(client)
	})
	s.metrics.hellos.Add(1)
	go s.welcome(client, h, in, a)
}

// Closed is called once, when the connection is closed.
func (a *admitted) Closed() {
	s := a.serving
	s.loads.remove(a.instance)
	a.traffic.leave()
	s.inflight.remove(a)
	s.shares.remove(a)
	s.open.Add(-1)
	s.running.Add(-1)
	s.metrics.open.Add(-1)
	s.conns.Done()
}

// Traffic is where the relay counts.
func (a *admitted) Traffic() *relay.Traffic { return &a.traffic.Traffic }

// Unanswered is called when an instance has not answered in time. It returns the refusal for the
// client: an alert, or nothing for HTTP/2 without TLS, where the gateway has sent SETTINGS.
func (a *admitted) Unanswered() (last []byte) {
	s := a.serving
	s.refused.log(refusal{reason: noAnswer, from: a.from,
		err: fmt.Errorf("%s took the connection and sent nothing for %v", a.instance, s.cfg.AnswerTimeout)})
	if a.plain {
		return nil
	}
	return alertInternalError
}

// welcome reads what a client wants, and connects it.
func (s *serving) welcome(client relay.Conn, h *halfOpen, in *replay, a *admitted) {
	greeting, to, refused := s.meet(client, h, in, a)
	switch {
	case refused != nil:
	case to.ofPeers():
		s.handOver(client, greeting, to.take, a)
	default:
		refused = s.connect(client, greeting, to, nil, a)
	}
	in.release() // not kept until the client has taken a refusal
	if refused != nil {
		s.refuse(client, refused, a)
	}
}

// meet reads what a client wants and chooses where that is.
func (s *serving) meet(client relay.Conn, h *halfOpen, in *replay, a *admitted) (greeting, destination, *refusal) {
	client.SetDeadline(time.Now().Add(s.cfg.HelloTimeout))
	greeting, refused := s.greet(in)
	evicted := s.hellosOf(a).done(h)
	s.metrics.hellos.Add(-1)
	if evicted {
		refused = &refusal{reason: helloEvicted}
	}
	if refused != nil {
		return greeting, destination{}, refused
	}
	to, refused := s.routeOf(greeting, a)
	return greeting, to, refused
}

// routeOf is [serving.route] for a connection within the bounds that it is counted against.
func (s *serving) routeOf(in greeting, a *admitted) (destination, *refusal) {
	to, refused := s.route(in)
	if refused != nil && refused.reason == unheard && a.place != inReserve {
		to, refused = s.routeOnceHeard(in)
	}
	switch {
	case a.place == inReserve && (refused != nil || !to.ofPeers()):
		return destination{}, &refusal{reason: a.over, host: in.host}
	case refused != nil:
		return destination{}, refused
	case to.ofPeers():
		for !s.shares.toPeers(a) {
			if s.shares.fullOfPeers(a) && s.peers.evict() { // others may take the place
				continue
			}
			return destination{}, &refusal{reason: tooManyPeers, host: in.host}
		}
	case to.tunnel != "" && !s.shares.mayTunnel(a):
		return destination{}, &refusal{reason: sourceShare, app: to.app, host: in.host}
	case in.stream == 0 && !s.inflight.add(a, in.bytes):
		return destination{}, &refusal{reason: looped, app: to.app, host: in.host, revision: to.revision}
	}
	return to, nil
}

// routeOnceHeard is [serving.route] for the app of a cluster that may say in a moment that it exports
// it, as after a restart.
func (s *serving) routeOnceHeard(in greeting) (to destination, refused *refusal) {
	timer := time.NewTimer(s.cfg.DialTimeout)
	defer timer.Stop()
	for {
		_, _, changed := s.cfg.Table.Follow()
		if to, refused = s.route(in); refused == nil || refused.reason != unheard {
			return to, refused
		}
		select {
		case <-changed:
		case <-timer.C:
			return to, refused
		case <-s.dials.Done():
			return to, refused
		}
	}
}

// connect connects a client to one of a destination's instances, other than those that
// were tried, and hands both to the relay.
func (s *serving) connect(client relay.Conn, in greeting, to destination, tried *attempt, a *admitted) *refusal {
	backend, instance, refused := s.dial(in, to, tried)
	if table, ok := s.cfg.Table.Load(); refused == nil && to.tunnel == "" && ok && !exported(table, to.app) { // meanwhile
		relay.Reset(backend)
		s.loads.remove(instance)
		refused = &refusal{reason: unknownName, app: to.app, revision: table.Revision}
	}
	if refused != nil {
		refused.host, refused.stream = in.host, in.stream
		return refused
	}
	backend.SetWriteDeadline(time.Now().Add(s.cfg.DialTimeout))
	if _, err := backend.Write(in.bytes); err != nil {
		relay.Reset(backend)
		s.loads.remove(instance)
		return &refusal{reason: broken, app: to.app, host: in.host, stream: in.stream, err: err}
	}
	client.SetDeadline(time.Time{})
	backend.SetDeadline(time.Time{})
	a.instance, a.plain = instance, in.stream != 0
	if to.tunnel == "" {
		s.exports.join(a, to.app)
	} else {
		a.traffic = s.tunnelled.join()
	}
	from, ok := client.(*net.TCPConn)
	tcp, both := backend.(*net.TCPConn)
	if ok && both && s.relay != nil {
		s.relay.Pass(from, tcp, a)
	} else {
		s.copies.PassStreams(client, backend, a)
	}
	return nil
}

// refuse counts a refusal, tells the client and closes its connection.
func (s *serving) refuse(client relay.Conn, r *refusal, a *admitted) {
	r.from = a.from
	s.refused.log(*r)
	s.shares.leave(a) // lest those that are told, and don't go, keep others out
	if s.farewells.Add(1) <= int64(farewellsOf(s.cfg.MaxPeers)) {
		turnAway(client, r)
	} else {
		relay.Reset(client)
	}
	s.farewells.Add(-1)
	a.Closed()
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
		s.closeRelays()
		return
	case <-timer.C:
	}
	s.cfg.Logger.Info("gateway closes connections that did not end in time", "connections", s.open.Load(), "timeout", timeout)
	s.giveUp()
	s.hellos.close()
	s.spare.close()
	s.peers.close()
	s.closeRelays()
	<-idle
}

func (s *serving) closeRelays() {
	if s.relay != nil {
		s.relay.Close()
	}
	s.copies.Close()
}
