package stream_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/limits/bounded"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	checkout = catalog.App{Namespace: "shop", ID: "checkout"}
	orders   = catalog.App{Namespace: "shop", ID: "orders"}
	ledger   = catalog.App{Namespace: "finance", ID: "ledger"}
	quiet    = slog.New(slog.NewTextHandler(io.Discard, nil))
)

// service is a resolver service of cluster west: a topology, the stream server and a
// gRPC server on loopback.
type service struct {
	t        testing.TB
	topology *topology.Topology
	server   *stream.Server
	grpc     *grpc.Server
	address  string
	listener *bounded.Listener
	metrics  *prometheus.Registry
	end      context.CancelFunc
	ended    chan struct{}
}

// anAddress is a loopback address that stays free while no service has it: outgoing connections
// never get its port.
func anAddress(t testing.TB) string {
	t.Helper()
	port, err := sandbox.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// start runs a service until the test ends or stop is called. Its store has the
// objects given.
func start(t testing.TB, cfg stream.Config, address string, objects ...catalog.Object) *service {
	t.Helper()
	return startWith(t, cfg, address, quiet, nil, objects...)
}

// startAsIs runs a service that takes a stream's source from its connection.
func startAsIs(t testing.TB, cfg stream.Config, address string, objects ...catalog.Object) *service {
	t.Helper()
	return startNow(t, cfg, address, quiet, nil, objects...)
}

func startWith(t testing.TB, cfg stream.Config, address string, log *slog.Logger, opts []grpc.ServerOption, objects ...catalog.Object) *service {
	t.Helper()
	if cfg.Source == nil {
		// Each sidecar here is on a host of its own, and there may be many.
		cfg.Source = func(_ context.Context, claimed netip.Addr) netip.Addr { return claimed }
		cfg.MaxStreams = 1000
	}
	return startNow(t, cfg, address, log, opts, objects...)
}

func startNow(t testing.TB, cfg stream.Config, address string, log *slog.Logger, opts []grpc.ServerOption, objects ...catalog.Object) *service {
	t.Helper()
	s := &service{t: t, metrics: prometheus.NewRegistry(), ended: make(chan struct{})}
	s.topology = topology.New(topology.Config{Cluster: "west", Domain: catalog.DefaultDomain, Open: true, Destinations: cfg.Destinations}, quiet)
	network := "tcp"
	if path, unix := strings.CutPrefix(address, "unix:"); unix {
		network, address = "unix", path
	}
	raw, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	listener := bounded.New(raw, bounded.Bounds{})
	s.listener, cfg.Hangup = listener, listener.Hangup
	if s.server, err = stream.New(cfg, s.topology, s.metrics, log); err != nil {
		t.Fatal(err)
	}
	s.address = listener.Addr().String()
	s.grpc = grpc.NewServer(append(stream.ServerOptions(), opts...)...)
	pb.RegisterResolverServer(s.grpc, s.server)
	s.run(listener)
	if err := s.server.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.apply(topology.Change{Objects: &topology.ObjectChange{Full: true, Put: objects}})
	t.Cleanup(s.stop)
	return s
}

func (s *service) run(listener net.Listener) {
	ctx, end := context.WithCancel(context.Background())
	s.end = end
	below, endBelow := context.WithCancel(context.Background())
	parts := []func() error{
		func() error { return s.topology.Run(below) },
		func() error { return s.grpc.Serve(listener) },
	}
	done := make(chan error, len(parts))
	for _, part := range parts {
		go func() { done <- part() }()
	}
	go func() {
		defer close(s.ended)
		if err := s.server.Run(ctx); err != nil {
			s.t.Errorf("Run: %v", err)
		}
		s.grpc.Stop()
		endBelow()
		for range parts {
			if err := <-done; err != nil {
				s.t.Errorf("ended with %v", err)
			}
		}
	}()
}

func (s *service) stop() {
	s.end()
	<-s.ended
}

func (s *service) apply(c topology.Change) uint64 {
	s.t.Helper()
	revision, err := s.topology.Apply(s.t.Context(), c)
	if err != nil {
		s.t.Fatal(err)
	}
	return revision
}

// instances puts an app's instances in from another source.
func (s *service) instances(app catalog.App, addresses ...string) uint64 {
	s.t.Helper()
	change := topology.InstanceChange{Source: "test " + app.String(), Full: true}
	for _, a := range addresses {
		change.Put = append(change.Put, catalog.Instance{ID: a, App: app, Address: netip.MustParseAddrPort(a)})
	}
	return s.apply(topology.Change{Instances: []topology.InstanceChange{change}})
}

// patience bounds how long a test waits for what must come.
const patience = 2 * time.Minute

// sidecar is a client that speaks the protocol by hand.
type sidecar struct {
	t      testing.TB
	conn   *grpc.ClientConn
	stream grpc.BidiStreamingClient[pb.WatchRequest, pb.WatchResponse]
	end    context.CancelFunc
}

func (s *service) dial() *sidecar {
	s.t.Helper()
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(256<<10), grpc.WithStaticConnWindowSize(256<<10), // as sidecars have them
		grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10))
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, end := context.WithTimeout(context.Background(), patience)
	watch, err := pb.NewResolverClient(conn).Watch(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	c := &sidecar{s.t, conn, watch, end}
	s.t.Cleanup(c.close)
	return c
}

func (c *sidecar) close() {
	c.end()
	_ = c.conn.Close()
}

func (c *sidecar) send(req *pb.WatchRequest) *sidecar {
	c.t.Helper()
	if err := c.stream.Send(req); err != nil {
		c.t.Fatal(err)
	}
	return c
}

func (c *sidecar) recv() *pb.WatchResponse {
	c.t.Helper()
	m, err := c.stream.Recv()
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

// until receives until a message satisfies what.
func (c *sidecar) until(what func(*pb.WatchResponse) bool) *pb.WatchResponse {
	c.t.Helper()
	for {
		if m := c.recv(); what(m) {
			return m
		}
	}
}

// refused receives until the stream ends, and returns the status.
func (c *sidecar) refused() *status.Status {
	for {
		if _, err := c.stream.Recv(); err != nil {
			return status.Convert(err)
		}
	}
}

func helloOf(app catalog.App, instance string) *pb.WatchRequest {
	h := &pb.Hello{App: wire.App(app)}
	if instance != "" {
		h.Instance = &pb.Instance{Id: instance, Address: instance}
	}
	return &pb.WatchRequest{Request: &pb.WatchRequest_Hello{Hello: h}}
}

func drainRequest() *pb.WatchRequest {
	return &pb.WatchRequest{Request: &pb.WatchRequest_Drain{Drain: &pb.Drain{}}}
}

// selection lets an app call others, locally.
func selection(app catalog.App, callees ...catalog.App) *catalog.AppEndpoints {
	s := &catalog.AppEndpoints{App: app}
	for _, callee := range callees {
		s.Endpoints = append(s.Endpoints, catalog.Endpoint{App: callee})
	}
	return s
}

// ready returns the local addresses of an app in a message; absent is true if the message does
// not have the app.
func ready(m *pb.WatchResponse, app catalog.App) (addresses string, absent bool) {
	for _, e := range m.Put {
		if e.App.Id == app.ID && e.App.Namespace == app.Namespace {
			for _, r := range e.Routes {
				if r.Local {
					return fmt.Sprint(r.Addresses), false
				}
			}
			return "[]", false
		}
	}
	return "", true
}

func says(app catalog.App, addresses string) func(*pb.WatchResponse) bool {
	return func(m *pb.WatchResponse) bool {
		got, absent := ready(m, app)
		return !absent && got == addresses
	}
}

func TestAStreamHasTheViewThenDifferences(t *testing.T) {
	s := start(t, stream.Config{}, "127.0.0.1:0", selection(checkout, orders, ledger))
	s.instances(orders, "10.0.0.1:50002")
	c := s.dial().send(helloOf(checkout, "10.0.0.9:50002"))

	whole := c.recv()
	if got, _ := ready(whole, orders); got != "[10.0.0.1:50002]" {
		t.Errorf("orders at %s", got)
	}
	if len(whole.Put) != 3 || whole.Gateways == nil || whole.Open {
		t.Errorf("the first message is not the whole view: %v", whole)
	}
	revision := s.instances(orders, "10.0.0.1:50002", "10.0.0.2:50002")
	next := c.recv()
	if got, _ := ready(next, orders); got != "[10.0.0.1:50002 10.0.0.2:50002]" || len(next.Put) != 1 {
		t.Errorf("the difference is %v", next)
	}
	if next.Revision != revision || next.Revision <= whole.Revision || next.Gateways != nil {
		t.Errorf("revision %d after %d, want %d", next.Revision, whole.Revision, revision)
	}
	s.apply(topology.Change{Objects: &topology.ObjectChange{Put: []catalog.Object{selection(checkout, orders)}}})
	if last := c.recv(); len(last.Removed) != 1 || last.Removed[0].Id != "ledger" || len(last.Put) != 0 {
		t.Errorf("a shorter selection leads to %v", last)
	}
}

func TestAnInstanceStandsAsLongAsItsStream(t *testing.T) {
	s := start(t, stream.Config{Snapshot: filepath.Join(t.TempDir(), "instances.json")}, "127.0.0.1:0", selection(checkout, orders))
	watcher := s.dial().send(helloOf(checkout, ""))
	watcher.recv()
	o := s.dial().send(helloOf(orders, "10.0.0.1:50002"))
	watcher.until(says(orders, "[10.0.0.1:50002]"))
	o.close()
	watcher.until(says(orders, "[]"))
}

func instanceAt(app catalog.App, address string) catalog.Instance {
	return catalog.Instance{ID: address, App: app, Address: netip.MustParseAddrPort(address)}
}
