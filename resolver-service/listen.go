package resolverservice

import (
	"cmp"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
)

// listeners are what the edges listen with.
type listeners struct {
	cfg         *Config
	log         *slog.Logger
	tcp         map[string]net.Listener // or a Unix socket, by name; nil until they are open
	addresses   map[string]string       // of those, as they are configured
	sockets     map[string]edge.Sockets // of edges that open their own, by edge
	bounds      bounds
	predecessor *predecessor // nil: no service stops
}

// Listen opens every listener that the configuration names, or none and returns an
// error. [Service.Run] does it when it was not done before.
func (s *Service) Listen() error { return s.listeners.open() }

func (s *listeners) open() error {
	if s.tcp != nil {
		return nil
	}
	s.fitBounds()
	s.predecessor = s.cfg.findPredecessor()
	err := s.listen()
	for end := time.Now().Add(stoppingWithin); s.predecessor == nil && errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
		s.predecessor = s.cfg.findPredecessor()
		err = s.listen()
	}
	if err != nil {
		s.predecessor.close()
	}
	return err
}

// stoppingWithin is how long a service that has been told to stop may take to be ready to hand
// over, and another to end.
const stoppingWithin = time.Second

// listen opens the listeners of every edge: with the sockets of a predecessor, or its own.
func (s *listeners) listen() (err error) {
	s.tcp, s.addresses, s.sockets = map[string]net.Listener{}, map[string]string{}, map[string]edge.Sockets{}
	_ = os.MkdirAll(s.cfg.DataDir, 0o700) // may have a socket; holdDataDir says what is wrong
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
			s.close()
			s.tcp, s.sockets = nil, nil
			return err
		}
	}
	return nil
}

func (s *listeners) listenPlainly(e edge.Edge) error {
	for _, l := range e.Listen {
		listener, err := s.takeOver(l.Name, l.Address)
		if listener == nil && err == nil {
			listener, err = s.listenOn(l)
		}
		if err != nil {
			err = edge.ListenError(l.Name, l.Address, err, "")
			if !e.Optional {
				return err
			}
			s.log.Warn("the service runs without one of its listeners", "err", err)
			continue
		}
		s.tcp[l.Name], s.addresses[l.Name] = listener, l.Address
	}
	return nil
}

func (s *listeners) opening(e edge.Edge) edge.Opening {
	return edge.Opening{
		Connections: s.bounds.of[e.Name], Cores: s.cfg.Cores, Log: s.log,
		TakeOver: func(address string) (net.Listener, error) { return s.takeOver(e.Name, address) },
	}
}

// close closes what is not closed yet.
func (s *listeners) close() {
	for _, l := range s.tcp {
		l.Close()
	}
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
func (s *listeners) takeOver(name, address string) (net.Listener, error) {
	if s.predecessor == nil {
		return nil, nil
	}
	l, err := s.predecessor.sockets.listener(socketName(name, address))
	if u, ok := l.(*net.UnixListener); ok {
		path, _ := unixPath(address)
		taken := unixAt(u, path)
		taken.leave() // to the predecessor, while this service does not serve
		if os.Chmod(path, s.cfg.socketMode(name)) != nil {
			return nil, taken.Close() // somebody has removed it, and nobody would find it
		}
		return taken, nil
	}
	return l, err
}

// Addr is where an edge such as resolver, gateway or dns listens; nil when it does not. Of
// several addresses it is the first.
func (s *Service) Addr(name string) net.Addr { return s.listeners.addr(name) }

func (s *listeners) addr(name string) net.Addr {
	if sockets := s.sockets[name]; sockets != nil {
		return sockets.Addr(0)
	}
	if l := s.tcp[name]; l != nil {
		return l.Addr()
	}
	return nil
}

func (s *listeners) listenOn(l edge.Listener) (net.Listener, error) {
	path, ok := unixPath(l.Address)
	if !ok {
		return net.Listen("tcp", l.Address)
	}
	if err := removeDead(path); err != nil {
		return nil, err
	}
	return listenUnix(path, s.cfg.socketMode(l.Name))
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

// addressArgs are where each edge listens, as arguments of a log line.
func (s *listeners) addressArgs() (args []any) {
	for _, e := range s.cfg.edges() {
		var all []string
		for _, l := range e.Listen {
			if at := s.tcp[l.Name]; at != nil && l.Name == e.Name {
				all = append(all, at.Addr().String())
			}
		}
		if sockets := s.sockets[e.Name]; sockets != nil {
			for i := 0; sockets.Addr(i) != nil; i++ {
				all = append(all, sockets.Addr(i).String())
			}
		}
		args = append(args, e.Name, cmp.Or(strings.Join(all, " "), "off"))
	}
	return args
}

// missing tells whether an edge that the service runs without could not listen.
func (s *listeners) missing(e edge.Edge) bool {
	return e.Optional && s.tcp[e.Name] == nil
}
