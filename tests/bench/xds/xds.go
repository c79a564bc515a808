// Package xds measures how soon clients of xDS see that an instance has changed: Isthmus beside
// go-control-plane's LinearCache, each in a process of its own, with the same clients and the same
// services.
package xds

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/xds"
	"github.com/isthmus-mesh/isthmus/resolver-service/limits/bounded"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/tests/bench/harness"
)

// size is one row: clients that follow some services each.
type size struct {
	Services int
	Clients  int
	Each     int // services that a client follows; 0: all
}

func (s size) String() string {
	return strings.Replace(fmt.Sprintf("%d × %d × %d", s.Services, s.Clients, s.Each), "× 0", "× all", 1)
}

// follows are the services that a client follows: its own share, so that each service has about as many
// clients.
func (s size) follows(client int) []int {
	some := make([]int, s.each())
	for i := range some {
		some[i] = (client*len(some) + i) % s.Services
	}
	return some
}

func (s size) each() int {
	if s.Each == 0 {
		return s.Services
	}
	return s.Each
}

// New is the benchmark.
func New(flags *flag.FlagSet) harness.Command {
	services := flags.Int("services", 10_000, "the most services")
	clients := flags.Int("clients", 1_000, "the most clients")
	changes := flags.Int("changes", 50, "changes to measure in a round, which ends after 10 s")
	only := flags.String("only", "", "one row, such as \"1000 × 100 × all\"")
	rounds := flags.Int("rounds", 2, "times that each server is measured, in turns")
	return harness.Command{
		Short: "-services=1000 -clients=10 -changes=3 -rounds=1",
		Roles: map[string]harness.Role{"server": harness.As(server)},
		Run: func(b *harness.B) {
			var all []*harness.Subject
			for _, s := range []int{1_000, 10_000} {
				for _, c := range []int{10, 100, 1_000} {
					for _, each := range []int{20, 0} {
						if size := (size{s, c, each}); s <= *services && c <= *clients && (*only == "" || *only == size.String()) {
							all = append(all, compare(b, size, *changes, *rounds)...)
						}
					}
				}
			}
			harness.Print("One endpoint changes (services × clients × followed by each), delta, plain text; the clients run beside the server on the same cores. In brackets: times that of LinearCache", all, []harness.Column{
				{Head: "last ms p50", Figure: "last", Format: "%.2f", Quantile: .5, Times: 1}, {Head: "p99 ms", Figure: "last", Format: "%.2f", Quantile: .99, Most: 50},
				{Head: "CPU ms", Figure: "cpu", Format: "%.2f", Quantile: .5, Times: 1}, {Head: "heap KiB a stream", Figure: "heap", Format: "%.0f"},
			})
		},
	}
}

// compare measures one size.
func compare(b *harness.B, s size, changes, rounds int) []*harness.Subject {
	linear := &harness.Subject{Name: s.String() + ": LinearCache"}
	ours := &harness.Subject{Name: s.String() + ": Isthmus", Beside: linear, Held: true}
	for round := range rounds {
		for _, subject := range []*harness.Subject{linear, ours} {
			harness.Progress("%s, round %d of %d", subject.Name, round+1, rounds)
			b.Scope(func(b *harness.B) { measure(b, s, subject, changes) })
		}
	}
	return []*harness.Subject{linear, ours}
}

// measure measures one server in a new process.
func measure(b *harness.B, s size, subject *harness.Subject, changes int) {
	child := b.Child("server", argument{subject.Held, s.Services})
	before := harness.Ask[uint64](child, "Heap", nil)
	c := connect(b, harness.Ask[string](child, "Address", nil), s)
	after := harness.Ask[uint64](child, "Heap", nil)
	subject.Add("heap", (float64(after)-float64(before))/1024/float64(s.Clients))
	began := time.Now()
	for n := 0; n <= changes && (n < 3 || time.Since(began) < 10*time.Second); n++ {
		service := n * 37 % min(s.Services, s.Clients*s.each())
		c.expect(service)
		var took time.Duration
		cpu := harness.Spent(child.PID, func() {
			began := harness.Ask[int64](child, "Change", change{service, n})
			took = c.wait(b).Sub(time.Unix(0, began))
		})
		if n > 0 { // the first one warms up
			subject.Took("last", took)
			subject.Took("cpu", cpu)
		}
	}
}

// clients each have a connection of their own.
type clients struct {
	size size

	mu      sync.Mutex
	waiting string // the resource that is to come
	left    int    // clients that lack it
	done    chan time.Time
}

// connect connects the clients, until the end, and waits until they have everything.
func connect(b *harness.B, address string, s size) *clients {
	c := &clients{size: s, done: make(chan time.Time, 1)}
	ready := make(chan struct{}, s.Clients)
	got := func() {
		select {
		case <-ready:
		case <-b.Done():
			harness.Check(context.Cause(b))
		}
	}
	const atOnce = 50 // that get their first responses
	for i := range s.Clients {
		conn := b.Dial(address, nil, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
		if i >= atOnce {
			got()
		}
		b.Go(func(ctx context.Context) error { return c.client(ctx, conn, i, ready) })
	}
	for range min(atOnce, s.Clients) {
		got()
	}
	return c
}

// client follows its services, and says when it has all of them. It returns why its stream ends.
func (c *clients) client(ctx context.Context, conn *grpc.ClientConn, i int, ready chan<- struct{}) error {
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	request := &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: fmt.Sprintf("bench/client-%d", i)}, TypeUrl: endpointType}
	for _, service := range c.size.follows(i) {
		request.ResourceNamesSubscribe = append(request.ResourceNamesSubscribe, name(service))
	}
	for missing := c.size.each(); ; {
		if err := stream.Send(request); err != nil {
			return err
		}
		answer, err := stream.Recv()
		if err != nil {
			return err
		}
		if missing <= 0 {
			c.got(answer.GetResources())
		} else if missing -= len(answer.GetResources()); missing <= 0 {
			ready <- struct{}{}
		}
		request = &discoveryv3.DeltaDiscoveryRequest{TypeUrl: endpointType, ResponseNonce: answer.GetNonce()}
	}
}

// expect has the clients that follow a service wait for its change.
func (c *clients) expect(service int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting, c.left = name(service), 0
	for client := range c.size.Clients {
		if c.size.Each == 0 || slices.Contains(c.size.follows(client), service) {
			c.left++
		}
	}
}

func (c *clients) got(resources []*discoveryv3.Resource) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(resources, func(r *discoveryv3.Resource) bool { return r.GetName() == c.waiting }) {
		if c.left--; c.left == 0 {
			c.done <- now
		}
	}
}

// wait returns when the last client had the change.
func (c *clients) wait(ctx context.Context) (last time.Time) {
	select {
	case last = <-c.done:
	case <-ctx.Done():
		harness.Check(context.Cause(ctx))
	}
	return last
}

// argument is what a server's process needs to know.
type argument struct {
	Isthmus  bool
	Services int
}

// change gives a service one instance, at an address that n makes.
type change struct{ Service, N int }

func (c change) address() netip.AddrPort {
	// No two services ever have the same one: an address is one app's.
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(c.Service >> 8), byte(c.Service), byte(c.N)}), uint16(1024+c.N>>8))
}

const endpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"

func name(service int) string { return harness.App(service).ID + "." + harness.Namespace }

// server is one that is measured.
func server(b *harness.B, a argument) map[string]any {
	l := harness.Listen()
	apply := linear
	if a.Isthmus {
		apply = isthmus
	}
	put := apply(b, l)
	for service := range a.Services {
		put(change{service, 0xffff})
	}
	return map[string]any{
		"Address": l.Addr().String,
		"Heap":    func() uint64 { return harness.Settled().Heap },
		"Change": func(c change) int64 {
			began := time.Now()
			put(c)
			return began.UnixNano()
		},
	}
}

// linear is go-control-plane's cache of one type.
func linear(b *harness.B, l net.Listener) func(change) {
	linear, g := cache.NewLinearCache(endpointType), grpc.NewServer()
	mux := &cache.MuxCache{
		Classify:      func(*cache.Request) string { return endpointType },
		ClassifyDelta: func(*cache.DeltaRequest) string { return endpointType },
		Caches:        map[string]cache.Cache{endpointType: linear},
	}
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, serverv3.NewServer(b, mux, nil))
	b.Serve(g, l)
	return func(c change) {
		at := &corev3.SocketAddress{Address: c.address().Addr().String(), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(c.address().Port())}}
		harness.Check(linear.UpdateResource(name(c.Service), types.Resource(&endpointv3.ClusterLoadAssignment{
			ClusterName: name(c.Service),
			Endpoints: []*endpointv3.LocalityLbEndpoints{{
				Locality: &corev3.Locality{Region: "west"},
				LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
					Hostname: name(c.Service) + ".west.isthmus.internal", Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: at}},
				}}}},
			}},
		})))
	}
}

// isthmus is a topology with the edge for xDS, where every app may call every other.
func isthmus(b *harness.B, l net.Listener) func(change) {
	t := topology.New(topology.Config{Cluster: "west", Domain: catalog.DefaultDomain, Open: true}, harness.Quiet)
	part := harness.Must(xds.Edge(l.Addr().String(), &xds.Settings{}).Build(edge.Host{
		Cluster: edge.Cluster{Name: "west", Domain: catalog.DefaultDomain}, Views: edge.Views{Topology: t},
		Tell: edge.Telling{Metrics: prometheus.NewRegistry(), Log: harness.Quiet, Often: throttle.New(harness.Quiet, time.Second)},
		Listen: edge.Listening{
			Listener: l, Connections: 100_000, Insecure: true, Bound: func(b bounded.Bounds) *bounded.Listener { return bounded.New(l, b) },
			GRPC: func(_ []string, _ identity.Certificate, own ...grpc.ServerOption) *grpc.Server {
				return grpc.NewServer(append(stream.ServerOptions(), own...)...)
			},
		},
	}))
	b.Go(t.Run)
	b.Go(part.Run)
	harness.Apply(b, t, harness.Full(nil, nil))
	return func(c change) {
		harness.Apply(b, t, harness.Put(catalog.Instance{App: harness.App(c.Service), ID: "one", Address: c.address()}))
	}
}
