package relay

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

func TestHalfCloseLeavesTheOtherDirectionOpen(t *testing.T) {
	sides(t, Config{}, func(t *testing.T, p *passed, acts, other *net.TCPConn) {
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
		if p.over() {
			t.Error("the pair has ended")
		}
		other.CloseWrite()
		if rest, err := io.ReadAll(acts); len(rest) > 0 || err != nil {
			t.Errorf("at the end: %q, %v", rest, err)
		}
		p.ends(t)
	})
}

func TestEndComesAfterAllThatWasSent(t *testing.T) {
	sides(t, Config{}, func(t *testing.T, _ *passed, acts, other *net.TCPConn) {
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
	sides(t, Config{}, func(t *testing.T, p *passed, acts, other *net.TCPConn) {
		Reset(acts)
		if _, err := other.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read on the other side: %v; want a reset", err)
		}
		p.ends(t)
	})
}

func TestResetAfterHalfCloseIsPassedOn(t *testing.T) {
	sides(t, Config{}, func(t *testing.T, p *passed, acts, other *net.TCPConn) {
		if p.way == "copy" {
			t.Skip("it learns of the reset when it next writes")
		}
		acts.CloseWrite()
		io.ReadAll(other)
		Reset(acts)
		if _, err := other.Write([]byte("x")); err == nil {
			serverstest.Await(t, "writes fail", func() bool { _, err := other.Write([]byte("x")); return err != nil })
		}
		p.ends(t)
	})
}

// Random bytes in random pieces, both ways at once, with slow and fast readers.
func TestBytesArriveAsTheyWereSent(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		_, client, server := pass(t, w, Config{})
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
	sides(t, Config{}, func(t *testing.T, p *passed, acts, other *net.TCPConn) {
		sent := fill(t, acts)
		for range 8 { // beside it, on every loop
			_, client, server := p.another(t)
			exchange(t, client, server, 1<<20)
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
	sides(t, Config{Stall: time.Second}, func(t *testing.T, p *passed, acts, _ *net.TCPConn) {
		var writes sync.WaitGroup
		writes.Go(func() { io.Copy(acts, zeros{}) })
		defer writes.Wait()
		p.ends(t)
	})
}

func TestIdleConnectionOutlivesTheStallTimeout(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		_, client, server := pass(t, w, Config{Stall: 500 * time.Millisecond})
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

func TestABackendThatDoesNotAnswerIsGivenUp(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		p, client, server := pass(t, w, Config{Answer: 300 * time.Millisecond})
		io.WriteString(client, "question")
		if got, _ := io.ReadAll(client); string(got) != lastWords {
			t.Errorf("the client got %q, want %q", got, lastWords)
		}
		io.Copy(io.Discard, server) // until the relay closes it
		p.ends(t)
		if n := p.unanswered.Load(); n != 1 {
			t.Errorf("the owner was told %d times, want once", n)
		}
	})
}

func TestABackendThatAnsweredMaySendNothingAfter(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		const limit = 200 * time.Millisecond
		_, client, server := pass(t, w, Config{Answer: limit})
		if _, err := server.Write([]byte("x")); err != nil || !readExactly(client, make([]byte, 1)) {
			t.Skip("this machine was too slow to answer in time")
		}
		time.Sleep(3 * limit)
		io.WriteString(client, "question")
		readExactly(server, make([]byte, 8))
		io.WriteString(server, "answer")
		if got := make([]byte, 6); !readExactly(client, got) || string(got) != "answer" {
			t.Errorf("got %q", got)
		}
	})
}

func TestARelayThatIsClosedClosesLaterPairs(t *testing.T) {
	for name, make := range map[string]func(Config) (Relay, error){"copy": NewCopy, "native": New} {
		t.Run(name, func(t *testing.T) {
			r, err := make(Config{Stall: time.Minute, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			r.Close()
			client, in := connected(t)
			out, server := connected(t)
			o := newOwner()
			r.Pass(in, out, o)
			if !o.over() { // by then: nobody waits for it later
				t.Error("the pair has not ended")
			}
			for _, c := range []*net.TCPConn{client, server} {
				if _, err := c.Read([]byte{0}); err == nil {
					t.Error("a connection is still open")
				}
			}
		})
	}
}
