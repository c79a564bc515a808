package stream_test

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
)

// cable forwards TCP until it is cut. Then nothing gets through, and neither side gets an error.
type cable struct {
	listener net.Listener
	cut      atomic.Bool
	all      sync.WaitGroup
	mu       sync.Mutex
	conns    []net.Conn
}

func lay(t *testing.T, to string) *cable {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{listener: listener}
	c.all.Go(func() { c.accept(to) })
	t.Cleanup(func() {
		_ = listener.Close()
		c.mu.Lock()
		for _, conn := range c.conns {
			_ = conn.Close()
		}
		c.mu.Unlock()
		c.all.Wait()
	})
	return c
}

func (c *cable) accept(to string) {
	for {
		near, err := c.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", to)
		if err != nil {
			_ = near.Close()
			return
		}
		c.mu.Lock()
		c.conns = append(c.conns, near, far)
		c.mu.Unlock()
		c.all.Go(func() { c.pass(near, far) })
		c.all.Go(func() { c.pass(far, near) })
	}
}

func (c *cable) pass(from io.Reader, to io.Writer) {
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if c.cut.Load() {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// A sidecar on a dead machine closes nothing. Its instance must still be gone within seconds.
func TestASilentlyDeadSidecarIsNoticed(t *testing.T) {
	t.Parallel()
	s := start(t, stream.Config{}, "127.0.0.1:0", selection(checkout, orders))
	c := lay(t, s.address)
	conn, err := grpc.NewClient(c.listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	o, err := pb.NewResolverClient(conn).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Send(helloOf(orders, "10.0.0.1:50002")); err != nil {
		t.Fatal(err)
	}
	watcher := s.dial().send(helloOf(checkout, ""))
	watcher.until(says(orders, "[10.0.0.1:50002]"))
	c.cut.Store(true)
	since := time.Now()
	watcher.until(says(orders, "[]"))
	if took := time.Since(since); took > time.Minute {
		t.Errorf("noticed after %s", took)
	}
}
