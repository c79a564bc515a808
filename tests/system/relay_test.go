package system

import (
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// relay stands for a load balancer before a gateway: an address of the gateway that
// can be had and lost again.
type relay struct {
	to, address string
	socket      *os.File // has the address; nil once it listens
	listener    net.Listener
	users       sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{} // nil once killed
	held  chan struct{}         // new connections wait until it is closed; nil: they don't
}

// newRelay passes connections on to an address.
func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	r := newClosedRelay(t, to)
	r.open(t)
	return r
}

// newClosedRelay refuses connections until it is opened. Nobody else can take its address
// meanwhile.
func newClosedRelay(t *testing.T, to string) *relay {
	t.Helper()
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{to: to, socket: os.NewFile(uintptr(fd), "relay"), conns: map[net.Conn]struct{}{}}
	t.Cleanup(r.kill)
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	r.address = net.JoinHostPort("127.0.0.1", strconv.Itoa(at.(*syscall.SockaddrInet4).Port))
	return r
}

// open takes connections from now on.
func (r *relay) open(t *testing.T) {
	t.Helper()
	if err := syscall.Listen(int(r.socket.Fd()), syscall.SOMAXCONN); err != nil {
		t.Fatal(err)
	}
	l, err := net.FileListener(r.socket)
	if err != nil {
		t.Fatal(err)
	}
	r.socket.Close()
	r.socket, r.listener = nil, l
	r.users.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r.users.Go(func() { r.pass(conn, r.to) })
		}
	})
}

// retire takes no more connections and leaves those that there are.
func (r *relay) retire() {
	if r.socket != nil {
		r.socket.Close()
	}
	if r.listener != nil {
		r.listener.Close()
	}
}

// hold lets new connections wait until release is called.
func (r *relay) hold() (release func()) {
	held := make(chan struct{})
	r.mu.Lock()
	r.held = held
	r.mu.Unlock()
	return sync.OnceFunc(func() {
		close(held)
		r.mu.Lock()
		r.held = nil
		r.mu.Unlock()
	})
}

// cut breaks every connection off, and takes others.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for conn := range r.conns {
		_ = conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}
}

// kill breaks every connection off, as a machine does that dies.
func (r *relay) kill() {
	r.retire()
	r.cut()
	r.mu.Lock()
	r.conns = nil
	r.mu.Unlock()
	r.users.Wait()
}

// connections is how many there are.
func (r *relay) connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.conns) / 2
}

func (r *relay) pass(client net.Conn, to string) {
	defer client.Close()
	r.mu.Lock()
	held := r.held
	r.mu.Unlock()
	if held != nil {
		<-held
	}
	gateway, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer gateway.Close()
	if !r.keep(client, gateway) {
		return
	}
	defer r.forget(client, gateway)
	var both sync.WaitGroup
	for _, way := range [][2]*net.TCPConn{{client.(*net.TCPConn), gateway.(*net.TCPConn)}, {gateway.(*net.TCPConn), client.(*net.TCPConn)}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // either side may break off
			_ = way[0].CloseWrite()
		})
	}
	both.Wait()
}

func (r *relay) keep(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conns == nil {
		return false
	}
	for _, conn := range conns {
		r.conns[conn] = struct{}{}
	}
	return true
}

func (r *relay) forget(conns ...net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range conns {
		delete(r.conns, conn)
	}
}
