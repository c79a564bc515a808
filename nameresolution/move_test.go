package nameresolution_test

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/nameresolution"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

var (
	checkout = catalog.App{Namespace: "shop", ID: "checkout"}
	orders   = catalog.App{Namespace: "shop", ID: "orders"}
	ledger   = catalog.App{Namespace: "finance", ID: "ledger"}
	quiet    = slog.New(slog.NewTextHandler(io.Discard, nil))
)

// service is one replica of a resolver service, on loopback.
type service struct {
	t        testing.TB
	topology *topology.Topology
	address  string
	metrics  *prometheus.Registry
	stop     func()
}

// serve runs a replica at an address that nobody else is given while it is away.
func serve(t testing.TB) *service {
	t.Helper()
	port, err := sandbox.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return serveAt(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}

// serveAt runs a replica. It knows an instance of orders, as from a source that all
// replicas share.
func serveAt(t testing.TB, address string) *service {
	t.Helper()
	return serveWith(t, address, stream.Config{})
}

func serveWith(t testing.TB, address string, cfg stream.Config) *service {
	t.Helper()
	return serveIn(t, address, cfg, topology.Config{Cluster: "west", Domain: catalog.DefaultDomain, Open: true})
}

func serveIn(t testing.TB, address string, cfg stream.Config, in topology.Config) *service {
	t.Helper()
	s := &service{t: t, topology: topology.New(in, quiet), metrics: prometheus.NewRegistry()}
	server, err := stream.New(cfg, s.topology, s.metrics, quiet)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s.address = listener.Addr().String()
	g := grpc.NewServer(stream.ServerOptions()...)
	pb.RegisterResolverServer(g, server)
	ctx, end := context.WithCancel(context.Background())
	below, endBelow := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	check := func(err error) {
		if err != nil {
			t.Errorf("replica %s: %v", s.address, err)
		}
	}
	parts.Go(func() { check(s.topology.Run(below)) })
	parts.Go(func() { check(g.Serve(listener)) })
	parts.Go(func() { check(server.Run(ctx)); g.Stop(); endBelow() })
	s.stop = sync.OnceFunc(func() { end(); parts.Wait() })
	t.Cleanup(s.stop)
	if err := server.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.apply(topology.Change{Objects: &topology.ObjectChange{Full: true}})
	s.has(orders, "10.0.0.1:50002")
	return s
}

func (s *service) apply(c topology.Change) {
	s.t.Helper()
	if _, err := s.topology.Apply(s.t.Context(), c); err != nil {
		s.t.Fatal(err)
	}
}

// has makes an app's instances those.
func (s *service) has(app catalog.App, addresses ...string) {
	s.t.Helper()
	change := topology.InstanceChange{Source: "test " + app.String(), Full: true}
	for _, a := range addresses {
		change.Put = append(change.Put, catalog.Instance{ID: a, App: app, Address: netip.MustParseAddrPort(a)})
	}
	s.apply(topology.Change{Instances: []topology.InstanceChange{change}})
}

// sidecar is the component as daprd has it, following these replicas.
func sidecar(t testing.TB, app catalog.App, port int, replicas ...string) *nameresolution.Resolver {
	t.Helper()
	return sidecarWith(t, app, port, map[string]any{"resolver": strings.Join(replicas, ", ")})
}

// sidecarWith is a sidecar with more in its configuration.
func sidecarWith(t testing.TB, app catalog.App, port int, with map[string]any) *nameresolution.Resolver {
	t.Helper()
	r := nameresolution.New(nameresolution.Options{Logger: quiet})
	configuration := map[string]any{"cluster": "west", "identity": map[string]any{"insecure": true}, "resolveTimeout": "20s"}
	maps.Copy(configuration, with)
	err := r.Init(t.Context(), configuration, nameresolution.Instance{App: app, Address: "127.0.0.1", Port: port})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return r
}

// finds waits until a lookup answers want, and says how long that took.
func finds(t testing.TB, r *nameresolution.Resolver, app catalog.App, want string) time.Duration {
	t.Helper()
	began := time.Now()
	var got string
	var err error
	for time.Since(began) < time.Minute {
		if got, err = r.ResolveID(t.Context(), app); got == want {
			return time.Since(began)
		}
		time.Sleep(200 * time.Microsecond)
	}
	t.Fatalf("%s is %q, %v; want %s", app, got, err, want)
	return 0
}

// lookups looks an app up all the time, and wants the same answer each time and no
// revision to go backwards.
func lookups(t *testing.T, r *nameresolution.Resolver, app catalog.App, want string) (end func() int) {
	stop, count, done := make(chan struct{}), 0, make(chan struct{})
	go func() {
		defer close(done)
		var last uint64
		for ; ; count++ {
			select {
			case <-stop:
				return
			default:
			}
			if got, err := r.ResolveID(context.Background(), app); err != nil || got != want {
				t.Errorf("lookup %d of %s: %q, %v; want %s", count, app, got, err, want)
				return
			}
			revision := r.Explain(context.Background(), app).Revision
			if revision < last {
				t.Errorf("lookup %d: revision %d after %d", count, revision, last)
				return
			}
			last = revision
			time.Sleep(100 * time.Microsecond)
		}
	}()
	return func() int { close(stop); <-done; return count }
}

// All replicas are started anew, one by one, again and again.
func TestARollingRestartOfReplicasFailsNoLookup(t *testing.T) {
	replicas := make([]*service, 3)
	var addresses []string
	for i := range replicas {
		replicas[i] = serve(t)
		addresses = append(addresses, replicas[i].address)
	}
	c := sidecar(t, checkout, 50001, addresses...)
	finds(t, c, orders, "10.0.0.1:50002")
	end := lookups(t, c, orders, "10.0.0.1:50002")
	var moves []time.Duration
	for turn := range 12 {
		i := turn % len(replicas)
		replicas[i].stop()
		began := time.Now()
		for _, s := range replicas { // seen wherever the sidecar is by now
			if s != replicas[i] {
				s.has(ledger, netip.AddrPortFrom(netip.MustParseAddr("10.9.9.9"), uint16(turn+1)).String())
			}
		}
		finds(t, c, ledger, netip.AddrPortFrom(netip.MustParseAddr("10.9.9.9"), uint16(turn+1)).String())
		moves = append(moves, time.Since(began))
		replicas[i] = serveAt(t, addresses[i])
		replicas[i].has(ledger, netip.AddrPortFrom(netip.MustParseAddr("10.9.9.9"), uint16(turn+1)).String())
	}
	count := end()
	slices.Sort(moves)
	t.Logf("%d lookups, none failed; after the end of a replica, news from another after %s (median), %s (longest)",
		count, moves[len(moves)/2].Round(time.Microsecond), moves[len(moves)-1].Round(time.Microsecond))
}

// A replica that takes connections and says nothing is left for another.
func TestAReplicaThatHangsIsLeft(t *testing.T) {
	hung, err := net.Listen("tcp", "127.0.0.1:0") // the kernel takes connections, and nobody reads
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hung.Close() }()
	s := serve(t)
	var longest time.Duration
	for range 4 { // which of them is first is a matter of chance
		c := sidecar(t, checkout, 50001, hung.Addr().String(), s.address)
		longest = max(longest, finds(t, c, orders, "10.0.0.1:50002"))
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("the longest first lookup took %s", longest.Round(time.Millisecond))
}

// The replica to which it drains goes away, and another takes it from there.
func TestADrainGoesOnAtAnotherReplica(t *testing.T) {
	first := serve(t)
	other := serve(t)
	address := other.address
	other.stop()
	o := sidecar(t, ledger, 50003, first.address, address)
	finds(t, o, orders, "10.0.0.1:50002")
	if d := first.topology.Resolve(checkout, ledger); d.Address != "127.0.0.1:50003" {
		t.Fatalf("before the move: %+v", d)
	}
	first.stop()
	drained := make(chan error, 1)
	go func() { drained <- o.Drain(t.Context()) }()
	time.Sleep(50 * time.Millisecond) // not for correctness: so that it is asked for in between
	other = serveAt(t, address)
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
	if d := other.topology.Resolve(checkout, ledger); d.Address != "" {
		t.Errorf("after the drain it is still there: %+v", d)
	}
}

// Many sidecars spread over the replicas, and again when one is lost.
func TestSidecarsSpreadOverReplicas(t *testing.T) {
	replicas := []*service{serve(t), serve(t), serve(t)}
	var addresses []string
	for _, s := range replicas {
		addresses = append(addresses, s.address)
	}
	const sidecars = 60
	for i := range sidecars {
		sidecar(t, ledger, 51000+i, addresses...)
	}
	at := func(s *service) int { return registered(s, sidecars) }
	await(t, "all sidecars are registered", func() bool { return at(replicas[0])+at(replicas[1])+at(replicas[2]) == sidecars })
	t.Logf("%d sidecars: %d, %d and %d", sidecars, at(replicas[0]), at(replicas[1]), at(replicas[2]))
	for _, s := range replicas {
		if n := at(s); n < sidecars/3/3 {
			t.Errorf("a replica has %d of %d sidecars", n, sidecars)
		}
	}
	replicas[0].stop()
	await(t, "all sidecars have moved", func() bool { return at(replicas[1])+at(replicas[2]) == sidecars })
	t.Logf("without the first: %d and %d", at(replicas[1]), at(replicas[2]))
	for _, s := range replicas[1:] {
		if n := at(s); n < sidecars/2/2 {
			t.Errorf("a replica has %d of %d sidecars after the move", n, sidecars)
		}
	}
}

// registered counts the instances of ledger that a replica knows.
func registered(s *service, most int) int {
	seen := map[string]bool{}
	for range 20 * most {
		if d := s.topology.Resolve(checkout, ledger); d.Address != "" {
			seen[d.Address] = true
		}
	}
	return len(seen)
}

func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after a minute, still not: %s", what)
		}
	}
}

// TestASidecarThatKnowsTooMuchStartsAfresh has a service come back that takes no hello with as
// much as the sidecar knows.
func TestASidecarThatKnowsTooMuchStartsAfresh(t *testing.T) {
	before := serve(t)
	before.has(ledger, "10.0.0.7:50002")
	r := sidecar(t, checkout, 50002, before.address)
	finds(t, r, orders, "10.0.0.1:50002")
	finds(t, r, ledger, "10.0.0.7:50002")
	before.stop()
	after := serveWith(t, before.address, stream.Config{MaxKnown: 1})
	after.has(orders, "10.0.0.2:50002")
	finds(t, r, orders, "10.0.0.2:50002")
	finds(t, r, ledger, "") // which is gone
}
