package stream_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// guarding is a hello of a sidecar that wants to know who may call its app.
func guarding(app catalog.App, digest []byte) *pb.WatchRequest {
	req := helloOf(app, "")
	req.GetHello().Guards, req.GetHello().Access = true, digest
	return req
}

func TestAccessFollowsTheView(t *testing.T) {
	s := start(t, stream.Config{}, "127.0.0.1:0", selection(checkout, orders))
	put := func(o catalog.Object) {
		t.Helper()
		s.apply(topology.Change{Objects: &topology.ObjectChange{Put: []catalog.Object{o}}})
	}
	c := s.dial().send(guarding(orders, nil))
	if first := c.recv(); first.Access != nil || !first.TellsAccess {
		t.Fatalf("first came %v", first)
	}
	var at *catalog.Access
	next := func() *pb.Access {
		t.Helper()
		m := c.recv()
		for m.Access == nil {
			m = c.recv() // of the view
		}
		var err error
		if at, err = wire.ParseAccess(at, m.Access); err != nil || !wire.SameAccess(m.Access.Digest, at) {
			t.Fatalf("%v: %v", m.Access, err)
		}
		return m.Access
	}
	if m := next(); !m.Whole || m.Guard != "observe" || !at.Declared.Has(checkout) {
		t.Fatalf("got %v", m)
	}
	cart := catalog.App{Namespace: orders.Namespace, ID: "cart"}
	put(selection(cart, orders))
	if m := next(); m.Whole || len(m.Declared.GetPut()) != 1 || !at.Declared.Has(cart) {
		t.Errorf("got %v", m)
	}
	put(selection(checkout))
	if m := next(); len(m.Declared.GetRemoved()) != 1 || at.Declared.Has(checkout) {
		t.Errorf("got %v", m)
	}

	t.Run("resumed", func(t *testing.T) {
		c = s.dial().send(guarding(orders, wire.AccessDigest(at)))
		if m := next(); m.Whole || m.Declared != nil || m.RemoteChanged {
			t.Errorf("nothing has changed, and still came %v", m)
		}
		c = s.dial().send(guarding(orders, []byte("another")))
		if m := next(); !m.Whole || len(m.Declared.GetPut()) != 1 {
			t.Errorf("got %v", m)
		}
	})
	t.Run("not asked for", func(t *testing.T) {
		c := s.dial().send(helloOf(checkout, ""))
		c.recv()
		put(selection(checkout, ledger))
		if m := c.recv(); m.Access != nil {
			t.Errorf("got %v", m)
		}
	})
}

func TestCallsThatAreReported(t *testing.T) {
	s := start(t, stream.Config{}, anAddress(t))
	report := func(calls ...*pb.CallCount) *pb.WatchRequest {
		return &pb.WatchRequest{Request: &pb.WatchRequest_Calls{Calls: &pb.CallReport{Calls: calls}}}
	}
	known := &pb.CallCount{Caller: wire.App(checkout), Domain: "west.example", Cluster: "local", LetIn: 3, Observed: 2}
	c := s.dial().send(guarding(orders, nil))
	c.recv()
	c.send(report(known)).send(report(known, &pb.CallCount{Refused: 1, Cluster: "not a cluster"}))
	for end := time.Now().Add(patience); len(s.server.Calls(orders)) < 2 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	all := s.server.Calls(orders)
	slices.SortFunc(all, func(a, b *stream.CallRecord) int { return a.Caller.App.Compare(b.Caller.App) })
	if r := all[1]; r.Caller != (catalog.Principal{Domain: "west.example", App: checkout}) || !r.Own || r.Count.LetIn != 6 || r.Count.Observed != 4 || r.Last.IsZero() {
		t.Errorf("got %+v", r)
	}
	if r := all[0]; r.Caller != (catalog.Principal{}) || r.Own || r.Count.Refused != 1 {
		t.Errorf("got %+v", r)
	}
	if got := s.server.Called(); len(got) != 1 || got[0] != orders {
		t.Errorf("called: %v", got)
	}
	refusals := &pb.CallReport{
		RefusedLookups: []*pb.RefusedLookups{{Outcome: "denied", Count: 4}, {Outcome: "ok", Count: 1}, {Outcome: "no outcome", Count: 1}},
		Calls:          []*pb.CallCount{{Caller: wire.App(checkout), Cluster: "local", Refused: 2}, {Caller: wire.App(ledger), Cluster: "east", NotReady: 5}},
	}
	c.send(&pb.WatchRequest{Request: &pb.WatchRequest_Calls{Calls: refusals}})
	want := map[string]float64{
		"orders by lookup cluster local outcome denied": 4, "checkout by guard cluster local outcome denied": 2,
		"ledger by guard cluster east outcome not ready": 5, " by guard cluster  outcome denied": 1,
	}
	for end := time.Now().Add(patience); !maps.Equal(s.refusedCalls(t), want); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%v, want %v", s.refusedCalls(t), want)
		}
	}
	for what, m := range map[string]*pb.WatchRequest{
		"too many callers": report(make401(known)...),
		"no app":           report(&pb.CallCount{Caller: &pb.App{Id: "a b"}}),
	} {
		bad := s.dial().send(guarding(ledger, nil))
		bad.recv()
		bad.send(m)
		if got := bad.refused().Code(); got != codes.InvalidArgument {
			t.Errorf("%s: ended with %s", what, got)
		}
	}
	if n := len(s.server.Calls(ledger)); n != 0 {
		t.Errorf("%d records of refused reports", n)
	}
}

// refusedCalls are the counters of refused calls.
func (s *service) refusedCalls(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := s.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "isthmus_refused_calls_total" {
				label := map[string]string{}
				for _, l := range m.GetLabel() {
					label[l.GetName()] = l.GetValue()
				}
				found[fmt.Sprintf("%s by %s cluster %s outcome %s", label["caller"], label["by"], label["caller_cluster"], label["outcome"])] = m.GetCounter().GetValue()
			}
		}
	}
	return found
}

func make401(c *pb.CallCount) []*pb.CallCount { return slices.Repeat([]*pb.CallCount{c}, 401) }
