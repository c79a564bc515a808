package bounded_test

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/resolver-service/limits/bounded"
)

// TestAResetConnectionGivesWayFirst has a client wait for its answer longer than its grace, while
// another resets what it opens.
func TestAResetConnectionGivesWayFirst(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b := bounded.New(l, bounded.Bounds{Max: 3, Pending: 8, Grace: time.Nanosecond})
	dial := func() *net.TCPConn {
		t.Helper()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("GET")); err != nil {
			t.Fatal(err)
		}
		return c.(*net.TCPConn)
	}
	accept := func() *bounded.Conn {
		t.Helper()
		c, err := b.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
		return c.(*bounded.Conn)
	}
	client := dial()
	defer client.Close()
	honest := accept()
	defer honest.Close()
	for range 20 {
		storm := dial()
		over := accept()
		defer over.Close()
		storm.SetLinger(0)
		storm.Close()
		for { // until the reset is there
			over.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := over.Conn.Read(make([]byte, 1)); err != nil {
				break
			}
		}
	}
	if _, err := honest.Write([]byte("OK")); err != nil {
		t.Fatalf("the connection that waits for its answer: %v", err)
	}
	client.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := client.Read(make([]byte, 2)); err != nil {
		t.Errorf("the client gets no answer: %v", err)
	}
}

// TestBytesThatTheServerHasNotReadAreNoFaultOfTheClient has a busy server: it has not come to
// read what the oldest client sent, whose grace is over. Others whose grace is over give way.
func TestBytesThatTheServerHasNotReadAreNoFaultOfTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		const grace = time.Second
		b := bounded.New(l, bounded.Bounds{Max: 2, Pending: 8, Grace: grace, Wait: grace})
		enter := func() (client net.Conn, server *bounded.Conn) {
			t.Helper()
			client, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { client.Close() })
			if _, err := client.Write([]byte("GET")); err != nil {
				t.Fatal(err)
			}
			c, err := b.Accept()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			return client, c.(*bounded.Conn)
		}
		client, unread := enter()
		for range 5 {
			_, read := enter()
			if _, err := read.Read(make([]byte, 3)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(grace)
		}
		if _, err := unread.Write([]byte("OK")); err != nil {
			t.Fatalf("the connection that the server has not read: %v", err)
		}
		if _, err := client.Read(make([]byte, 2)); err != nil {
			t.Errorf("the client gets no answer: %v", err)
		}
		time.Sleep(10 * grace)
		enter()
		if _, err := unread.Write([]byte("OK")); err == nil {
			t.Error("a connection is never safe for ever")
		}
	})
}
