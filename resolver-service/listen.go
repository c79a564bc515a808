package resolverservice

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
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

// listen opens every listener: with the socket of a predecessor, or one of its own.
func (s *Service) listen() error {
	open, addresses := map[string]net.Listener{}, map[string]string{}
	for _, l := range s.cfg.listens() {
		if l.address == "" {
			continue
		}
		listener, err := s.takeOver(l.name, l.address)
		if listener == nil && err == nil {
			listener, err = s.listenOn(l.address)
		}
		if err != nil {
			closeAll(open)
			return fmt.Errorf("listen.%s: %s: %w; %s", l.name, l.address, plainError(err), advice(err))
		}
		open[l.name], addresses[l.name] = listener, l.address
	}
	if err := s.listenDNS(); err != nil {
		closeAll(open)
		return err
	}
	s.listeners, s.addresses = open, addresses
	return nil
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

// Addr is where a listener - resolver, dns, gateway, consul, admin or debug - listens; nil when it does
// not. Of several for DNS it is the first.
func (s *Service) Addr(name string) net.Addr {
	if name == "dns" {
		return s.dnsListeners.Addr(0)
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

// plainError leaves out what the message says already.
func plainError(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		var sys *os.SyscallError
		if errors.As(op.Err, &sys) {
			return sys.Err
		}
		return op.Err
	}
	return err
}

func advice(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "stop what listens there, or write another address in isthmus.yaml"
	case errors.Is(err, syscall.EACCES):
		return "this user may not listen there; write a port above 1023, or a directory that it can write"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "this machine has no such address; write one that it has, or 0.0.0.0 for all of them"
	default:
		return "write another address in isthmus.yaml"
	}
}
