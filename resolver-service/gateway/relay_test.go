package gateway

import (
	"bytes"
	"crypto/sha256"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"
)

// pass gives a client's connection through a relay, and the backend's side of it.
// What the client has sent so far is a ClientHello, which the backend has read.
func pass(t *testing.T, cfg Config, with option) (gw *running, client, server *net.TCPConn) {
	t.Helper()
	accepted := make(chan *net.TCPConn)
	release := make(chan struct{})
	addr := backend(t, func(c *net.TCPConn) {
		c.SetDeadline(time.Now().Add(patience))
		accepted <- c
		<-release
	})
	t.Cleanup(func() { close(release) })
	gw = serve(t, cfg, exports(1, map[string][]string{"orders": {addr}}), with)
	client = dialTCP(t, gw.addr)
	first := hello(ordersHost)
	client.Write(first)
	server = <-accepted
	if got := make([]byte, len(first)); !readExactly(server, got) || !bytes.Equal(got, first) {
		t.Fatal("the hello did not arrive")
	}
	return gw, client, server
}

func readExactly(r io.Reader, b []byte) bool {
	_, err := io.ReadFull(r, b)
	return err == nil
}

// sides runs a test with either side of a pair as the one that acts.
func sides(t *testing.T, cfg Config, test func(t *testing.T, gw *running, acts, other *net.TCPConn)) {
	eachRelay(t, func(t *testing.T, with option) {
		t.Run("client", func(t *testing.T) {
			gw, client, server := pass(t, cfg, with)
			test(t, gw, client, server)
		})
		t.Run("app", func(t *testing.T) {
			gw, client, server := pass(t, cfg, with)
			test(t, gw, server, client)
		})
	})
}

func TestHalfCloseLeavesTheOtherDirectionOpen(t *testing.T) {
	sides(t, Config{}, func(t *testing.T, gw *running, acts, other *net.TCPConn) {
		io.WriteString(acts, "question")
		acts.CloseWrite()
		if got, err := io.ReadAll(other); string(got) != "question" || err != nil {
			t.Fatalf("before the end: %q, %v", got, err)
		}
		for _, part := range []string{"a long ", "answer"} {
			io.WriteString(other, part)
			if got := make([]byte, len(part)); !readExactly(acts, got) || string(got) != part {
				t.Fatalf("after the half-close: %q; want %q", got, part)
			}
		}
		if gw.metric("isthmus_gateway_connections_open") != 1 {
			t.Error("the connection is counted as closed")
		}
		other.CloseWrite()
		if rest, err := io.ReadAll(acts); len(rest) > 0 || err != nil {
			t.Errorf("at the end: %q, %v", rest, err)
		}
		eventually(t, "the connection is over", func() bool { return gw.metric("isthmus_gateway_connections_open") == 0 })
	})
}

func TestEndComesAfterAllThatWasSent(t *testing.T) {
	sides(t, Config{}, func(t *testing.T, _ *running, acts, other *net.TCPConn) {
		go func() {
			acts.Write(make([]byte, 8<<20)) // more than the sockets hold
			acts.CloseWrite()
		}()
		time.Sleep(20 * time.Millisecond)
		if n, err := io.Copy(io.Discard, other); n != 8<<20 || err != nil {
			t.Errorf("%d bytes of 8 MiB before the end, %v", n, err)
		}
	})
}

func TestResetIsPassedOn(t *testing.T) {
	sides(t, Config{}, func(t *testing.T, gw *running, acts, other *net.TCPConn) {
		reset(acts)
		if _, err := other.Read(make([]byte, 1)); !isReset(err) {
			t.Errorf("read on the other side: %v; want a reset", err)
		}
		eventually(t, "the connection is over", func() bool { return gw.metric("isthmus_gateway_connections_open") == 0 })
	})
}

func TestResetAfterHalfCloseIsPassedOn(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the portable relay learns of it when it next writes")
	}
	for _, side := range []string{"client", "app"} {
		t.Run(side, func(t *testing.T) {
			gw, acts, other := pass(t, Config{}, func(*Gateway) {})
			if side == "app" {
				acts, other = other, acts
			}
			acts.CloseWrite()
			io.ReadAll(other)
			reset(acts)
			if _, err := other.Write([]byte("x")); err == nil {
				eventually(t, "writes fail", func() bool { _, err := other.Write([]byte("x")); return err != nil })
			}
			eventually(t, "the connection is over", func() bool { return gw.metric("isthmus_gateway_connections_open") == 0 })
		})
	}
}

// Random bytes in random pieces, both ways at once, with slow and fast readers.
func TestBytesArriveAsTheyWereSent(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		_, client, server := pass(t, Config{}, with)
		var both sync.WaitGroup
		for i, ends := range [][2]*net.TCPConn{{client, server}, {server, client}} {
			from, to := ends[0], ends[1]
			sent, got := sha256.New(), sha256.New()
			both.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 1))
				for range 300 {
					b := make([]byte, 1<<random.IntN(18))
					for j := range b {
						b[j] = byte(random.Uint32())
					}
					sent.Write(b)
					from.Write(b)
					if random.IntN(20) == 0 {
						time.Sleep(time.Millisecond)
					}
				}
				from.CloseWrite()
			})
			both.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 2))
				for b := make([]byte, 1<<18); ; {
					n, err := to.Read(b[:1+random.IntN(len(b))])
					got.Write(b[:n])
					if err != nil {
						return
					}
					if random.IntN(20) == 0 {
						time.Sleep(time.Millisecond)
					}
				}
			})
			defer func() {
				if !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
					t.Errorf("direction %d: what arrived is not what was sent", i)
				}
			}()
		}
		both.Wait()
	})
}

// fill writes until the other side's refusal to read stops it, and returns how much that took.
func fill(t *testing.T, c *net.TCPConn) int {
	t.Helper()
	sent := 0
	for b := make([]byte, 1<<18); ; {
		c.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		n, err := c.Write(b)
		if sent += n; err != nil {
			return sent
		}
		if sent > 256<<20 {
			t.Fatal("256 MiB were taken for a client that reads nothing")
		}
	}
}

func TestReaderThatDoesNotReadDelaysNobody(t *testing.T) {
	sides(t, Config{}, func(t *testing.T, gw *running, acts, other *net.TCPConn) {
		sent := fill(t, acts)
		app := tlsBackend(t, "orders")
		gw.table.Store(exports(2, map[string][]string{"orders": {app}}))
		for range 8 { // beside it, on every loop
			_, conn, err := call(t, gw.addr, ordersHost)
			if err != nil {
				t.Fatal(err)
			}
			echo(t, conn, bytes.Repeat([]byte("y"), 1<<20))
		}
		io.WriteString(other, "the way back is free")
		if got := make([]byte, 20); !readExactly(acts, got) {
			t.Error("nothing comes the other way")
		}
		acts.CloseWrite()
		if n, err := io.Copy(io.Discard, other); int(n) != sent || err != nil {
			t.Errorf("%d bytes arrived of %d, %v", n, sent, err)
		}
	})
}

func TestReaderThatNeverReadsIsEnded(t *testing.T) {
	sides(t, Config{StallTimeout: time.Second}, func(t *testing.T, gw *running, acts, _ *net.TCPConn) {
		var writes sync.WaitGroup
		writes.Go(func() { io.Copy(acts, zeros{}) })
		defer writes.Wait()
		eventually(t, "the stalled connection is ended", func() bool { return gw.metric("isthmus_gateway_connections_open") == 0 })
	})
}

func TestIdleConnectionOutlivesTheStallTimeout(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		_, client, server := pass(t, Config{StallTimeout: 500 * time.Millisecond}, with)
		io.WriteString(client, "before")
		readExactly(server, make([]byte, 6))
		time.Sleep(1200 * time.Millisecond)
		io.WriteString(server, "after")
		if got := make([]byte, 5); !readExactly(client, got) || string(got) != "after" {
			t.Errorf("got %q", got)
		}
	})
}

// zeros never end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

func TestARelayThatIsClosedClosesWhatComesLater(t *testing.T) {
	for name, make := range map[string]func(relayConfig) (relay, error){"copy": newCopyRelay, "native": newRelay} {
		t.Run(name, func(t *testing.T) {
			ended := 0
			r, err := make(relayConfig{stall: time.Minute, traffic: &traffic{}, ended: func(*admitted) { ended++ }, logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			r.close()
			addr := backend(t, func(c *net.TCPConn) { io.Copy(io.Discard, c) })
			client, app := dialTCP(t, addr), dialTCP(t, addr)
			r.pass(client, app, &admitted{})
			if ended != 1 { // by then: nobody waits for it later
				t.Errorf("%d pairs ended, want 1", ended)
			}
			for _, c := range []*net.TCPConn{client, app} {
				if _, err := c.Write([]byte("x")); err == nil {
					t.Error("a connection is still open")
				}
			}
		})
	}
}
