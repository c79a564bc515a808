package resolverservice

import (
	"errors"
	"net"
	"os"
	"time"
)

// successorWithin is how long a service that stops waits for a successor at least, where
// clusters follow what it exports.
const successorWithin = 2 * time.Second

// awaits takes sockets for a successor, unless other replicas serve meanwhile: then callers are
// better off with those, at once.
func (s *Service) awaits() {
	if s.cfg.Replicas != nil || s.listeners["gateway"] == nil {
		return
	}
	all := map[string]net.Listener{}
	for name, l := range s.listeners {
		all[socketName(name, s.addresses[name])] = l
	}
	for name, sockets := range s.sockets {
		for address, l := range sockets.TCP() {
			all[socketName(name, address)] = l
		}
	}
	if len(all) > maxSockets {
		return
	}
	var err error
	if s.handing, err = duplicate(all); err != nil {
		s.handing.close()
		s.handing = nil
		s.log.Warn("a successor will not get the sockets of this service", "err", err)
	}
}

// handOver serves on until a successor does, nobody is connected any more, or by is over. let is
// called before the successor reads what this service kept.
func (s *Service) handOver(by time.Time, let func()) {
	if s.handing == nil {
		return
	}
	l, err := net.ListenUnix("unixpacket", s.cfg.meeting())
	if err != nil {
		s.log.Warn("a successor can't take over while this service stops", "err", err)
		return
	}
	defer l.Close()
	least := time.Now()
	if s.peers.HasSubscribers() {
		least = least.Add(successorWithin)
	}
	for now := time.Now(); now.Before(by) && (now.Before(least) || !s.gateway.Idle()); now = time.Now() {
		_ = l.SetDeadline(now.Add(50 * time.Millisecond))
		conn, err := l.AcceptUnix()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err == nil {
			err = s.handTo(conn, by, let)
		}
		if err == nil {
			s.log.Info("a successor serves; connections that run may finish")
			return
		}
		s.log.Warn("a successor did not take over", "err", err)
	}
}

// handTo hands over to a successor, and returns once it serves.
func (s *Service) handTo(conn *net.UnixConn, by time.Time, let func()) error {
	defer conn.Close()
	if !ofUs(conn) {
		return errors.New("it runs as another user")
	}
	word := make([]byte, 16)
	for {
		within := time.Now().Add(wordWithin)
		if by.Before(within) {
			within = by
		}
		_ = conn.SetDeadline(within)
		n, err := conn.Read(word)
		if err != nil {
			return err
		}
		switch string(word[:n]) {
		case asksSockets:
			err = s.handing.send(conn)
		case asksRelease:
			if l, ok := s.listeners["resolver"].(*unixListener); ok {
				l.leave()
			}
			let()
			_, err = conn.Write([]byte(asksRelease))
		case tellsServes:
			return nil
		default:
			err = errors.New("it said something else than a service of this version")
		}
		if err != nil {
			return err
		}
	}
}
