package resolverservice

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
	"github.com/isthmus-mesh/isthmus/nameresolution"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// countingSidecar is a sidecar that has made calls to orders in west.
type countingSidecar struct {
	*nameresolution.Resolver
	traffic.Counter
	underWay atomic.Uint64
}

func countingAt(t *testing.T, ca *identitytest.CA, app catalog.App, port int, resolver string) *countingSidecar {
	t.Helper()
	s := &countingSidecar{}
	s.Resolver = nameresolution.New(nameresolution.Options{Logger: slog.New(slog.DiscardHandler), Made: func() []nameresolution.Made {
		counts := s.Read()
		if counts.All() == 0 {
			return nil
		}
		return []nameresolution.Made{{App: orders, Cluster: "west", Counts: counts, UnderWay: s.underWay.Load(), Code: "Internal"}}
	}})
	f := ca.Config(app).Files
	err := s.Init(t.Context(), map[string]any{
		"resolver": resolver, "cluster": "west", "identity": map[string]any{"files": map[string]any{"cert": f.Cert, "key": f.Key, "ca": f.CA}},
	}, nameresolution.Instance{App: app, Address: "127.0.0.1", Port: port})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func (s *countingSidecar) calls(n int, end traffic.End, took time.Duration) {
	for range n {
		s.Add(end, took)
	}
}

// clients are of one replica.
func (p *replicaProcess) clients() (v1alpha1.InventoryClient, v1alpha1.StatusClient) {
	p.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+p.resolver, grpc.WithTransportCredentials(p.credentials(identity.CLIApp(""))))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { conn.Close() })
	return v1alpha1.NewInventoryClient(conn), v1alpha1.NewStatusClient(conn)
}

// traffic is what a replica answers of the last 15 minutes.
func (p *replicaProcess) traffic(inventory v1alpha1.InventoryClient) *v1alpha1.TrafficResponse {
	p.t.Helper()
	stream, err := inventory.Traffic(p.t.Context(), &v1alpha1.TrafficRequest{WindowMs: uint64((15 * time.Minute).Milliseconds()), StepMs: uint64(time.Minute.Milliseconds())})
	if err != nil {
		p.t.Fatal(err)
	}
	answer, err := stream.Recv() // it has few edges
	if err != nil {
		p.t.Fatal(err)
	}
	return answer
}

// told is the one edge from checkout to orders, with the sum of its steps.
func told(t *testing.T, m *v1alpha1.TrafficResponse) (all, steps traffic.Counts, underWay uint64) {
	t.Helper()
	if len(m.GetEdges()) > 1 {
		t.Fatalf("more than one edge: %v", m.GetEdges())
	}
	for _, e := range m.GetEdges() {
		if e.GetByCallee() {
			t.Fatalf("the guard's counts beside those of the caller: %v", e)
		}
		var err error
		if all, err = traffic.FromWire(e.GetTraffic()); err != nil {
			t.Fatal(err)
		}
		for _, s := range e.GetSteps() {
			c, err := traffic.FromWire(s)
			if err != nil {
				t.Fatal(err)
			}
			steps.Add(&c)
		}
		underWay = e.GetUnderWay()
	}
	return all, steps, underWay
}

// twoReplicas are of west, and know each other.
func twoReplicas(t *testing.T, ca *identitytest.CA) (a, b *replicaProcess) {
	t.Helper()
	etcd := serverstest.Start(t, servers.StartEtcd, servers.EtcdOptions{})
	a, b = newReplica(t, "west", "a", etcd.Addr(), ""), newReplica(t, "west", "b", etcd.Addr(), "")
	for _, p := range []*replicaProcess{a, b} {
		p.certify("west", ca)
		text, err := os.ReadFile(p.config)
		if err == nil {
			name := fmt.Sprintf("{name: %s", p.name)
			err = os.WriteFile(p.config, []byte(strings.Replace(string(text), name, fmt.Sprintf("%s, addresses: ['%s', '%s']", name, a.resolver, b.resolver), 1)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		p.start()
	}
	return a, b
}

// TestCallsAreThoseOfAllReplicas has sidecars of one app at both replicas, of which one moves, and guards
// that see the same calls. Each replica answers with all calls, once each. Without the other one it
// says so.
func TestCallsAreThoseOfAllReplicas(t *testing.T) {
	t.Parallel()
	ca := identitytest.NewCA(t)
	a, b := twoReplicas(t, ca)
	replicas := []*replicaProcess{a, b}
	a.apply(selectsOrders)
	atA, statusOfA := a.clients()
	atB, _ := b.clients()
	var ways []*way // to a and b for the sidecar that moves
	var addresses []string
	for _, p := range replicas {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		w := &way{Listener: l, targets: []string{p.resolver}, ended: make(chan struct{})}
		w.conns.Go(w.run)
		ways, addresses = append(ways, w), append(addresses, l.Addr().String())
	}
	one, other := countingAt(t, ca, checkout, 50001, a.resolver), countingAt(t, ca, checkout, 50002, b.resolver)
	moves := countingAt(t, ca, checkout, 50003, strings.Join(addresses, ", "))
	callees := []*countingSidecar{countingAt(t, ca, orders, 50004, a.resolver), countingAt(t, ca, orders, 50005, b.resolver)}

	one.calls(100, traffic.OK, 10*time.Millisecond)
	one.underWay.Store(1)
	other.calls(50, traffic.OK, 100*time.Millisecond)
	other.calls(10, traffic.AppError, time.Second)
	other.underWay.Store(2)
	moves.calls(40, traffic.OK, 20*time.Millisecond)
	moves.underWay.Store(4)
	var seen uint64
	for i, c := range callees {
		who := c.Guard().Caller(catalog.Principal{Domain: identitytest.TrustDomain, App: checkout})
		for range 5 + i {
			if err := who.Admit(t.Context()); err != nil {
				t.Fatal(err)
			}
			who.Ended(t.Context(), traffic.OK, "", time.Millisecond)
			seen++
		}
	}
	sum := func() (want traffic.Counts) {
		for _, s := range []*countingSidecar{one, other, moves} {
			c := s.Read()
			want.Add(&c)
		}
		want.Micros = 0 // which the history does not have
		return want
	}
	agree := func(what string, want traffic.Counts) {
		t.Helper()
		for p, inventory := range map[*replicaProcess]v1alpha1.InventoryClient{a: atA, b: atB} {
			var all, steps traffic.Counts
			var underWay uint64
			var m *v1alpha1.TrafficResponse
			defer func() {
				if t.Failed() {
					t.Logf("%s: %s has %d calls, %d by steps, %d under way, lacks %v; want %d", what, p.name, all.Calls(), steps.Calls(), underWay, m.GetMissing(), want.Calls())
				}
			}()
			serverstest.Await(t, what, func() bool {
				m = p.traffic(inventory)
				if all, steps, underWay = told(t, m); all.Calls() > want.Calls() {
					t.Fatalf("%s: %d calls, more than the %d that were made", what, all.Calls(), want.Calls())
				}
				return all == want && steps == want && underWay == 7 && len(m.GetMissing()) == 0
			})
		}
	}
	agree("both replicas have the calls of all sidecars", sum())
	serverstest.Await(t, "a tells of a fault that b alone knows", func() bool {
		s, err := statusOfA.Status(t.Context(), &v1alpha1.StatusRequest{})
		return err == nil && slices.ContainsFunc(s.GetCallFaults(), func(f *v1alpha1.CallFault) bool {
			return f.GetCheck() == "calls-failed" && f.GetCaller().GetId() == "checkout" && f.GetCalls() == 10
		})
	})
	for p, inventory := range map[*replicaProcess]v1alpha1.InventoryClient{a: atA, b: atB} {
		serverstest.Await(t, p.name+" has what both guards have seen", func() bool {
			stream, err := inventory.Calls(t.Context(), &v1alpha1.CallsRequest{Callee: &v1alpha1.App{Namespace: orders.Namespace, Id: orders.ID}, Seen: true})
			var n uint64
			for err == nil {
				var m *v1alpha1.CallsResponse
				m, err = stream.Recv()
				for _, callee := range m.GetCallees() {
					for _, c := range callee.GetCallers() {
						n += c.GetCalls().GetLetIn() + c.GetCalls().GetObserved()
					}
				}
			}
			if !errors.Is(err, io.EOF) || n > seen {
				t.Fatalf("%d calls of %d, %v", n, seen, err)
			}
			return n == seen
		})
	}

	// The sidecar goes to the other replica, which does not have its calls of before.
	moved := 0
	for i, inventory := range []v1alpha1.InventoryClient{atA, atB} {
		stream, err := inventory.Sidecars(t.Context(), &v1alpha1.SidecarsRequest{Id: checkout.ID})
		if err != nil {
			t.Fatal(err)
		}
		if m, err := stream.Recv(); err == nil && m.GetMatched() == 2 {
			ways[i].end()
			defer ways[1-i].end()
			moved++
		}
	}
	if moved != 1 {
		t.Fatalf("%d replicas have two sidecars of checkout", moved)
	}
	moves.calls(60, traffic.Late, 6*time.Second)
	agree("a sidecar that has moved counts once", sum())

	b.end(syscall.SIGKILL)
	serverstest.Await(t, "a says that it lacks b", func() bool {
		m := a.traffic(atA)
		all, _, _ := told(t, m)
		want := sum()
		if all.Calls() >= want.Calls() {
			t.Fatalf("%d calls of %d without b", all.Calls(), want.Calls())
		}
		s, err := statusOfA.Status(t.Context(), &v1alpha1.StatusRequest{})
		return all.Calls() >= 100 && len(m.GetMissing()) == 1 && m.GetMissing()[0].GetAddress() == b.resolver && err == nil && len(s.GetMissingReplicas()) == 1
	})
	b.start()
	serverstest.Await(t, "a has b again", func() bool { return len(a.traffic(atA).GetMissing()) == 0 })
}
