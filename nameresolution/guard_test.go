package nameresolution_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
	"github.com/isthmus-mesh/isthmus/nameresolution"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// guarded is a replica of a cluster whose apps call nothing without a selection.
func guarded(t testing.TB, address string, mode catalog.GuardMode, cfg stream.Config) *service {
	t.Helper()
	return serveIn(t, address, cfg, topology.Config{Cluster: "west", Domain: catalog.DefaultDomain, Guard: mode, SelectionIsConsent: true})
}

func free(t testing.TB) string {
	t.Helper()
	port, err := sandbox.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

func (s *service) declares(caller catalog.App, callees ...catalog.App) {
	s.t.Helper()
	o := &catalog.AppEndpoints{App: caller}
	for _, callee := range callees {
		o.Endpoints = append(o.Endpoints, catalog.Endpoint{App: callee})
	}
	s.apply(topology.Change{Objects: &topology.ObjectChange{Put: []catalog.Object{o}}})
}

// call is a call of an app at a sidecar's guard.
func call(r *nameresolution.Resolver, caller catalog.App) error {
	return r.Guard().Caller(catalog.Principal{Domain: "west.example", App: caller}).Admit(context.Background())
}

func outcome(t testing.TB, err error) catalog.Outcome {
	t.Helper()
	if err == nil {
		return catalog.OK
	}
	var refusal *catalog.Refusal
	if !errors.As(err, &refusal) {
		t.Fatalf("%v is no refusal", err)
	}
	return refusal.Outcome
}

// becomes waits until calls of a caller end so.
func becomes(t testing.TB, r *nameresolution.Resolver, caller catalog.App, want catalog.Outcome) {
	t.Helper()
	await(t, caller.String()+" is "+want.String(), func() bool { return outcome(t, call(r, caller)) == want })
}

func TestOnlyDeclaredCallersAreLetIn(t *testing.T) {
	s := guarded(t, free(t), catalog.GuardEnforce, stream.Config{})
	r := sidecar(t, ledger, 50002, s.address)
	becomes(t, r, checkout, catalog.Denied)
	err := call(r, checkout)
	for _, part := range []string{"shop/checkout", "finance/ledger", "AppEndpoints", "cluster west"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	s.declares(checkout, ledger)
	s.declares(orders, checkout)
	becomes(t, r, checkout, catalog.OK)
	if got := outcome(t, call(r, orders)); got != catalog.Denied {
		t.Errorf("orders, which selects another app, is %v", got)
	}
	if err := call(r, ledger); err != nil {
		t.Errorf("the app itself: %v", err)
	}
	if got := outcome(t, r.Guard().Unknown().Admit(t.Context())); got != catalog.Denied {
		t.Errorf("a caller without a name is %v", got)
	}
	s.declares(checkout, orders)
	becomes(t, r, checkout, catalog.Denied)
	counted := map[catalog.App]nameresolution.Calls{}
	for _, c := range r.Guard().Calls() {
		counted[c.App] = c
	}
	if c := counted[checkout].Count; c[nameresolution.LetIn] == 0 || c[nameresolution.Refused] == 0 || c[nameresolution.Observed] > 0 {
		t.Errorf("calls of checkout: %v", c)
	}
	if c := counted[orders].Count; c[nameresolution.LetIn] != 0 || c[nameresolution.Refused] != 1 {
		t.Errorf("calls of orders: %v", c)
	}
}

// TestACallerOfAnotherNamespaceNeedsConsent has a tenant select an app of another namespace: that alone
// opens nothing.
func TestACallerOfAnotherNamespaceNeedsConsent(t *testing.T) {
	s := serveIn(t, free(t), stream.Config{}, topology.Config{Cluster: "west", Domain: catalog.DefaultDomain, Guard: catalog.GuardEnforce})
	r := sidecar(t, ledger, 50002, s.address)
	invoices := catalog.App{Namespace: ledger.Namespace, ID: "invoices"}
	s.declares(checkout, ledger)
	s.declares(invoices, ledger)
	becomes(t, r, invoices, catalog.OK)
	err := call(r, checkout)
	if outcome(t, err) != catalog.Denied {
		t.Fatalf("by its own selection alone, checkout gets %v", err)
	}
	for _, part := range []string{"{cluster: local, namespace: shop, app: checkout} in spec.allow of the AppExport finance/ledger", "AppEndpoints", "cluster west"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	s.apply(topology.Change{Objects: &topology.ObjectChange{Put: []catalog.Object{
		&catalog.AppExport{App: ledger, Allow: []catalog.Allow{{Cluster: catalog.LocalCluster, Namespace: "shop"}}},
	}}})
	becomes(t, r, checkout, catalog.OK)
	if got := outcome(t, call(r, orders)); got != catalog.Denied {
		t.Errorf("orders, which has consent and selects nothing, is %v", got)
	}
}

func TestAnObservingGuardLetsEverybodyInAndCounts(t *testing.T) {
	s := guarded(t, free(t), catalog.GuardObserve, stream.Config{})
	r := sidecar(t, ledger, 50002, s.address)
	for range 3 {
		if err := call(r, checkout); err != nil {
			t.Fatal(err)
		}
	}
	s.declares(orders, ledger)
	await(t, "orders is let in", func() bool {
		if err := call(r, orders); err != nil {
			t.Fatal(err)
		}
		for _, c := range r.Guard().Calls() {
			if c.App == orders && c.Count[nameresolution.LetIn] > 0 {
				return true
			}
		}
		return false
	})
	for _, c := range r.Guard().Calls() {
		if c.App == checkout && (c.Count[nameresolution.Observed] != 3 || c.Cluster != catalog.LocalCluster) {
			t.Errorf("got %+v", c)
		}
	}
}

func TestAnAppsOwnModeComesFirst(t *testing.T) {
	s := guarded(t, free(t), catalog.GuardObserve, stream.Config{})
	strict := sidecarWith(t, ledger, 50002, map[string]any{"resolver": s.address, "guard": "enforce"})
	becomes(t, strict, checkout, catalog.Denied)
	hard := guarded(t, free(t), catalog.GuardEnforce, stream.Config{})
	lax := sidecarWith(t, ledger, 50003, map[string]any{"resolver": hard.address, "guard": "off"})
	finds(t, lax, ledger, "127.0.0.1:50003")
	if err := call(lax, checkout); err != nil {
		t.Error(err)
	}
}

func TestWhoMayCallIsKnownOverARestart(t *testing.T) {
	s := guarded(t, free(t), catalog.GuardEnforce, stream.Config{})
	s.declares(checkout, ledger)
	with := map[string]any{"resolver": s.address, "lastGood": filepath.Join(t.TempDir(), "ledger.view"), "resolveTimeout": "50ms"}
	r := sidecarWith(t, ledger, 50002, with)
	becomes(t, r, checkout, catalog.OK)
	s.stop()
	if got := outcome(t, call(r, orders)); got != catalog.Denied {
		t.Errorf("while the service is away, orders is %v", got)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	again := sidecarWith(t, ledger, 50002, with)
	if err := call(again, checkout); err != nil {
		t.Error(err)
	}
	if got := outcome(t, call(again, orders)); got != catalog.Denied {
		t.Errorf("after the restart, orders is %v", got)
	}
	delete(with, "lastGood")
	if got := outcome(t, call(sidecarWith(t, ledger, 50003, with), checkout)); got != catalog.NotReady {
		t.Errorf("without a file, checkout is %v", got)
	}
}

// TestWhoMayCallSurvivesAServiceThatStarts has a service come back that does not know yet what
// runs, while calls go on.
func TestWhoMayCallSurvivesAServiceThatStarts(t *testing.T) {
	open := topology.Config{Cluster: "west", Domain: catalog.DefaultDomain, Open: true, Guard: catalog.GuardEnforce, SelectionIsConsent: true}
	s := serveIn(t, free(t), stream.Config{}, open)
	r := sidecar(t, ledger, 50002, s.address)
	becomes(t, r, checkout, catalog.Denied) // it does not run
	becomes(t, r, orders, catalog.OK)       // which runs, without a selection
	s.stop()
	settled := make(chan struct{})
	after := serveIn(t, s.address, stream.Config{Settled: settled}, open)
	after.apply(topology.Change{Instances: []topology.InstanceChange{{Source: "test " + orders.String(), Full: true}}})
	other := sidecar(t, catalog.App{Namespace: "shop", ID: "stock"}, 50005, after.address)
	becomes(t, other, orders, catalog.NotReady)
	for range 100 {
		if err := call(r, orders); err != nil {
			t.Fatalf("a call while the service learns what runs: %v", err)
		}
		time.Sleep(time.Millisecond)
	}
	close(settled)
	becomes(t, r, orders, catalog.Denied)
	becomes(t, other, orders, catalog.Denied)
	after.has(orders, "10.0.0.1:50002")
	becomes(t, r, orders, catalog.OK)
}

// former is a service from before there were guards.
type former struct{ pb.UnimplementedResolverServer }

func (former) Watch(stream grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if err := stream.Send(&pb.WatchResponse{Revision: 1, Rule: "a rule"}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func TestAnOldServiceTellsNothingOfCallers(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	pb.RegisterResolverServer(g, former{})
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(listener) }()
	t.Cleanup(func() { g.Stop(); <-ended })
	if err := call(sidecar(t, ledger, 50002, listener.Addr().String()), checkout); err != nil {
		t.Error(err)
	}
	strict := sidecarWith(t, ledger, 50003, map[string]any{"resolver": listener.Addr().String(), "guard": "enforce"})
	if err := call(strict, checkout); outcome(t, err) != catalog.NotReady || !strings.Contains(err.Error(), "upgrade") {
		t.Errorf("an app that enforces: %v", err)
	}
}

func TestEnforcingWantsMTLS(t *testing.T) {
	r := nameresolution.New(nameresolution.Options{Logger: quiet, PlainText: true})
	err := r.Init(t.Context(), map[string]any{
		"cluster": "west", "identity": map[string]any{"insecure": true}, "resolver": "127.0.0.1:1", "guard": "enforce",
	}, nameresolution.Instance{App: ledger, Address: "127.0.0.1", Port: 50002})
	if err == nil || !strings.Contains(err.Error(), "mTLS") {
		t.Errorf("got %v", err)
	}
}

func TestACallThatIsLetInCostsNoAllocation(t *testing.T) {
	s := guarded(t, free(t), catalog.GuardEnforce, stream.Config{})
	s.declares(checkout, ledger)
	r := sidecar(t, ledger, 50002, s.address)
	becomes(t, r, checkout, catalog.OK)
	caller := r.Guard().Caller(catalog.Principal{Domain: "west.example", App: checkout})
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}}))
	if n := testing.AllocsPerRun(1000, func() {
		_ = caller.Admit(ctx)
		caller.Ended(ctx, traffic.OK, "", time.Millisecond)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkEnforcing is one changed selection until the last of 100 sidecars of the callee enforces
// it, in milliseconds, over a real service on loopback.
func BenchmarkEnforcing(b *testing.B) {
	const sidecars = 100
	s := guarded(b, free(b), catalog.GuardEnforce, stream.Config{MaxInstances: sidecars})
	all := make([]*nameresolution.Caller, sidecars)
	for i := range all {
		r := sidecar(b, ledger, 51000+i, s.address)
		all[i] = r.Guard().Caller(catalog.Principal{Domain: "west.example", App: checkout})
		becomes(b, r, checkout, catalog.Denied)
	}
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		callees := [][]catalog.App{{ledger}, {orders}}[i%2]
		began := time.Now()
		s.declares(checkout, callees...)
		for _, c := range all {
			for (c.Admit(b.Context()) == nil) != (i%2 == 0) {
				time.Sleep(50 * time.Microsecond)
			}
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(0, "ns/op")
}
