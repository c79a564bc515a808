package xds

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statusv1 "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
	"github.com/isthmus-mesh/isthmus/resolver-service/events"
	"github.com/isthmus-mesh/isthmus/resolver-service/limits/bounded"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what should happen.
const patience = time.Minute

func shop(id string) catalog.App { return catalog.App{Namespace: "shop", ID: id} }

// site is an xDS server of cluster west, where checkout may call all of shop that it selects.
type site struct {
	t        testing.TB
	topology *topology.Topology
	address  string
	part     edge.Part
	registry *prometheus.Registry
	events   *events.Ring // what the service logs
	stop     func()
}

func start(t testing.TB, s Settings, objects ...catalog.Object) *site {
	t.Helper()
	settled := make(chan struct{})
	close(settled)
	return startEarly(t, s, settled, objects...)
}

// startEarly starts a site that has settled once the channel is closed.
func startEarly(t testing.TB, s Settings, settled <-chan struct{}, objects ...catalog.Object) *site {
	t.Helper()
	ring := events.New()
	log := ring.Logger()
	x := &site{t: t, events: ring, registry: prometheus.NewRegistry(), topology: topology.New(topology.Config{Cluster: "west", Domain: catalog.DefaultDomain}, log)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	x.address = l.Addr().String()
	part, err := s.build(edge.Host{
		Cluster: edge.Cluster{Name: "west", Domain: catalog.DefaultDomain},
		Listen: edge.Listening{
			Listener: l, Connections: 10_000, Insecure: true,
			Bound: func(b bounded.Bounds) *bounded.Listener { return bounded.New(l, b) },
			GRPC: func(_ []string, _ identity.Certificate, own ...grpc.ServerOption) *grpc.Server {
				return grpc.NewServer(own...)
			},
		},
		Views: edge.Views{Topology: x.topology, Settled: settled},
		Tell:  edge.Telling{Metrics: x.registry, Log: log, Often: throttle.New(log, time.Second)},
	})
	if err != nil {
		t.Fatal(err)
	}
	x.part = part
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	for _, run := range []func(context.Context) error{x.topology.Run, part.Run} {
		parts.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	x.stop = func() { cancel(); parts.Wait() }
	t.Cleanup(x.stop)
	x.apply(topology.Change{Objects: &topology.ObjectChange{Full: true, Put: objects}})
	return x
}

func (x *site) apply(c topology.Change) {
	x.t.Helper()
	if _, err := x.topology.Apply(x.t.Context(), c); err != nil {
		x.t.Fatal(err)
	}
}

// runs has an app have these instances and no others.
func (x *site) runs(app catalog.App, addresses ...string) {
	x.t.Helper()
	c := topology.InstanceChange{Source: "source-of-" + app.ID, Full: true}
	for _, a := range addresses {
		c.Put = append(c.Put, catalog.Instance{App: app, ID: a, Address: netip.MustParseAddrPort(a)})
	}
	x.apply(topology.Change{Instances: []topology.InstanceChange{c}})
}

// exports has another cluster export an app with a number of ready instances.
func (x *site) exports(cluster string, app catalog.App, ready uint32) {
	x.t.Helper()
	x.apply(topology.Change{Peers: []topology.PeerChange{{
		Cluster: cluster, Lease: topology.Fresh, Put: []topology.PeerExport{{App: app, Allow: []catalog.Allow{{}}, Ready: ready}},
	}}})
}

// settles waits until something holds.
func (x *site) settles(what string, holds func() bool) {
	x.t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			x.t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// rejected is what the clients of an app refuse, as operators see it.
func (x *site) rejected(app catalog.App) (all []string) {
	var s v1alpha1.StatusResponse
	x.part.Status(&s)
	for _, c := range s.GetXds() {
		for _, r := range c.GetRejections() {
			if c.GetApp().GetId() == app.ID {
				all = append(all, r.GetType()+": "+r.GetError())
			}
		}
	}
	return all
}

func selects(caller string, endpoints ...catalog.Endpoint) *catalog.AppEndpoints {
	return &catalog.AppEndpoints{App: shop(caller), Endpoints: endpoints}
}

func endpoint(app string, routes ...catalog.RouteSpec) catalog.Endpoint {
	return catalog.Endpoint{App: shop(app), Routes: routes}
}

func cluster(name string, gateways ...string) *catalog.Cluster {
	return &catalog.Cluster{Name: name, Gateways: gateways}
}

// client is a stream in either protocol, with what it has by type and name.
type adsClient struct {
	t     testing.TB
	delta discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	state discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient

	answers  chan answer
	node     *corev3.Node
	known    map[string]string // versions from an earlier stream
	version  string            // the same in the state of the world
	follows  [kinds][]string
	have     [kinds]map[string][]byte
	versions map[string]string
	order    []string // "CDS +a -b" for each response, in order
	nonces   [kinds]string
	refuse   [kinds]string // why what comes is refused
	mute     bool          // it answers nothing
	ended    error         // once answers is closed
}

type answer struct {
	kind    kind
	nonce   string
	put     map[string]string
	bytes   map[string][]byte
	removed []string
}

func (x *site) connect(t testing.TB, app catalog.App, delta bool) *adsClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+x.address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &adsClient{t: t, answers: make(chan answer), versions: map[string]string{}}
	ads := discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
	if delta {
		c.delta, err = ads.DeltaAggregatedResources(ctx)
	} else {
		c.state, err = ads.StreamAggregatedResources(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(c.answers)
		for {
			a, err := c.receive()
			if err != nil {
				c.ended = err
				return
			}
			select {
			case c.answers <- a:
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done; conn.Close() })
	c.node = node(app)
	return c
}

func node(app catalog.App) *corev3.Node { return &corev3.Node{Id: app.String()} }

func (c *adsClient) receive() (answer, error) {
	a := answer{put: map[string]string{}, bytes: map[string][]byte{}}
	if c.delta != nil {
		m, err := c.delta.Recv()
		if err != nil {
			return a, err
		}
		a.kind, _ = kindOf(m.GetTypeUrl())
		a.nonce, a.removed = m.GetNonce(), m.GetRemovedResources()
		for _, r := range m.GetResources() {
			a.put[r.GetName()], a.bytes[r.GetName()] = r.GetVersion(), r.GetResource().GetValue()
		}
		return a, nil
	}
	m, err := c.state.Recv()
	if err != nil {
		return a, err
	}
	a.kind, _ = kindOf(m.GetTypeUrl())
	a.nonce = m.GetNonce()
	for _, r := range m.GetResources() {
		message, err := r.UnmarshalNew()
		if err != nil {
			return a, err
		}
		name := nameOf(message)
		a.put[name], a.bytes[name] = string(r.GetValue()), r.GetValue()
	}
	return a, nil
}

// nameOf is the name of a resource: every type has it as its first field.
func nameOf(m proto.Message) string {
	r := m.ProtoReflect()
	return r.Get(r.Descriptor().Fields().ByNumber(1)).String()
}

// ask sends a request for names.
func (c *adsClient) ask(k kind, subscribe, unsubscribe []string, all []string) {
	c.t.Helper()
	var err error
	if c.delta != nil {
		err = c.delta.Send(&discoveryv3.DeltaDiscoveryRequest{Node: c.node, TypeUrl: k.url(), ResourceNamesSubscribe: subscribe, ResourceNamesUnsubscribe: unsubscribe, InitialResourceVersions: c.known})
	} else {
		err = c.state.Send(&discoveryv3.DiscoveryRequest{Node: c.node, TypeUrl: k.url(), ResourceNames: all, ResponseNonce: c.nonces[k], VersionInfo: c.version})
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// follow asks for names of a type, and keeps to them; none: for all.
func (c *adsClient) follow(k kind, names ...string) {
	c.t.Helper()
	c.follows[k] = append(c.follows[k], names...)
	c.ask(k, names, nil, c.follows[k])
}

func (c *adsClient) leave(k kind, names ...string) {
	c.t.Helper()
	c.follows[k] = slices.DeleteFunc(c.follows[k], func(n string) bool { return slices.Contains(names, n) })
	c.ask(k, nil, names, c.follows[k])
}

// next takes the next response, and answers it.
func (c *adsClient) next() answer {
	c.t.Helper()
	select {
	case a, ok := <-c.answers:
		if !ok {
			c.t.Fatal("the stream has ended")
		}
		c.take(a)
		return a
	case <-time.After(patience):
		c.t.Fatalf("no response came; before: %q", c.order)
		return answer{}
	}
}

func (c *adsClient) take(a answer) {
	if c.have[a.kind] == nil {
		c.have[a.kind] = map[string][]byte{}
	}
	if c.delta == nil && a.kind.whole() {
		clear(c.have[a.kind])
	}
	for name, bytes := range a.bytes {
		c.have[a.kind][name] = bytes
		c.versions[name] = a.put[name]
	}
	for _, name := range a.removed {
		delete(c.have[a.kind], name)
	}
	line := []string{a.kind.short()}
	for _, name := range slices.Sorted(maps.Keys(a.put)) {
		line = append(line, "+"+name)
	}
	for _, name := range a.removed {
		line = append(line, "-"+name)
	}
	c.order = append(c.order, strings.Join(line, " "))
	c.nonces[a.kind] = a.nonce
	if !c.mute {
		c.answer(a.kind, a.nonce, c.refuse[a.kind])
	}
}

// answer takes a response, or refuses it for a reason.
func (c *adsClient) answer(k kind, nonce, why string) {
	c.t.Helper()
	var detail *statusv1.Status
	if why != "" {
		detail = &statusv1.Status{Code: 3, Message: why}
	}
	var err error
	if c.delta != nil {
		err = c.delta.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: k.url(), ResponseNonce: nonce, ErrorDetail: detail})
	} else {
		err = c.state.Send(&discoveryv3.DiscoveryRequest{TypeUrl: k.url(), ResourceNames: c.follows[k], ResponseNonce: nonce, ErrorDetail: detail})
	}
	if err != nil {
		c.t.Error(err)
	}
}

// until takes responses until something holds.
func (c *adsClient) until(what string, holds func() bool) {
	c.t.Helper()
	for end := time.Now().Add(patience); !holds(); {
		if time.Now().After(end) {
			c.t.Fatalf("not within %s: %s; responses: %q", patience, what, c.order)
		}
		c.next()
	}
}

func (c *adsClient) names(k kind) []string { return slices.Sorted(maps.Keys(c.have[k])) }

// endpointsOf shows what the client has of an app: "0 west x3: 10.0.0.1:1 10.0.0.2:1" for each
// locality, with priority, cluster and weight.
func (c *adsClient) endpointsOf(name string) []string {
	c.t.Helper()
	bytes, ok := c.have[endpoints][name]
	if !ok {
		return nil
	}
	var m endpointv3.ClusterLoadAssignment
	if err := proto.Unmarshal(bytes, &m); err != nil {
		c.t.Fatal(err)
	}
	if err := m.ValidateAll(); err != nil {
		c.t.Error(err)
	}
	lines := []string{}
	for _, l := range m.GetEndpoints() {
		line := fmt.Sprintf("%d %s x%d:", l.GetPriority(), l.GetLocality().GetRegion(), l.GetLoadBalancingWeight().GetValue())
		for _, e := range l.GetLbEndpoints() {
			a := e.GetEndpoint().GetAddress().GetSocketAddress()
			line += fmt.Sprintf(" %s:%d", a.GetAddress(), a.GetPortValue())
		}
		lines = append(lines, line)
	}
	return lines
}
