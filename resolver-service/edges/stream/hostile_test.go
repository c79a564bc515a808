package stream_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// helloKnowing is an encoded hello with known entries that no view has.
func helloKnowing(t testing.TB, app catalog.App, entries int) []byte {
	t.Helper()
	req := helloOf(app, "")
	for i := range entries {
		req.GetHello().Known = append(req.GetHello().Known, &pb.Known{App: &pb.App{Namespace: "shop", Id: fmt.Sprintf("nowhere-%06d", i)}, Digest: 1})
	}
	text, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// mute opens a stream, sends a message and never reads. It returns the stream.
func (s *service) mute(text []byte) grpc.ClientStream {
	s.t.Helper()
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, end := context.WithTimeout(context.Background(), patience)
	s.t.Cleanup(func() { end(); _ = conn.Close() })
	watch, err := conn.NewStream(ctx, &pb.Resolver_ServiceDesc.Streams[0], pb.Resolver_Watch_FullMethodName, grpc.ForceCodecV2(verbatim{}))
	if err == nil {
		err = watch.SendMsg(text)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return watch
}

// peak is the largest heap while f runs, in bytes.
func peak(f func()) uint64 {
	runtime.GC()
	var most atomic.Uint64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most.Store(max(most.Load(), m.HeapInuse))
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	f()
	close(stop)
	<-stopped
	return most.Load()
}

// bigView makes every app without a selection see so many apps.
func (s *service) bigView(apps int) {
	s.t.Helper()
	change := topology.InstanceChange{Source: "many", Full: true}
	for i := range apps {
		change.Put = append(change.Put, instanceAt(catalog.App{Namespace: "shop", ID: fmt.Sprintf("app-%06d", i)}, fmt.Sprintf("10.%d.%d.%d:50002", 1+i>>16, i>>8&255, i&255)))
	}
	s.apply(topology.Change{Instances: []topology.InstanceChange{change}})
}

// TestStreamsThatNeverReadCostLittle lets 40 clients send the largest hellos and read nothing.
// Without bounds they took 2 GB.
func TestStreamsThatNeverReadCostLittle(t *testing.T) {
	const streams, bound = 40, 250 << 20
	for _, known := range []int{95_000, stream.DefaultMaxKnown} {
		t.Run(fmt.Sprint(known), func(t *testing.T) {
			s := start(t, stream.Config{}, "127.0.0.1:0", selection(checkout, orders))
			s.bigView(20_000)
			honest := s.dial().send(helloOf(checkout, ""))
			honest.recv()
			text := helloKnowing(t, catalog.App{Namespace: "shop", ID: "hostile"}, known)
			used := peak(func() {
				for range streams {
					s.mute(text)
				}
				for i := range 50 {
					at := fmt.Sprintf("10.0.0.%d:50002", 1+i)
					s.instances(orders, at)
					honest.until(says(orders, "["+at+"]"))
					time.Sleep(20 * time.Millisecond) // not a condition: the clients continue for a second
				}
			})
			t.Logf("%d streams with %d known entries (%d KiB each): %d MiB at most", streams, known, len(text)>>10, used>>20)
			if used > bound {
				t.Errorf("the heap had %d MiB, want at most %d", used>>20, bound>>20)
			}
		})
	}
}

// TestAHelloTooLongIsRefused checks that a client learns to reconnect with fewer entries.
func TestAHelloTooLongIsRefused(t *testing.T) {
	s := start(t, stream.Config{}, "127.0.0.1:0", selection(checkout, orders))
	for _, known := range []int{95_000, stream.DefaultMaxKnown + 1} {
		watch := s.mute(helloKnowing(t, checkout, known))
		if err := watch.RecvMsg(nil); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%d known entries: %v", known, err)
		}
	}
	watch := s.mute(helloKnowing(t, checkout, stream.DefaultMaxKnown))
	if err := watch.RecvMsg(nil); err != nil {
		t.Errorf("as many as are taken: %v", err)
	}
}

// TestAClientThatDoesNotReadIsDropped checks that its connection is closed: the end of its stream
// would wait behind unread messages.
func TestAClientThatDoesNotReadIsDropped(t *testing.T) {
	s := start(t, stream.Config{StallTimeout: 500 * time.Millisecond}, "127.0.0.1:0", selection(checkout, orders))
	s.bigView(20_000) // whose message is longer than flow control lets through
	reads := s.dial().send(helloOf(ledger, ""))
	reads.recv()
	for _, known := range []int{0, 1} { // the message is for it alone, or shared
		s.mute(helloKnowing(t, catalog.App{Namespace: "shop", ID: "hostile"}, known))
	}
	open, _ := s.listener.Len()
	for deadline := time.Now().Add(patience); open > 1; open, _ = s.listener.Len() {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are open; one of them reads", open)
		}
		time.Sleep(5 * time.Millisecond)
	}
	s.instances(orders, "10.0.0.1:50002")
	reads.until(says(orders, "[10.0.0.1:50002]"))
}

// TestASlowClientIsNotDropped checks that a client may read slowly.
func TestASlowClientIsNotDropped(t *testing.T) {
	s := start(t, stream.Config{StallTimeout: 4 * time.Second}, "127.0.0.1:0")
	s.bigView(20_000)
	c := s.dial().send(helloOf(checkout, ""))
	c.recv()
	time.Sleep(5 * time.Second) // nothing is for it meanwhile
	s.instances(orders, "10.0.0.1:50002")
	c.until(says(orders, "[10.0.0.1:50002]"))
}

// TestHellosThatNeverEndHoldUpNobody for longer than the timeout of hellos.
func TestHellosThatNeverEndHoldUpNobody(t *testing.T) {
	s := start(t, stream.Config{HelloTimeout: time.Second}, "127.0.0.1:0", selection(checkout, orders))
	for range 100 { // more than may be read at once
		conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := pb.NewResolverClient(conn).Watch(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for { // a sidecar retries until it is accepted
		c := s.dial().send(helloOf(checkout, ""))
		if _, err := c.stream.Recv(); err == nil {
			return
		} else if status.Code(err) != codes.DeadlineExceeded {
			t.Fatal(err)
		}
	}
}
