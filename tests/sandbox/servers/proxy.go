package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// linkBuffer is how many reads of up to linkRead bytes each direction of a link holds
// before it stops reading, as a network with its own buffers does.
const (
	linkBuffer = 64
	linkRead   = 32 << 10
)

// Proxy is a link to a server, by loopback TCP, that can be made to fail as links do. It
// is safe for use by many goroutines.
type Proxy struct {
	address, target string

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup

	connections, requests, sent, received atomic.Int64

	mu       sync.Mutex
	state    linkState
	changed  chan struct{}  // closed when state changes
	listener net.Listener   // nil while refusing
	links    map[*link]bool // that are open
}

// linkState is how the links are just now.
type linkState struct {
	dropping bool
	delay    time.Duration
}

// Traffic is what has gone through a Proxy since it was made.
type Traffic struct {
	Connections int64
	// Requests is how often clients spoke first, or again after the server had: in a
	// protocol of questions and answers, the number of questions.
	Requests int64
	Sent     int64 // bytes from clients to the server
	Received int64 // bytes from the server to clients
}

// NewProxy makes a link to the server at target, host:port. The server need not be up.
func NewProxy(target string) (*Proxy, error) {
	port, err := sandbox.FreePort()
	if err != nil {
		return nil, fmt.Errorf("proxy to %s: %w", target, err)
	}
	p := &Proxy{
		address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), target: target,
		changed: make(chan struct{}), links: map[*link]bool{},
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	if err := p.Mend(); err != nil {
		p.cancel()
		return nil, err
	}
	return p, nil
}

// Addr is where clients connect to, host:port. It stays the same.
func (p *Proxy) Addr() string { return p.address }

// Traffic is what has gone through so far.
func (p *Proxy) Traffic() Traffic {
	return Traffic{
		Connections: p.connections.Load(), Requests: p.requests.Load(),
		Sent: p.sent.Load(), Received: p.received.Load(),
	}
}

// Refuse closes every connection and refuses new ones, as a machine does on which the
// server has ended, until Mend.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	for l := range p.links {
		l.close()
	}
	p.set(linkState{})
}

// Drop lets nothing through in either direction and tells nobody, as a partition does,
// until Mend. Connections stay open, and new ones come about and hear nothing: so only
// what a client sends and waits for shows it, and no keepalive of TCP does. What was sent
// meanwhile arrives after Mend, as TCP would send it again.
func (p *Proxy) Drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(linkState{dropping: true})
}

// Delay holds up all bytes for so long each way, until Mend.
func (p *Proxy) Delay(by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(linkState{delay: by})
}

// Mend makes the link good. It fails when somebody else has taken the port since Refuse.
func (p *Proxy) Mend() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.ctx.Err(); err != nil {
		return fmt.Errorf("proxy to %s: it has been closed", p.target)
	}
	if p.listener == nil {
		listener, err := net.Listen("tcp", p.address)
		if err != nil {
			return fmt.Errorf("proxy to %s: %w", p.target, err)
		}
		p.listener = listener
		p.work.Go(func() { p.accept(listener) })
	}
	p.set(linkState{})
	return nil
}

// Close closes the link and every connection, and waits until nothing of it is left.
func (p *Proxy) Close() {
	p.cancel()
	p.Refuse()
	p.work.Wait()
}

// set is called with mu held.
func (p *Proxy) set(s linkState) {
	p.state = s
	close(p.changed)
	p.changed = make(chan struct{})
}

// now is the state, and what is closed when it is another.
func (p *Proxy) now() (linkState, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state, p.changed
}

func (p *Proxy) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors: some will be free again
			continue
		}
		p.open(listener, conn)
	}
}

// open begins a link, if the listener that took its connection is still the one.
func (p *Proxy) open(listener net.Listener, conn net.Conn) {
	l := &link{proxy: p, client: conn}
	l.ctx, l.cancel = context.WithCancel(p.ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != listener {
		conn.Close()
		l.cancel()
		return
	}
	p.connections.Add(1)
	p.links[l] = true
	p.work.Go(l.run)
}

func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}
