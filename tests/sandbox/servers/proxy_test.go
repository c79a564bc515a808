package servers

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// echo answers every line with itself, on a free port.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	conns := make(chan net.Conn, 100)
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns <- conn
			go func() {
				_, _ = io.Copy(conn, conn) // until the client has said all
				conn.Close()
			}()
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
		close(conns)
		for conn := range conns {
			conn.Close()
		}
	})
	return listener.Addr().String()
}

func proxyTo(t *testing.T, target string) *Proxy {
	t.Helper()
	p, err := NewProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// caller is a client of echo.
type caller struct {
	t *testing.T
	net.Conn
	lines *bufio.Reader
}

func call(t *testing.T, p *Proxy) caller {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return caller{t, conn, bufio.NewReader(conn)}
}

func (c caller) say(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

// hear returns the next line, within a time.
func (c caller) hear(within time.Duration) (string, error) {
	c.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		c.t.Fatal(err)
	}
	line, err := c.lines.ReadString('\n')
	return line, err
}

func (c caller) hears(line string) {
	c.t.Helper()
	if got, err := c.hear(time.Minute); err != nil || got != line+"\n" {
		c.t.Fatalf("heard %q, %v; want %q", got, err, line)
	}
}

func TestALinkPassesEverythingAndCounts(t *testing.T) {
	p := proxyTo(t, echo(t))
	c := call(t, p)
	c.say("one")
	c.hears("one")
	c.say("two")
	c.hears("two")
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB: more than the link's buffers
	go func() {
		_, _ = c.Write(sent) // what is missing shows below
		_ = c.Conn.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c.lines)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes came back of %d, %v", len(got), len(sent), err)
	}
	traffic := p.Traffic()
	if want := int64(len(sent) + len("one\ntwo\n")); traffic.Connections != 1 || traffic.Sent != want || traffic.Received != want || traffic.Requests < 3 {
		t.Errorf("counted %+v; want one connection, %d bytes each way, 3 requests or more", traffic, want)
	}
}

func TestALinkThatRefuses(t *testing.T) {
	p := proxyTo(t, echo(t))
	c := call(t, p)
	c.say("one")
	c.hears("one")
	p.Refuse()
	if got, err := c.hear(time.Minute); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("heard %q, %v on a connection that was to be closed", got, err)
	}
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connect: %v; want that it is refused", err)
	}
	if err := p.Mend(); err != nil {
		t.Fatal(err)
	}
	c = call(t, p)
	c.say("two")
	c.hears("two")
}

func TestALinkThatDrops(t *testing.T) {
	p := proxyTo(t, echo(t))
	old := call(t, p)
	old.say("one")
	old.hears("one")
	p.Drop()
	before := p.Traffic()
	fresh := call(t, p)
	for _, c := range []caller{old, fresh} {
		c.say("two")
		if got, err := c.hear(100 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("heard %q, %v by a link that drops; want silence", got, err)
		}
	}
	if now := p.Traffic(); now.Sent != before.Sent || now.Received != before.Received {
		t.Errorf("counted %+v and then %+v; want nothing to get through", before, now)
	}
	if err := p.Mend(); err != nil {
		t.Fatal(err)
	}
	old.hears("two")
	fresh.hears("two")
}

func TestALinkThatDropsHoldsBackTheEndToo(t *testing.T) {
	p := proxyTo(t, echo(t))
	c := call(t, p)
	c.say("one")
	c.hears("one")
	p.Drop()
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := c.hear(100 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("heard %q, %v; want silence, since the server knows nothing yet", got, err)
	}
	if err := p.Mend(); err != nil {
		t.Fatal(err)
	}
	if got, err := c.hear(time.Minute); err != io.EOF {
		t.Errorf("heard %q, %v; want the end", got, err)
	}
}

func TestALinkThatDelays(t *testing.T) {
	p := proxyTo(t, echo(t))
	c := call(t, p)
	const by = 200 * time.Millisecond
	p.Delay(by)
	begin := time.Now()
	c.say("one")
	c.hears("one")
	if took := time.Since(begin); took < 2*by {
		t.Errorf("there and back took %s; want %s at least", took, 2*by)
	}
	if err := p.Mend(); err != nil {
		t.Fatal(err)
	}
	best := time.Hour // of several: a busy machine adds to some
	for range 10 {
		begin = time.Now()
		c.say("two")
		c.hears("two")
		best = min(best, time.Since(begin))
	}
	if best >= 2*by {
		t.Errorf("there and back took %s by a mended link", best)
	}
}

func TestALinkToNothingClosesConnections(t *testing.T) {
	port, err := sandbox.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	c := call(t, proxyTo(t, hostPort(port)))
	if got, err := c.hear(time.Minute); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("heard %q, %v; want the connection closed", got, err)
	}
}

func TestAClosedLinkIsGone(t *testing.T) {
	p := proxyTo(t, echo(t))
	c := call(t, p)
	c.say("one")
	c.hears("one")
	p.Drop() // what is stuck must not hold up the end
	c.say("two")
	p.Close()
	if got, err := c.hear(time.Minute); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("heard %q, %v; want the connection closed", got, err)
	}
	if err := p.Mend(); err == nil {
		t.Error("a closed link was mended")
	}
}
