package stream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// resuming is a hello of a client that has a view already.
func resuming(app catalog.App, view *pb.WatchResponse) *pb.WatchRequest {
	req := helloOf(app, "")
	h := req.GetHello()
	h.Revision = view.Revision
	for _, e := range view.Put {
		h.Known = append(h.Known, &pb.Known{App: e.App, Digest: e.Digest})
	}
	return req
}

func TestResumingSendsOnlyWhatDiffers(t *testing.T) {
	s := start(t, stream.Config{}, "127.0.0.1:0", selection(checkout, orders, ledger))
	s.instances(orders, "10.0.0.1:50002")
	whole := s.dial().send(helloOf(checkout, "")).recv()

	if again := s.dial().send(resuming(checkout, whole)).recv(); len(again.Put)+len(again.Removed) != 0 || again.Revision != whole.Revision {
		t.Errorf("nothing has changed, and still came %v", again)
	}
	s.instances(orders, "10.0.0.2:50002")
	s.apply(topology.Change{Objects: &topology.ObjectChange{Put: []catalog.Object{selection(checkout, orders)}}})
	again := s.dial().send(resuming(checkout, whole)).recv()
	if got, _ := ready(again, orders); got != "[10.0.0.2:50002]" || len(again.Put) != 1 || len(again.Removed) != 1 || again.Removed[0].Id != "ledger" {
		t.Errorf("resumed with %v", again)
	}
	expected := `
# HELP isthmus_stream_resumed_total Streams of sidecars that came back with a view.
# TYPE isthmus_stream_resumed_total counter
isthmus_stream_resumed_total 2
`
	if err := testutil.GatherAndCompare(s.metrics, strings.NewReader(expected), "isthmus_stream_resumed_total"); err != nil {
		t.Error(err)
	}
}

func TestNoClientSeesARevisionGoBackwards(t *testing.T) {
	s := start(t, stream.Config{}, "127.0.0.1:0", selection(checkout, orders))
	far := &pb.WatchResponse{Revision: 1_000_000} // from another life of the service
	c := s.dial().send(resuming(checkout, far))
	last := c.recv().Revision
	if last < far.Revision {
		t.Fatalf("revision %d after %d", last, far.Revision)
	}
	step := func(what string, change func()) {
		change()
		if now := c.recv().Revision; now <= last {
			t.Errorf("%s: revision %d after %d", what, now, last)
		} else {
			last = now
		}
	}
	step("an instance", func() { s.instances(orders, "10.0.0.2:50002") })
	// Without a selection the app has the view of all such apps, which is older.
	step("the selection goes", func() {
		s.apply(topology.Change{Objects: &topology.ObjectChange{Delete: []catalog.Key{selection(checkout).Key()}}})
	})
	step("the selection comes back", func() {
		s.apply(topology.Change{Objects: &topology.ObjectChange{Put: []catalog.Object{selection(checkout, ledger)}}})
	})
}

// One client's claim must not lock out clients with a real revision, nor lose the snapshot.
func TestARevisionBeyondAnyIsNoReasonToRefuse(t *testing.T) {
	cfg := stream.Config{Snapshot: filepath.Join(t.TempDir(), "instances.json")}
	s := start(t, cfg, "127.0.0.1:0", selection(checkout, orders))
	s.dial().send(helloOf(orders, "10.0.0.1:50002")).recv()
	before := s.topology.Revision()
	liar := s.dial().send(resuming(checkout, &pb.WatchResponse{Revision: 1 << 62}))
	if told := liar.recv(); told.Revision > before || s.topology.Revision() != before {
		t.Fatalf("a client has set the revision from %d to %d, and is told %d", before, s.topology.Revision(), told.Revision)
	}
	told := s.dial().send(resuming(checkout, &pb.WatchResponse{Revision: 1 << 40})).recv() // of a service that ran for long
	if told.Revision <= 1<<40 {
		t.Fatalf("revision %d after %d", told.Revision, uint64(1)<<40)
	}
	s.stop()
	again := start(t, cfg, "127.0.0.1:0", selection(checkout, orders))
	c := again.dial().send(resuming(checkout, &pb.WatchResponse{Revision: told.Revision + 100}))
	c.until(says(orders, "[10.0.0.1:50002]"))
	beyond := again.dial().send(resuming(checkout, &pb.WatchResponse{Revision: math.MaxUint64}))
	beyond.until(says(orders, "[10.0.0.1:50002]"))
	if r := again.topology.Revision(); r > 1<<41 {
		t.Errorf("at revision %d", r)
	}
}

func TestReconnectingLeavesNoGap(t *testing.T) {
	s := start(t, stream.Config{}, "127.0.0.1:0", selection(checkout, orders))
	first := s.dial().send(helloOf(orders, "10.0.0.1:50002"))
	first.recv()
	watcher := s.dial().send(helloOf(checkout, ""))
	watcher.until(says(orders, "[10.0.0.1:50002]"))
	second := s.dial().send(helloOf(orders, "10.0.0.1:50002"))
	second.recv()
	if st := first.refused(); st.Code() != codes.Aborted {
		t.Errorf("the first stream ended with %v", st)
	}
	s.instances(orders, "10.0.0.7:50002")
	// Any gap would be a message of its own before this one.
	if got, _ := ready(watcher.recv(), orders); got != "[10.0.0.1:50002 10.0.0.7:50002]" {
		t.Errorf("orders was at %s meanwhile", got)
	}
}

func TestDrainedIsToldOnceViewsAreWithoutIt(t *testing.T) {
	s := start(t, stream.Config{}, "127.0.0.1:0", selection(checkout, orders))
	o := s.dial().send(helloOf(orders, "10.0.0.1:50002"))
	o.recv()
	o.send(drainRequest())
	m := o.until(func(m *pb.WatchResponse) bool { return m.Drained })
	view := s.dial().send(helloOf(checkout, "")).recv()
	if got, _ := ready(view, orders); got != "[]" || view.Revision > m.Revision {
		t.Errorf("drained at %d, but orders is at %s in revision %d", m.Revision, got, view.Revision)
	}
	if stats := s.topology.Stats(); stats.Draining != 1 {
		t.Errorf("%d are draining", stats.Draining)
	}
	s.instances(ledger, "10.0.0.3:50002")
	if next := o.until(says(ledger, "[10.0.0.3:50002]")); next.Revision <= m.Revision || next.Drained {
		t.Errorf("after drained at %d came %v", m.Revision, next)
	}
}

// A sidecar that lost its stream, or its replica, while it drained.
func TestOneThatComesBackDrainingIsInNoView(t *testing.T) {
	s := start(t, stream.Config{}, "127.0.0.1:0", selection(checkout, orders))
	c := s.dial().send(helloOf(checkout, ""))
	c.recv()
	hello := helloOf(orders, "10.0.0.1:50002")
	hello.GetHello().Instance.Draining = true
	o := s.dial().send(hello)
	o.recv()
	o.send(drainRequest())
	o.until(func(m *pb.WatchResponse) bool { return m.Drained })
	s.instances(orders, "10.0.0.2:50002")
	c.until(func(m *pb.WatchResponse) bool {
		got, _ := ready(m, orders)
		if strings.Contains(got, "10.0.0.1:50002") {
			t.Errorf("orders was at %s", got)
		}
		return got == "[10.0.0.2:50002]"
	})
}

func TestADrainBeforeTheFirstViewIsToldWithIt(t *testing.T) {
	s := start(t, stream.Config{}, "127.0.0.1:0")
	o := s.dial().send(helloOf(orders, "10.0.0.1:50002")).send(drainRequest())
	m := o.until(func(m *pb.WatchResponse) bool { return m.Drained })
	if m.Gateways == nil && m.Revision == 0 {
		t.Errorf("drained with %v", m)
	}
}

func TestWhatIsNoHelloIsRefused(t *testing.T) {
	s := start(t, stream.Config{HelloTimeout: patience, MaxKnown: 2}, "127.0.0.1:0")
	hasty := start(t, stream.Config{HelloTimeout: 50 * time.Millisecond}, "127.0.0.1:0")
	edit := func(f func(*pb.Hello)) *pb.WatchRequest {
		req := helloOf(checkout, "10.0.0.1:50002")
		f(req.GetHello())
		return req
	}
	at := func(address string) *pb.WatchRequest {
		return edit(func(h *pb.Hello) { h.Instance.Address = address })
	}
	for what, test := range map[string]struct {
		send []*pb.WatchRequest
		code codes.Code
		says string
	}{
		"nothing":            {nil, codes.DeadlineExceeded, "no hello within 50ms"},
		"drain first":        {[]*pb.WatchRequest{drainRequest()}, codes.FailedPrecondition, "drain before hello"},
		"an empty message":   {[]*pb.WatchRequest{{}}, codes.InvalidArgument, "neither hello nor drain"},
		"hello twice":        {[]*pb.WatchRequest{at("10.0.0.1:1"), at("10.0.0.1:1")}, codes.FailedPrecondition, "only drain"},
		"drain of a watcher": {[]*pb.WatchRequest{helloOf(checkout, ""), drainRequest()}, codes.FailedPrecondition, "no instance"},
		"no app":             {[]*pb.WatchRequest{edit(func(h *pb.Hello) { h.App = nil })}, codes.InvalidArgument, "app is missing"},
		"a bad app":          {[]*pb.WatchRequest{edit(func(h *pb.Hello) { h.App.Id = "a.b" })}, codes.InvalidArgument, "certificates"},
		"too many known": {[]*pb.WatchRequest{edit(func(h *pb.Hello) {
			h.Known = []*pb.Known{{App: wire.App(orders)}, {App: wire.App(ledger)}, {App: wire.App(checkout)}}
		})}, codes.ResourceExhausted, "at most 2"},
		"known without an app":   {[]*pb.WatchRequest{edit(func(h *pb.Hello) { h.Known = []*pb.Known{{Digest: 1}} })}, codes.InvalidArgument, "known[0]"},
		"no instance id":         {[]*pb.WatchRequest{edit(func(h *pb.Hello) { h.Instance.Id = "" })}, codes.InvalidArgument, "instance id"},
		"a host name":            {[]*pb.WatchRequest{at("localhost:1")}, codes.InvalidArgument, "ip:port"},
		"no port":                {[]*pb.WatchRequest{at("10.0.0.1:0")}, codes.InvalidArgument, "no port"},
		"an unspecified address": {[]*pb.WatchRequest{at("0.0.0.0:1")}, codes.InvalidArgument, "names no host"},
		"one in disguise":        {[]*pb.WatchRequest{at("[::ffff:0.0.0.0]:1")}, codes.InvalidArgument, "names no host"},
		"a multicast address":    {[]*pb.WatchRequest{at("[ff02::1]:1")}, codes.InvalidArgument, "multicast"},
		"the broadcast address":  {[]*pb.WatchRequest{at("255.255.255.255:1")}, codes.InvalidArgument, "broadcast"},
		"an address with a zone": {[]*pb.WatchRequest{at("[2001:db8::1%eth0]:1")}, codes.InvalidArgument, "zone"},
		"calls out of order":     {[]*pb.WatchRequest{edit(func(h *pb.Hello) { h.Instance.Calls = "shop/b,shop/a" })}, codes.InvalidArgument, "calls"},
		"a zone of lines":        {[]*pb.WatchRequest{edit(func(h *pb.Hello) { h.Instance.Zone = "a\nb" })}, codes.InvalidArgument, "can't be printed"},
		"a version of a pattern": {[]*pb.WatchRequest{edit(func(h *pb.Hello) { h.Instance.Version = "2.*" })}, codes.InvalidArgument, "the version has '*'"},
		"a link-local address":   {[]*pb.WatchRequest{at("169.254.169.254:80")}, codes.InvalidArgument, "link-local"},
	} {
		t.Run(what, func(t *testing.T) {
			c := s.dial()
			if test.code == codes.DeadlineExceeded {
				c = hasty.dial()
			}
			for _, req := range test.send {
				_ = c.stream.Send(req) // may come too late, once the first was refused
			}
			if st := c.refused(); st.Code() != test.code || !strings.Contains(st.Message(), test.says) {
				t.Errorf("%v: %s; want %v: %s", st.Code(), st.Message(), test.code, test.says)
			}
		})
	}
	if n := s.topology.Stats().Instances; n != 0 {
		t.Errorf("%d instances stand", n)
	}
}

func TestAStreamThatEndsBeforeItsHello(t *testing.T) {
	s := start(t, stream.Config{HelloTimeout: patience}, "127.0.0.1:0")
	for range 20 {
		c := s.dial()
		if err := c.stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.stream.Recv(); !errors.Is(err, io.EOF) {
			t.Fatalf("the stream ended with %v, want EOF", err)
		}
	}
	s.dial().send(helloOf(orders, "10.0.0.1:50002")).until(func(m *pb.WatchResponse) bool { return m.Revision > 0 })
}

// A client that reads nothing delays neither the service nor other clients. In the end it gets
// the newest view and not all earlier ones.
func TestASlowClientHoldsUpNobody(t *testing.T) {
	callees := make([]catalog.App, 200)
	for i := range callees {
		callees[i] = catalog.App{Namespace: "shop", ID: fmt.Sprintf("callee-%03d", i)}
	}
	s := start(t, stream.Config{StallTimeout: time.Hour}, "127.0.0.1:0", selection(checkout, callees...))
	slow, quick := s.dial().send(helloOf(checkout, "")), s.dial().send(helloOf(checkout, ""))
	quick.recv()
	const rounds = 300
	for n := range rounds {
		change := topology.InstanceChange{Source: "test", Full: true}
		for i, callee := range callees {
			change.Put = append(change.Put, instanceAt(callee, fmt.Sprintf("10.%d.%d.%d:50002", n/250, n%250, i)))
		}
		s.apply(topology.Change{Instances: []topology.InstanceChange{change}})
	}
	last := fmt.Sprintf("[10.%d.%d.0:50002]", (rounds-1)/250, (rounds-1)%250)
	quick.until(says(callees[0], last))
	messages := 0
	slow.until(func(m *pb.WatchResponse) bool {
		messages++
		return says(callees[0], last)(m)
	})
	if messages > rounds/2 {
		t.Errorf("the slow client was sent %d of %d revisions", messages, rounds)
	}
}

func TestAServiceThatStopsTellsItsClients(t *testing.T) {
	s := start(t, stream.Config{}, "127.0.0.1:0")
	c := s.dial().send(helloOf(checkout, "10.0.0.1:50002"))
	c.recv()
	s.stop()
	if st := c.refused(); st.Code() != codes.Unavailable {
		t.Errorf("ended with %v", st)
	}
}

func TestResolveExplains(t *testing.T) {
	s := start(t, stream.Config{}, "127.0.0.1:0", selection(checkout, orders))
	s.instances(orders, "10.0.0.1:50002")
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ask := func(caller, app *pb.App) (*pb.Decision, error) {
		return pb.NewResolverClient(conn).Resolve(context.Background(), &pb.ResolveRequest{Caller: caller, App: app})
	}
	d, err := ask(wire.App(checkout), wire.App(orders))
	if err != nil || d.Outcome != "ok" || d.Address != "10.0.0.1:50002" || len(d.Routes) != 1 || d.Revision == 0 {
		t.Errorf("decided %v, %v", d, err)
	}
	if d, err := ask(wire.App(checkout), wire.App(ledger)); err != nil || d.Outcome != "denied" || d.Address != "" {
		t.Errorf("decided %v, %v", d, err)
	}
	for _, bad := range [][2]*pb.App{{nil, wire.App(orders)}, {wire.App(checkout), nil}} {
		if _, err := ask(bad[0], bad[1]); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

func TestAViewSaysWhatDecides(t *testing.T) {
	s := start(t, stream.Config{}, "127.0.0.1:0", selection(checkout, orders))
	for app, want := range map[catalog.App]string{checkout: "AppEndpoints shop/checkout", orders: catalog.DefaultRule} {
		c := s.dial().send(helloOf(app, ""))
		if got := c.recv().Rule; got != want {
			t.Errorf("the first view of %s: %q decides, want %q", app, got, want)
		}
		s.instances(orders, "10.0.0.1:50002")
		if got := c.recv().Rule; got != want {
			t.Errorf("the next view of %s: %q decides, want %q", app, got, want)
		}
		s.instances(orders)
	}
}
