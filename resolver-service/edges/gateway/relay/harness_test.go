package relay

import (
	"bytes"
	"cmp"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what has to happen at all.
const patience = 2 * time.Minute

// firstBytes are what a client has sent before its pair begins.
const firstBytes = "hello"

// way is one way to have a pair of connections passed on.
type way struct {
	name string
	new  func(Config) (Relay, error)
	// pair passes a connection of a client on to a backend, and gives it firstBytes.
	pair func(t *testing.T, r Relay, client *net.TCPConn, backend string, o *owner)
}

// byPass is [Relay.Pass].
func byPass(t *testing.T, r Relay, client *net.TCPConn, backend string, o *owner) {
	out := dial(t, backend)
	io.WriteString(out, firstBytes)
	r.Pass(client, out, o)
}

// eachWay runs a test in every way that works on this machine.
func eachWay(t *testing.T, test func(t *testing.T, w way)) {
	for _, w := range append([]way{{"copy", NewCopy, byPass}}, nativeWays...) {
		t.Run(w.name, func(t *testing.T) { test(t, w) })
	}
}

// lastWords are what a client gets in place of an answer.
const lastWords = "no answer"

// owner is that of one pair.
type owner struct {
	closed     chan struct{}
	unanswered atomic.Int32
	traffic    Traffic
}

func newOwner() *owner { return &owner{closed: make(chan struct{})} }

func (o *owner) Unanswered() []byte {
	o.unanswered.Add(1)
	return []byte(lastWords)
}

func (o *owner) Closed() { close(o.closed) } // panics the second time

func (o *owner) Traffic() *Traffic { return &o.traffic }

func (o *owner) over() bool {
	select {
	case <-o.closed:
		return true
	default:
		return false
	}
}

// ends waits for the end of the pair.
func (o *owner) ends(t *testing.T) {
	t.Helper()
	select {
	case <-o.closed:
	case <-time.After(patience):
		t.Fatalf("after %v, the pair has not ended", patience)
	}
}

// passed is a pair and the relay that passes it on.
type passed struct {
	*owner
	way   string
	relay Relay
	pair  func(t *testing.T, r Relay, client *net.TCPConn, backend string, o *owner)
}

// pass starts a relay, which ends with the test, and passes one pair. It returns the client and
// the backend's side. The backend has read the firstBytes.
func pass(t *testing.T, w way, cfg Config) (p *passed, client, server *net.TCPConn) {
	t.Helper()
	cfg.Stall, cfg.Connect = cmp.Or(cfg.Stall, patience), patience
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.Failed = func(err error) { t.Error(err) }
	r, err := w.new(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return (&passed{way: w.name, relay: r, pair: w.pair}).another(t)
}

// another passes one more pair.
func (p *passed) another(t *testing.T) (next *passed, client, server *net.TCPConn) {
	t.Helper()
	next = &passed{owner: newOwner(), way: p.way, relay: p.relay, pair: p.pair}
	client, in := connected(t)
	l := listen(t)
	p.pair(t, p.relay, in, l.Addr().String(), next.owner)
	server = accept(t, l)
	if got := make([]byte, len(firstBytes)); !readExactly(server, got) || string(got) != firstBytes {
		t.Fatalf("first the backend got %q", got)
	}
	return next, client, server
}

// sides runs a test with either side of a pair as the one that acts.
func sides(t *testing.T, cfg Config, test func(t *testing.T, p *passed, acts, other *net.TCPConn)) {
	eachWay(t, func(t *testing.T, w way) {
		t.Run("client", func(t *testing.T) {
			p, client, server := pass(t, w, cfg)
			test(t, p, client, server)
		})
		t.Run("backend", func(t *testing.T) {
			p, client, server := pass(t, w, cfg)
			test(t, p, server, client)
		})
	})
}

// exchange sends n bytes to the backend, which sends them back.
func exchange(t *testing.T, client, server *net.TCPConn, n int) {
	t.Helper()
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() { io.CopyN(server, server, int64(n)) })
	sent, got := bytes.Repeat([]byte("0123456789abcdef"), n/16), make([]byte, n)
	both.Go(func() { client.Write(sent) })
	if !readExactly(client, got) || !bytes.Equal(got, sent) {
		t.Error("not every byte came back")
	}
}

func readExactly(r io.Reader, b []byte) bool {
	_, err := io.ReadFull(r, b)
	return err == nil
}

func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.(*net.TCPListener)
}

// connected are the two ends of a connection.
func connected(t *testing.T) (dialed, accepted *net.TCPConn) {
	t.Helper()
	l := listen(t)
	return dial(t, l.Addr().String()), accept(t, l)
}

func dial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return own(t, c.(*net.TCPConn))
}

func accept(t *testing.T, l *net.TCPListener) *net.TCPConn {
	t.Helper()
	l.SetDeadline(time.Now().Add(patience))
	c, err := l.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	return own(t, c)
}

// own closes a connection after the test, and gives it a deadline so that no test hangs.
func own(t *testing.T, c *net.TCPConn) *net.TCPConn {
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}
