package peeringtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// connected makes a connection from west to east, and gives both its ends.
func connected(t *testing.T, n *Network) (client, server net.Conn) {
	t.Helper()
	l, err := n.Host("east").Listen("1")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, _ := l.Accept()
		accepted <- c
	}()
	if client, err = n.Host("west").Dial(t.Context(), "east:1"); err != nil {
		t.Fatal(err)
	}
	return client, <-accepted
}

func TestBytesArriveWholeAndInOrder(t *testing.T) {
	for what, path := range map[string]Path{
		"a perfect path": {},
		"a poor path":    {Delay: 300 * time.Millisecond, Jitter: 50 * time.Millisecond, Loss: 0.05},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := New(7)
			n.SetPaths("west", "east", path)
			client, server := connected(t, n)
			sent := make([]byte, 2<<20)
			r := rand.New(rand.NewPCG(1, 2))
			for i := range sent {
				sent[i] = byte(r.Uint32())
			}
			go func() {
				for rest := sent; len(rest) > 0; {
					n := min(len(rest), 1+r.IntN(9000))
					if _, err := client.Write(rest[:n]); err != nil {
						t.Error(err)
						return
					}
					rest = rest[n:]
				}
				client.Close()
			}()
			got, err := io.ReadAll(server)
			if err != nil || !bytes.Equal(got, sent) {
				t.Errorf("%s: %d of %d bytes, %v", what, len(got), len(sent), err)
			}
			server.Close()
		})
	}
}

func TestADropHoldsBytesUpUntilTheyAreSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		client, server := connected(t, n)
		n.Drop("west", "east")
		start := time.Now()
		if _, err := client.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { n.Heal("west", "east") })
		if _, err := server.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		// Sent at 0, 0.2, 0.6 and 1.4 s.
		if took := time.Since(start); took != 1400*time.Millisecond {
			t.Errorf("arrived after %s", took)
		}
		client.Close()
		server.Close()
	})
}

func TestWhatIsNotAcknowledgedStopsTheSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		client, server := connected(t, n)
		n.SetPath("east", "west", Path{Down: true})
		for range 10 {
			if _, err := client.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if got, _ := server.Read(make([]byte, 10)); got != 1 {
			t.Errorf("%d bytes got through, and none was acknowledged", got)
		}
		n.Heal("west", "east")
		if got, err := io.ReadAtLeast(server, make([]byte, 10), 9); got != 9 {
			t.Errorf("%d bytes once they can be: %v", got, err)
		}
		client.Close()
		server.Close()
	})
}

func TestWhoListensNotIsRefusedAndWhoIsAwayIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		if _, err := n.Host("west").Dial(t.Context(), "east:1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("nobody listens: %v", err)
		}
		n.Drop("west", "east")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := n.Host("west").Dial(ctx, "east:1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the path is down: %v", err)
		}
	})
}

func TestAKilledHostResetsItsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		client, _ := connected(t, n)
		n.Host("east").Kill()
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read: %v", err)
		}
	})
	t.Run("once the path leads there", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := New(1)
			client, _ := connected(t, n)
			n.Drop("west", "east")
			n.Host("east").Kill()
			_ = client.SetReadDeadline(time.Now().Add(time.Minute))
			_, err := client.Read(make([]byte, 1))
			if e := net.Error(nil); !errors.As(err, &e) || !e.Timeout() {
				t.Errorf("it learned of it by %v", err)
			}
			n.Heal("west", "east")
			_ = client.SetReadDeadline(time.Time{})
			if _, err := client.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("read: %v", err)
			}
		})
	})
}
