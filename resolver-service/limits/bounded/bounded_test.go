package bounded_test

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/resolver-service/limits/bounded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// queue is a listener that hands out connections made in memory.
type queue struct {
	next   chan net.Conn
	closed chan struct{}
}

func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.next:
		return c, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}
func (q *queue) Close() error   { close(q.closed); return nil }
func (q *queue) Addr() net.Addr { return &net.TCPAddr{} }

// from is a connection with a remote address of its own.
type from struct {
	net.Conn
	addr net.Addr
}

func (f *from) RemoteAddr() net.Addr { return f.addr }

// lab accepts everything and keeps what is open.
type lab struct {
	t       *testing.T
	l       *bounded.Listener
	q       *queue
	taken   chan *bounded.Conn
	mu      sync.Mutex
	reasons map[bounded.Reason]int
	port    int
}

func newLab(t *testing.T, b bounded.Bounds) *lab {
	lab := &lab{t: t, q: &queue{make(chan net.Conn), make(chan struct{})}, taken: make(chan *bounded.Conn, 1000), reasons: map[bounded.Reason]int{}}
	b.Count = func(r bounded.Reason) {
		lab.mu.Lock()
		defer lab.mu.Unlock()
		lab.reasons[r]++
	}
	lab.l = bounded.New(lab.q, b)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := lab.l.Accept()
			if err != nil {
				return
			}
			lab.taken <- c.(*bounded.Conn)
		}
	}()
	t.Cleanup(func() { lab.l.Close(); <-done })
	return lab
}

// dial returns the client's end, and the server's: nil if it was refused.
func (lab *lab) dial(ip string) (net.Conn, *bounded.Conn) {
	lab.t.Helper()
	client, server := net.Pipe()
	lab.t.Cleanup(func() { client.Close() })
	lab.port++
	lab.q.next <- &from{server, &net.TCPAddr{IP: net.ParseIP(ip), Port: lab.port}}
	closed := make(chan struct{})
	go func() {
		client.SetReadDeadline(time.Now().Add(time.Minute))
		client.Read(make([]byte, 1))
		close(closed)
	}()
	select {
	case c := <-lab.taken:
		lab.t.Cleanup(func() { c.Close() })
		return client, c
	case <-closed:
		return client, nil
	}
}

func (lab *lab) expect(reason bounded.Reason, n int) {
	lab.t.Helper()
	lab.mu.Lock()
	defer lab.mu.Unlock()
	if lab.reasons[reason] != n {
		lab.t.Errorf("%d connections counted as %s, want %d: %v", lab.reasons[reason], reason, n, lab.reasons)
	}
}

func TestConnectionsAreBoundedInAllAndPerClient(t *testing.T) {
	lab := newLab(t, bounded.Bounds{Max: 4, PerClient: 2})
	for i, c := range []struct {
		from string
		in   bool
	}{
		{"10.0.0.1", true}, {"10.0.0.1", true}, {"10.0.0.1", false}, {"::ffff:10.0.0.1", false},
		{"2001:db8::1", true}, {"2001:db8::2", true}, {"2001:db8::3", false}, // one /64
		{"2001:db8:0:1::1", false}, // all four are open
	} {
		if _, conn := lab.dial(c.from); (conn != nil) != c.in {
			t.Errorf("connection %d from %s: taken is %v", i, c.from, conn != nil)
		}
	}
	lab.expect(bounded.ClientFull, 3)
	lab.expect(bounded.Full, 1)
}

func TestAClosedConnectionMakesRoomOnce(t *testing.T) {
	lab := newLab(t, bounded.Bounds{Max: 1})
	_, first := lab.dial("10.0.0.1")
	first.Close()
	first.Close()
	if _, c := lab.dial("10.0.0.2"); c == nil {
		t.Fatal("there is room, and a connection was refused")
	}
	if _, c := lab.dial("10.0.0.3"); c != nil {
		t.Error("a connection that was closed twice has made room twice")
	}
}

func TestTheOldestSilentConnectionGivesWay(t *testing.T) {
	lab := newLab(t, bounded.Bounds{Max: 100, PerClient: 50, Pending: 4})
	_, done := lab.dial("10.0.0.1")
	done.Established()
	client, speaks := lab.dial("10.0.0.1")
	go client.Write([]byte{22})
	if _, err := speaks.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	_, quiet := lab.dial("10.0.0.1")
	for i := range 20 { // each has the place of the one before
		if _, c := lab.dial("10.0.0.1"); c == nil {
			t.Fatalf("silent connection %d was refused, and the one before it is silent, too", i)
		}
	}
	if _, err := quiet.Write([]byte{1}); err == nil {
		t.Error("the oldest silent connection is open")
	}
	for name, c := range map[string]*bounded.Conn{"settled": done, "in its handshake": speaks} {
		c.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); err == nil || err.(net.Error) == nil || !err.(net.Error).Timeout() {
			t.Errorf("the connection that is %s is gone: %v", name, err)
		}
	}
	lab.expect(bounded.Evicted, 20)
}

func TestAnotherClientHasItsHalf(t *testing.T) {
	lab := newLab(t, bounded.Bounds{Pending: 4})
	_, victim := lab.dial("10.0.0.2")
	for range 50 {
		lab.dial("10.0.0.1")
	}
	victim.SetReadDeadline(time.Now().Add(time.Millisecond))
	if _, err := victim.Read(make([]byte, 1)); err == nil || !err.(net.Error).Timeout() {
		t.Errorf("a client that makes many connections has pushed another's out: %v", err)
	}
}

func TestClearingTheDeadlineSettles(t *testing.T) {
	lab := newLab(t, bounded.Bounds{Pending: 10})
	_, c := lab.dial("10.0.0.1")
	c.SetDeadline(time.Now().Add(time.Minute))
	if _, pending := lab.l.Len(); pending != 1 {
		t.Errorf("%d pending while there is a deadline", pending)
	}
	c.SetDeadline(time.Time{})
	if _, pending := lab.l.Len(); pending != 0 {
		t.Errorf("%d pending with none", pending)
	}
	c.Idle()
	if _, pending := lab.l.Len(); pending != 1 {
		t.Errorf("%d pending while idle", pending)
	}
	c.Established()
	lab.l.Hangup(c.RemoteAddr())
	if open, pending := lab.l.Len(); open != 0 || pending != 0 {
		t.Errorf("after it was hung up there are %d open, %d pending", open, pending)
	}
}

func TestConnectionsAtRandomAreCounted(t *testing.T) {
	lab := newLab(t, bounded.Bounds{Max: 8, PerClient: 5, Pending: 4})
	var kept []*bounded.Conn
	for i := range 300 {
		_, c := lab.dial(fmt.Sprintf("10.0.0.%d", i*7%4))
		if c != nil && i%3 == 0 {
			c.Established()
			kept = append(kept, c)
		}
		if i%5 == 0 && len(kept) > 0 {
			kept[0].Close()
			kept = kept[1:]
		}
		if open, pending := lab.l.Len(); open > 8 || pending > 4 {
			t.Fatalf("%d open, %d pending", open, pending)
		}
	}
}
