package dial

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	internalv1 "github.com/isthmus-mesh/isthmus/api/dapr/proto/internals/v1"
)

// gRPC learns that a connection has ended a moment after it was aborted.
func TestAConnectionThatIsAbortedHasNoMoreCalls(t *testing.T) {
	w := newTestDialer(t)
	a, b := startGateway(t), startGateway(t)
	w.setRoutes(nil, localRoute(a.Address, b.Address))
	conn := w.dial(t)
	callUntil(t, conn, a.Address)
	callUntil(t, conn, b.Address)
	c := w.watcher.connections()[0]
	w.watcher.close() // a look that has begun would take what is set for a connection that answers
	c.endpoint.setUnresponsive(true)
	for range 20 {
		if got := mustCall(t, conn); got == c.endpoint.address {
			t.Fatal("the connection is given a call")
		}
	}
	c.abort()
	callUntil(t, conn, c.endpoint.address)
}

func TestAnInstanceThatHangs(t *testing.T) {
	f := &freezer{}
	first := true
	instances, conn := startFive(t, func(address string) string {
		if first {
			first = false
			return f.proxy(t, address)
		}
		return address
	})
	f.freeze()
	began := time.Now()
	given := callMany(t, conn, instances, 400) // none fails: the calls that hang are repeated
	took := time.Since(began)
	t.Logf("%v of 400 calls, in %s", given, took.Round(time.Millisecond))
	if took > callLimit {
		t.Errorf("the calls took %s", took)
	}
	f.thaw()
	waitForShare(t, conn, instances)
}

// An instance without any alternative is not left. Its calls wait, and end when it continues.
func TestTheOnlyInstanceHangs(t *testing.T) {
	f := &freezer{}
	p := &timedServer{}
	w := newTestDialer(t)
	w.setRoutes(nil, localRoute(f.proxy(t, startGateway(t, p.register).Address)))
	conn := w.dial(t)
	if err := invoke(t.Context(), conn, time.Minute); err != nil {
		t.Fatal(err)
	}
	f.freeze()
	ended := startInvoke(t, conn)
	time.Sleep(2 * time.Second) // far longer than an instance with an alternative is given
	f.thaw()
	if err := <-ended; err != nil {
		t.Errorf("the call ended with %v", err)
	}
	if n := p.given.Load(); n != 2 {
		t.Errorf("2 calls ran %d times", n)
	}
}

// gRPC writes a large request in parts. No ping may go between them.
func TestPingsGoBetweenFrames(t *testing.T) {
	p := &timedServer{}
	gw := startGateway(t, p.register)
	w := newTestDialer(t)
	w.setRoutes(nil, localRoute(gw.Address))
	conn := w.dial(t)
	if err := invoke(t.Context(), conn, time.Minute); err != nil {
		t.Fatal(err)
	}
	stop, asked := make(chan struct{}), atomic.Int64{}
	var asking sync.WaitGroup
	asking.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, c := range w.watcher.connections() {
				if c.writer.ping() {
					asked.Add(1)
				}
			}
			time.Sleep(100 * time.Microsecond)
		}
	})
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for i := range 200 {
				req := &internalv1.InternalInvokeRequest{Metadata: map[string]*internalv1.ListStringValue{"x": {Values: []string{strings.Repeat("x", i*997)}}}}
				if _, err := internalv1.NewServiceInvocationClient(conn).CallLocal(t.Context(), req); err != nil {
					t.Errorf("call: %v", err)
					return
				}
			}
		})
	}
	callers.Wait()
	close(stop)
	asking.Wait()
	if sni, _ := gw.seen(); len(sni) != 1 || asked.Load() < 10 {
		t.Errorf("%d connections and %d pings, want one and many", len(sni), asked.Load())
	}
}
