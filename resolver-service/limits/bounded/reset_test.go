package bounded_test

import (
	"net"
	"testing"
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
