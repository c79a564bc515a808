// Package process is the service's hold on its process: its listeners, which a service started in
// its place takes over; its directory; its share of descriptors and of memory; and the parts that
// run and end together.
package process

import (
	"cmp"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
)

// Config says what a process listens with.
type Config struct {
	Edges []edge.Edge
	Dir   DataDir
	Cores int // that the process is spread over; 0 for what Go says
	// HandOver has a successor get the sockets. Where other replicas serve meanwhile, callers are
	// better off with those, at once.
	HandOver bool
}

// Listeners are what the edges listen with.
type Listeners struct {
	cfg         Config
	log         *slog.Logger
	tcp         map[string]net.Listener // or a Unix socket, by name
	addresses   map[string]string       // of those, as they are configured
	sockets     map[string]edge.Sockets // of edges that open their own, by edge
	bounds      Bounds
	predecessor *predecessor // nil: no service stops
}

// Listen opens every listener of the edges, or none and returns an error. Of a service that
// stops it takes those that are the same.
func Listen(cfg Config, log *slog.Logger) (*Listeners, error) {
	s := &Listeners{cfg: cfg, log: log, bounds: Fit(cfg.Edges, OpenFiles())}
	s.bounds.tell(log)
	s.predecessor = cfg.Dir.findPredecessor()
	err := s.listen()
	for end := time.Now().Add(stoppingWithin); s.predecessor == nil && errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
		s.predecessor = cfg.Dir.findPredecessor()
		err = s.listen()
	}
	if err != nil {
		s.predecessor.close()
		return nil, err
	}
	return s, nil
}

// ReleasePredecessor has a service that stops, if there is one, let go of its stores and its
// directory, and waits.
func (s *Listeners) ReleasePredecessor() error {
	if s.predecessor == nil {
		return nil
	}
	return s.predecessor.release()
}

// stoppingWithin is how long a service that has been told to stop may take to be ready to hand
// over, and another to end.
const stoppingWithin = time.Second

// listen opens the listeners of every edge: with the sockets of a predecessor, or its own.
func (s *Listeners) listen() (err error) {
	s.tcp, s.addresses, s.sockets = map[string]net.Listener{}, map[string]string{}, map[string]edge.Sockets{}
	_ = os.MkdirAll(s.cfg.Dir.Path, 0o700) // may have a socket; Hold says what is wrong
	for _, e := range s.cfg.Edges {
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
			s.closeListeners()
			return err
		}
	}
	return nil
}

func (s *Listeners) listenPlainly(e edge.Edge) error {
	for _, l := range e.Listen {
		listener, err := s.takeOver(l)
		if listener == nil && err == nil {
			listener, err = listenOn(l)
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

func (s *Listeners) opening(e edge.Edge) edge.Opening {
	return edge.Opening{
		Connections: s.bounds.Of[e.Name], Cores: s.cfg.Cores, Log: s.log,
		TakeOver: func(address string) (net.Listener, error) {
			return s.takeOver(edge.Listener{Name: e.Name, Address: address})
		},
	}
}

// Close closes the open ones, and parts from a predecessor.
func (s *Listeners) Close() {
	s.predecessor.close()
	s.closeListeners()
}

func (s *Listeners) closeListeners() {
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
func (s *Listeners) takeOver(from edge.Listener) (net.Listener, error) {
	if s.predecessor == nil {
		return nil, nil
	}
	l, err := s.predecessor.sockets.listener(socketName(from.Name, from.Address))
	if u, ok := l.(*net.UnixListener); ok {
		path, _ := edge.UnixPath(from.Address)
		taken := unixAt(u, path)
		taken.leave() // to the predecessor, while this service does not serve
		if os.Chmod(path, from.SocketMode()) != nil {
			return nil, taken.Close() // somebody has removed it, and nobody would find it
		}
		return taken, nil
	}
	return l, err
}

// TCP is a listener at a TCP port or a Unix socket, by its name; nil where there is none.
func (s *Listeners) TCP(name string) net.Listener { return s.tcp[name] }

// Sockets is what an edge has opened itself; nil where it has not.
func (s *Listeners) Sockets(name string) edge.Sockets { return s.sockets[name] }

// Bounds are those of the listeners.
func (s *Listeners) Bounds() Bounds { return s.bounds }

// Addr is where an edge such as resolver, gateway or dns listens; nil when it does not. Of
// several addresses it is the first.
func (s *Listeners) Addr(name string) net.Addr {
	if sockets := s.sockets[name]; sockets != nil {
		return sockets.Addr(0)
	}
	if l := s.tcp[name]; l != nil {
		return l.Addr()
	}
	return nil
}

func listenOn(l edge.Listener) (net.Listener, error) {
	path, ok := edge.UnixPath(l.Address)
	if !ok {
		return net.Listen("tcp", l.Address)
	}
	if err := removeDead(path); err != nil {
		return nil, err
	}
	return listenUnix(path, l.SocketMode())
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

// Addresses are those at which TCP or UDP comes in.
func (s *Listeners) Addresses() (all []netip.AddrPort) {
	add := func(a net.Addr) {
		if at, ok := a.(interface{ AddrPort() netip.AddrPort }); ok { // no Unix socket
			all = append(all, at.AddrPort())
		}
	}
	for _, l := range s.tcp {
		add(l.Addr())
	}
	for _, sockets := range s.sockets {
		for i := 0; sockets.Addr(i) != nil; i++ {
			add(sockets.Addr(i))
		}
	}
	return all
}

// LogArgs are where each edge listens, as arguments of a log line.
func (s *Listeners) LogArgs() (args []any) {
	for _, e := range s.cfg.Edges {
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

// Missing tells whether an edge that the service runs without could not listen.
func (s *Listeners) Missing(e edge.Edge) bool {
	return e.Optional && s.tcp[e.Name] == nil
}
