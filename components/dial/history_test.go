package dial

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	internalv1 "github.com/isthmus-mesh/isthmus/api/dapr/proto/internals/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	realgateway "github.com/isthmus-mesh/isthmus/resolver-service/edges/gateway"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/stalls"
)

// history is one app in three clusters. A seed decides what happens: which instances and gateways
// are killed, stop, hang and start, and whether views show it at once, late or never.
type history struct {
	*testDialer
	t      *testing.T
	pauses *stalls.Watch
	rand   *rand.Rand
	tls    *tls.Config

	mu        sync.Mutex
	clusters  []*testCluster
	published []publishedView
	paths     map[path]time.Time // that lead to an instance, and since when
	faults    []time.Time        // each may cut calls off
	calls     []*attempt
	steps     []string
}

// testCluster is a cluster with instances of the app, and the caller's route to it.
type testCluster struct {
	name      string
	gateways  []*testGateway
	table     *live.Value[*catalog.GatewayTable]
	known     []string // instances in the gateways' table
	instances []*testInstance

	priority, weight uint32
	ramp             uint8
	state            catalog.RouteState // LeaseExpired, Lapsed or Ready
}

// publishedView is a view, and when callers got it.
type publishedView struct {
	at    time.Time
	leads map[string]bool // addresses of instances
}

// path leads to an instance through a gateway, or directly if that is nil.
type path struct {
	callee  *testInstance
	gateway *testGateway
}

// testGateway is a gateway of a cluster. The second one is behind a proxy that can hang.
type testGateway struct {
	address string // in the view
	behind  string // where it listens
	stop    func() // nil while it does not run
	freezer freezer
	hung    bool
}

// testInstance is an instance of the app. After a restart it is another testInstance.
type testInstance struct {
	internalv1.UnimplementedServiceInvocationServer
	h       *history
	cluster *testCluster
	address string
	server  *grpc.Server
	served  chan struct{}
	freezer freezer
	ctx     context.Context
	exit    context.CancelFunc
	ended   sync.WaitGroup

	// The fields below belong to history.mu.
	hung    bool
	given   atomic.Int64 // calls
	failing atomic.Bool  // it answers every call with Unavailable
}

// stoppable has the sockets of a process that can be stopped and continued, as by SIGSTOP. The
// kernel accepts connections and bytes all the same.
type stoppable struct {
	net.Listener
	callee *testInstance
}

func (l *stoppable) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	l.callee.freezer.wait(l.callee.ctx)
	if err != nil {
		return nil, err
	}
	return &stoppableConn{c, l.callee}, nil
}

type stoppableConn struct {
	net.Conn
	callee *testInstance
}

func (c *stoppableConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.callee.freezer.wait(c.callee.ctx)
	return n, err
}

func (c *stoppableConn) Write(b []byte) (int, error) {
	c.callee.freezer.wait(c.callee.ctx)
	return c.Conn.Write(b)
}

// callKey is the metadata key of a call's index in history.calls.
const callKey = "x-call"

// count records that a call has begun at the instance.
func (c *testInstance) count(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	c.given.Add(1)
	md, _ := metadata.FromIncomingContext(ctx)
	n, err := strconv.Atoi(md.Get(callKey)[0])
	if err != nil {
		return nil, err
	}
	c.h.mu.Lock()
	of := c.h.calls[n]
	of.executions = append(of.executions, execution{time.Now(), c.address})
	c.h.mu.Unlock()
	if c.failing.Load() {
		return nil, status.Error(codes.Unavailable, "not now")
	}
	select {
	case <-time.After(time.Millisecond):
	case <-ctx.Done():
	}
	return next(ctx, req)
}

func (c *testInstance) CallLocal(context.Context, *internalv1.InternalInvokeRequest) (*internalv1.InternalInvokeResponse, error) {
	return &internalv1.InternalInvokeResponse{}, nil
}

func newHistory(t *testing.T, seed uint64, pauses *stalls.Watch) *history {
	r := rand.New(rand.NewPCG(seed, 0))
	h := &history{
		testDialer: newTestDialer(t), t: t, pauses: pauses, rand: r,
		paths: map[path]time.Time{},
		tls:   &tls.Config{Certificates: []tls.Certificate{certificate(t)}, NextProtos: []string{"h2"}},
	}
	h.retry = r.IntN(4) > 0
	h.Use(h)
	for name, gateways := range map[string]int{"east": 2, "north": 1, "west": 0} {
		c := &testCluster{name: name, weight: 1, priority: uint32(r.IntN(3)), table: new(live.Value[*catalog.GatewayTable])}
		for n := range gateways {
			g := &testGateway{behind: deadAddress(t)}
			if g.address = g.behind; n > 0 {
				g.address = g.freezer.proxy(t, g.behind)
			}
			c.gateways = append(c.gateways, g)
		}
		h.clusters = append(h.clusters, c)
	}
	slices.SortFunc(h.clusters, func(a, b *testCluster) int { return len(a.gateways) - len(b.gateways) }) // the order of a map does not follow the seed
	for _, c := range h.clusters {
		for _, g := range c.gateways {
			h.startGateway(c, g)
		}
		for range 1 + r.IntN(3) {
			h.startInstance(c, deadAddress(t))
		}
	}
	h.publish()
	return h
}

func (h *history) note(format string, args ...any) {
	h.steps = append(h.steps, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
}

// startGateway starts a gateway of a cluster.
func (h *history) startGateway(c *testCluster, g *testGateway) {
	lis, err := net.Listen("tcp", g.behind)
	if err != nil {
		h.t.Fatal(err)
	}
	serving, err := realgateway.New(realgateway.Config{Table: c.table, Logger: slog.New(slog.DiscardHandler), DrainTimeout: time.Millisecond})
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- serving.Serve(ctx, lis) }()
	h.note("gateway %s of %s starts", g.address, c.name)
	g.stop = func() {
		cancel()
		if err := <-served; err != nil {
			h.t.Errorf("the gateway at %s ended: %v", g.address, err)
		}
	}
}

// startInstance starts an instance.
func (h *history) startInstance(c *testCluster, address string) {
	lis, err := net.Listen("tcp", address)
	if err != nil {
		h.t.Fatal(err)
	}
	i := &testInstance{h: h, cluster: c, address: address, served: make(chan struct{})}
	i.ctx, i.exit = context.WithCancel(context.Background())
	i.server = grpc.NewServer(grpc.Creds(credentials.NewTLS(h.tls)), grpc.UnaryInterceptor(i.count))
	healthpb.RegisterHealthServer(i.server, health.NewServer())
	internalv1.RegisterServiceInvocationServer(i.server, i)
	go func() { defer close(i.served); _ = i.server.Serve(&stoppable{lis, i}) }()
	c.instances = append(c.instances, i)
	h.note("%s starts in %s", address, c.name)
}

// kill ends an instance as SIGKILL does; stop as SIGTERM does.
func (h *history) kill(i *testInstance) {
	h.note("%s is killed", i.address)
	h.faults = append(h.faults, time.Now())
	i.cluster.instances = slices.DeleteFunc(i.cluster.instances, func(o *testInstance) bool { return o == i })
	i.exit()
	i.ended.Go(func() { i.server.Stop(); <-i.served })
	h.mu.Unlock() // a call that begins takes the lock
	i.ended.Wait()
	h.mu.Lock()
}

func (h *history) stop(i *testInstance) {
	i.hang(false) // a process that hangs does not stop
	h.note("%s stops", i.address)
	i.cluster.instances = slices.DeleteFunc(i.cluster.instances, func(o *testInstance) bool { return o == i })
	h.mu.Unlock()
	i.server.GracefulStop()
	<-i.served
	i.exit()
	h.mu.Lock()
}

// hang stops a process as SIGSTOP does, or continues it.
func (h *history) hang(address string, f *freezer, hung *bool, wanted bool) {
	if *hung == wanted {
		return
	}
	if *hung = wanted; wanted {
		h.note("%s hangs", address)
		h.faults = append(h.faults, time.Now())
		f.freeze()
	} else {
		h.note("%s goes on", address)
		f.thaw()
	}
}

func (i *testInstance) hang(hung bool)            { i.h.hang(i.address, &i.freezer, &i.hung, hung) }
func (g *testGateway) hang(h *history, hung bool) { h.hang(g.address, &g.freezer, &g.hung, hung) }

// publish gives callers a view of the current state.
func (h *history) publish() {
	var routes []catalog.Route
	gateways := map[string][]string{}
	leads := map[string]bool{}
	for _, c := range h.clusters {
		r := catalog.Route{RouteSpec: catalog.RouteSpec{Cluster: c.name, Priority: c.priority, Weight: c.weight}, Ramp: c.ramp, State: c.state, Ready: uint32(len(c.instances))}
		var addresses []string
		for _, i := range c.instances {
			addresses = append(addresses, i.address)
		}
		if len(addresses) == 0 && r.State != catalog.LeaseExpired {
			r.State = catalog.Empty
		}
		if r.Local = len(c.gateways) == 0; r.Local {
			r.Addresses = addresses
		} else {
			r.Gateway, r.Instances = true, catalog.InstanceTokens(addresses)
			r.Addresses = catalog.Domain(catalog.DefaultDomain).GatewayAddresses(orders, c.name, "15443", len(addresses))
			for _, g := range c.gateways {
				gateways[c.name] = append(gateways[c.name], g.address)
			}
		}
		if r.State == catalog.Empty || r.State == catalog.LeaseExpired {
			r.Addresses, r.Instances = nil, nil
		}
		for _, address := range addresses {
			leads[address] = r.Usable() && len(r.Addresses) > 0
		}
		routes = append(routes, r)
	}
	h.note("the view leads to %v", leads)
	h.published = append(h.published, publishedView{time.Now(), leads})
	h.setRoutes(gateways, routes...)
}

// updateGatewayTable tells a cluster's gateways about its instances.
func (h *history) updateGatewayTable(c *testCluster) {
	c.known = c.known[:0]
	for _, i := range c.instances {
		c.known = append(c.known, i.address)
	}
	slices.Sort(c.known)
	b := &catalog.Backend{App: orders, Instances: slices.Clone(c.known), Tokens: catalog.InstanceTokens(c.known)}
	c.table.Store(&catalog.GatewayTable{Domain: catalog.DefaultDomain, Cluster: c.name,
		Backends: catalog.Table[*catalog.Backend]{}.With(catalog.Edit[*catalog.Backend]{App: orders, Value: b})})
}

// updatePaths records which paths lead to an instance: it takes calls, and the view, the gateway
// and the gateway's table lead there.
func (h *history) updatePaths() {
	before := h.paths
	h.paths = map[path]time.Time{}
	good := func(p path) {
		since, ok := before[p]
		if !ok {
			since = time.Now()
		}
		h.paths[p] = since
	}
	for _, c := range h.clusters {
		for _, i := range c.instances {
			if i.hung || i.failing.Load() || !h.published[len(h.published)-1].leads[i.address] {
				continue
			}
			if len(c.gateways) == 0 {
				good(path{i, nil})
			}
			for _, g := range c.gateways {
				if g.stop != nil && !g.hung && slices.Contains(c.known, i.address) {
					good(path{i, g})
				}
			}
		}
	}
}

// step changes one thing, and perhaps publishes it.
func (h *history) step() {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.clusters[h.rand.IntN(len(h.clusters))]
	var i *testInstance
	if len(c.instances) > 0 {
		i = c.instances[h.rand.IntN(len(c.instances))]
	}
	switch what := h.rand.IntN(16); {
	case i == nil || what < 3 && len(c.instances) < 4:
		h.startInstance(c, deadAddress(h.t))
	case what < 7: // killed, and perhaps restarted at once
		h.kill(i)
		if h.rand.IntN(2) == 0 {
			h.startInstance(c, i.address)
		}
	case what < 9:
		h.stop(i)
		if h.rand.IntN(2) == 0 {
			h.startInstance(c, i.address)
		}
	case what < 11:
		i.hang(!i.hung)
	case what < 12:
		i.failing.Store(!i.failing.Load())
		h.note("%s is ill: %v", i.address, i.failing.Load())
	case what < 14 && len(c.gateways) > 0:
		g := c.gateways[h.rand.IntN(len(c.gateways))]
		switch {
		case g.stop == nil:
			h.startGateway(c, g)
		case g.address != g.behind && h.rand.IntN(2) == 0:
			g.hang(h, !g.hung)
		default:
			h.note("gateway %s of %s is killed", g.address, c.name)
			h.faults = append(h.faults, time.Now(), time.Now()) // it cuts off several connections
			g.stop()
			g.stop = nil
		}
	default:
		c.priority, c.weight = uint32(h.rand.IntN(3)), uint32(h.rand.IntN(4))
		c.ramp = []uint8{0, 0, 10, 50}[h.rand.IntN(4)]
		c.state = []catalog.RouteState{catalog.Ready, catalog.Ready, catalog.Lapsed, catalog.LeaseExpired}[h.rand.IntN(4)]
		h.note("%s: priority %d, weight %d, ramp %d, state %d", c.name, c.priority, c.weight, c.ramp, c.state)
	}
	if h.rand.IntN(2) == 0 {
		h.publish()
	}
	for _, c := range h.clusters {
		if h.rand.IntN(2) == 0 {
			h.updateGatewayTable(c)
		}
	}
	h.updatePaths()
}

// calm ends all faults, and publishes the state.
func (h *history) calm() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.clusters {
		for _, i := range c.instances {
			i.hang(false)
			i.failing.Store(false)
		}
		for _, g := range c.gateways {
			g.hang(h, false)
		}
		h.updateGatewayTable(c)
	}
	h.note("calm")
	h.publish()
	h.updatePaths()
}

// end ends all processes. It comes last.
func (h *history) end() {
	h.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.clusters {
		for len(c.instances) > 0 {
			h.kill(c.instances[0])
		}
		for _, g := range c.gateways {
			if g.stop != nil {
				g.stop()
			}
		}
	}
}
