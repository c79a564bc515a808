package process

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/throttle"
)

// successorWithin is how long a service that stops waits for a successor at least, where
// clusters follow what it exports.
const successorWithin = 2 * time.Second

// Successor is the service that may be started in the place of this one while it stops.
type Successor struct {
	sockets sockets // for it; nil: nothing is handed over
	from    *Listeners
	log     *throttle.Log
}

// Successor takes sockets for a successor, if the configuration says so.
func (from *Listeners) Successor() *Successor {
	s := &Successor{from: from, log: throttle.New(from.log, throttle.Interval)}
	if !from.cfg.HandOver {
		return s
	}
	all := map[string]net.Listener{}
	for name, l := range from.tcp {
		all[socketName(name, from.addresses[name])] = l
	}
	for name, sockets := range from.sockets {
		for address, l := range sockets.TCP() {
			all[socketName(name, address)] = l
		}
	}
	if len(all) > maxSockets {
		return s
	}
	var err error
	if s.sockets, err = duplicate(all); err != nil {
		s.Close()
		s.sockets = nil
		from.log.Warn("a successor will not get the sockets of this service", "err", err)
	}
	return s
}

// Close closes the sockets that were kept for a successor.
func (s *Successor) Close() { s.sockets.close() }

// HandOver serves on until a successor does, nobody is connected any more, or by is over. It
// waits for successorWithin at least if clusters follow what this one exports. release is
// called before the successor reads what this service kept.
func (s *Successor) HandOver(by time.Time, followed bool, idle func() bool, release func()) {
	if s.sockets == nil {
		return
	}
	dir := s.from.cfg.Dir
	var l *net.UnixListener
	err := dir.atHandover(func(path string) (err error) {
		l, err = bindUnix("unixpacket", path, 0o600)
		return err
	})
	if err != nil {
		s.from.log.Warn("a successor can't take over while this service stops; make dataDir one that this user may write to", "dataDir", dir.Path, "err", err)
		return
	}
	defer l.Close()
	defer os.Remove(filepath.Join(dir.Path, dir.Handover()))
	least := time.Now()
	if followed {
		least = least.Add(successorWithin)
	}
	for now := time.Now(); now.Before(by) && (now.Before(least) || !idle()); now = time.Now() {
		next := now.Add(50 * time.Millisecond)
		_ = l.SetDeadline(next)
		conn, err := l.AcceptUnix()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err == nil {
			err = s.handTo(conn, by, release)
		}
		if err == nil {
			s.from.log.Info("a successor serves; connections that run may finish")
			return
		}
		s.log.Warn("successor", "a successor did not take over", "err", err)
		time.Sleep(time.Until(next))
	}
}

// handTo hands over to a successor, and returns once it serves.
func (s *Successor) handTo(conn *net.UnixConn, by time.Time, release func()) error {
	defer conn.Close()
	if !sameUser(conn) {
		return errors.New("it runs as another user")
	}
	word := make([]byte, 16)
	for {
		within := time.Now().Add(messageTimeout)
		if by.Before(within) {
			within = by
		}
		_ = conn.SetDeadline(within)
		n, err := conn.Read(word)
		if err != nil {
			return err
		}
		switch string(word[:n]) {
		case sendSockets:
			err = s.sockets.send(conn)
		case releaseData:
			for l := range s.from.unix() {
				l.leave()
			}
			release()
			_, err = conn.Write([]byte(releaseData))
		case nowServing:
			return nil
		default:
			err = errors.New("it said something else than a service of this version")
		}
		if err != nil {
			return err
		}
	}
}
