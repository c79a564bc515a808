package resolverservice

import (
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/isthmus-mesh/isthmus/resolver-service/edge"
)

// Listen opens every listener that the configuration names, or none and returns an
// error. [Service.Run] does it when it was not done before.
func (s *Service) Listen() error {
	if s.listeners != nil {
		return nil
	}
	s.fitBounds()
	s.before = s.cfg.meetPredecessor()
	err := s.listen()
	for end := time.Now().Add(stoppingWithin); s.before == nil && errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
		s.before = s.cfg.meetPredecessor()
		err = s.listen()
	}
	if err != nil {
		s.before.part()
	}
	return err
}

// stoppingWithin is how long a service that has been told to stop may take to be ready to hand
// over, and another to end.
const stoppingWithin = time.Second

// listen opens the listeners of every edge: with the sockets of a predecessor, or its own.
func (s *Service) listen() (err error) {
	s.listeners, s.addresses, s.sockets = map[string]net.Listener{}, map[string]string{}, map[string]edge.Sockets{}
	for _, e := range s.cfg.edges() {
		if len(e.Listen) == 0 {
			continue
		}
		if e.Open == nil {
			err = s.listenPlainly(e)
		} else {
			var open edge.Sockets
			if open, err = e.Open(s.opening(e)); err == nil {
				s.sockets[e.Name] = open
			}
		}
		if err != nil {
			closeAll(s.listeners)
			s.closeSockets()
			s.listeners, s.sockets = nil, nil
			return err
		}
	}
	return nil
}

func (s *Service) listenPlainly(e edge.Edge) error {
	for _, l := range e.Listen {
		listener, err := s.takeOver(l.Name, l.Address)
		if listener == nil && err == nil {
			listener, err = s.listenOn(l.Address)
		}
		if err != nil {
			return edge.ListenError(l.Name, l.Address, err, "")
		}
		s.listeners[l.Name], s.addresses[l.Name] = listener, l.Address
	}
	return nil
}

func (s *Service) opening(e edge.Edge) edge.Opening {
	return edge.Opening{
		Connections: s.bounds.of[e.Name], Cores: s.cfg.Cores, Log: s.log,
		TakeOver: func(address string) (net.Listener, error) { return s.takeOver(e.Name, address) },
	}
}

func (s *Service) closeSockets() {
	for _, sockets := range s.sockets {
		sockets.Close()
	}
}

// socketName names a listener for a successor, which may list those of single apps otherwise.
func socketName(name, address string) string {
	kind, _, _ := strings.Cut(name, "[")
	return kind + " " + address
}

// takeOver is the listener of a predecessor at the same address; nil where there is none.
func (s *Service) takeOver(name, address string) (net.Listener, error) {
	if s.before == nil {
		return nil, nil
	}
	l, err := s.before.sockets.listener(socketName(name, address))
	if u, ok := l.(*net.UnixListener); ok {
		path, _ := unixPath(address)
		taken := unixAt(u, path)
		taken.leave() // to the predecessor, while this service does not serve
		if os.Chmod(path, s.cfg.Resolver.socketMode()) != nil {
			return nil, taken.Close() // somebody has removed it, and nobody would find it
		}
		return taken, nil
	}
	return l, err
}

// Addr is where an edge such as resolver, gateway or dns listens; nil when it does not. Of
// several addresses it is the first.
func (s *Service) Addr(name string) net.Addr {
	if sockets := s.sockets[name]; sockets != nil {
		return sockets.Addr(0)
	}
	if l := s.listeners[name]; l != nil {
		return l.Addr()
	}
	return nil
}

func closeAll(open map[string]net.Listener) {
	for _, l := range open {
		l.Close()
	}
}

func (s *Service) listenOn(address string) (net.Listener, error) {
	path, ok := unixPath(address)
	if !ok {
		return net.Listen("tcp", address)
	}
	if err := removeDead(path); err != nil {
		return nil, err
	}
	return listenUnix(path, s.cfg.Resolver.socketMode())
}

// removeDead removes a socket that a process has left behind which is gone.
func removeDead(path string) error {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&os.ModeSocket == 0 {
		return nil // net.Listen says what is wrong, if anything is
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
		return syscall.EADDRINUSE
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return os.Remove(path)
	}
	return err
}
