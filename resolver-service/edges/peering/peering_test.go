package peering

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// place is a test's cluster: a topology and, once started, a peering server.
type place struct {
	*topology.Topology
	t      *testing.T
	cfg    Config
	id     *identity.Source
	server *server
}

type server struct {
	address string
	grpc    *grpc.Server
	peering *Server
	done    sync.WaitGroup

	mu  sync.Mutex
	put int // exports sent so far
}

// background runs a function until the test ends, and waits for it.
func background(t testing.TB, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// newPlace makes a cluster whose store holds the objects.
func newPlace(t *testing.T, name string, id identity.Config, objects ...catalog.Object) *place {
	t.Helper()
	p := &place{t: t, cfg: Config{Cluster: name, Domain: catalog.DefaultDomain}}
	source, err := identity.New(id, identity.ServiceApp("", name), quiet)
	if err != nil {
		t.Fatal(err)
	}
	if err := source.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.id = source
	p.Topology = topology.New(topology.Config{Cluster: name, Domain: catalog.DefaultDomain, Open: true}, quiet)
	background(t, p.Run)
	p.apply(topology.Change{Objects: &topology.ObjectChange{Full: true, Put: objects}})
	return p
}

func (p *place) apply(c topology.Change) {
	p.t.Helper()
	if _, err := p.Apply(context.Background(), c); err != nil {
		p.t.Fatal(err)
	}
}

// serve starts a peering server; "" means a free port, which stays reserved while the server is
// away.
func (p *place) serve(address string) {
	p.t.Helper()
	if address == "" {
		port, err := sandbox.FreePort()
		if err != nil {
			p.t.Fatal(err)
		}
		address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.id.SetPeers("", map[string]catalog.Trust{"west": {}, "east": {}, "north": {}}) // allowed peers
	s := &server{address: l.Addr().String(), peering: NewServer(p.cfg, p.Topology, quiet)}
	s.grpc = grpc.NewServer(grpc.Creds(p.id.PeeringCredentials()), grpc.StreamInterceptor(s.watch))
	v1alpha1.RegisterPeeringServer(s.grpc, s.peering)
	s.done.Go(func() { _ = s.grpc.Serve(l) })
	p.server = s
	p.t.Cleanup(s.stop)
}

func (s *server) stop() {
	s.peering.Stop()
	s.grpc.Stop()
	s.done.Wait()
}

// watch counts the exports that are sent.
func (s *server) watch(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return handle(srv, counted{ss, s})
}

type counted struct {
	grpc.ServerStream
	s *server
}

func (c counted) SendMsg(m any) error {
	c.s.mu.Lock()
	if m, ok := m.(*v1alpha1.ExportsResponse); ok {
		c.s.put += len(m.GetPut())
	}
	c.s.mu.Unlock()
	return c.ServerStream.SendMsg(m)
}

func (s *server) sent() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.put
}

// link keeps links from a cluster to others, which can be changed.
func (p *place) link(clusters ...*catalog.Cluster) (*Links, *live.Value[[]*catalog.Cluster]) {
	p.t.Helper()
	links := NewLinks(p.cfg, p.Topology, p.id, quiet)
	var all live.Value[[]*catalog.Cluster]
	all.Store(clusters)
	background(p.t, func(ctx context.Context) error { return links.Run(ctx, &all) })
	return links, &all
}

func reaches(name string, after time.Duration, gateways ...string) *catalog.Cluster {
	return &catalog.Cluster{Name: name, Gateways: gateways, StaleAfter: after}
}

func selection(caller string, callees ...string) *catalog.AppEndpoints {
	s := &catalog.AppEndpoints{App: app(caller)}
	for _, id := range callees {
		s.Endpoints = append(s.Endpoints, catalog.Endpoint{App: app(id)})
	}
	return s
}

func exported(id string) *catalog.AppExport {
	return &catalog.AppExport{App: app(id), Allow: []catalog.Allow{{Cluster: "west"}}}
}

func runs(id, address string) topology.Change {
	return topology.Change{Instances: []topology.InstanceChange{{Source: "test", Put: []catalog.Instance{instance(id, address)}}}}
}

// enough is longer than anything takes on a slow and busy machine.
const enough = 2 * time.Minute

// within waits until a condition holds.
func within(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(enough); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", enough, what)
		}
	}
}

func (p *place) outcome(caller, callee string) string {
	d := p.Resolve(app(caller), app(callee))
	return strings.TrimSpace(d.Outcome.String() + " " + d.Cluster)
}

func eastAndWest(t *testing.T, id func(cluster string) identity.Config) (east, west *place) {
	east = newPlace(t, "east", id("east"), exported("orders"), exported("ledger"), &catalog.Cluster{Name: "west"})
	east.apply(runs("orders", "10.0.0.1:50002"))
	east.apply(runs("ledger", "10.0.0.2:50002"))
	east.serve("")
	west = newPlace(t, "west", id("west"), selection("checkout", "orders", "ledger", "secret"), reaches("east", 0, east.server.address))
	return east, west
}

func withoutTLS(string) identity.Config { return identity.Config{Insecure: true} }

func withTLS(t *testing.T) func(string) identity.Config {
	ca := identitytest.NewCA(t)
	return func(cluster string) identity.Config { return ca.Config(identity.ServiceApp("", cluster)) }
}

func TestACallerIsLedToThePeerThatExportsAnApp(t *testing.T) {
	for name, id := range map[string]func(string) identity.Config{"plain text": withoutTLS, "mTLS": withTLS(t)} {
		t.Run(name, func(t *testing.T) {
			east, west := eastAndWest(t, id)
			links, clusters := west.link(reaches("east", enough, east.server.address))
			within(t, "orders answered from east", func() bool { return west.outcome("checkout", "orders") == "ok east" })
			if got := west.outcome("checkout", "secret"); got != "unavailable" {
				t.Errorf("an app that is not exported: %s", got)
			}
			east.apply(topology.Change{Objects: &topology.ObjectChange{Delete: []catalog.Key{exported("orders").Key()}}})
			within(t, "the withdrawal of orders", func() bool { return west.outcome("checkout", "orders") == "unavailable" })
			within(t, "that it is connected, and exports one app", func() bool {
				s := only(links)
				return s.State == connected && s.Exports == 1 && s.Error == "" && s.LastWordUnixMs != 0
			})
			clusters.Store(nil)
			within(t, "east forgotten with its Cluster object", func() bool {
				return west.outcome("checkout", "ledger") != "ok east" && len(links.Status()) == 0
			})
		})
	}
}

func TestWhatAPeerSaidStandsUntilItsLeaseRunsOut(t *testing.T) {
	east, west := eastAndWest(t, withoutTLS)
	const lease = 20 * time.Second // so that it does not run out because the machine is busy
	links, _ := west.link(reaches("east", lease, east.server.address))
	within(t, "orders answered from east", func() bool { return west.outcome("checkout", "orders") == "ok east" })
	for range 2 {
		left := only(links).LeaseLeftMs
		within(t, "the lease renewed", func() bool {
			was := left
			left = only(links).LeaseLeftMs
			return left > was
		})
	}
	if got := west.outcome("checkout", "orders"); got != "ok east" {
		t.Fatalf("the lease of a peer that is there ran out: %s", got)
	}
	address, before := east.server.address, east.server.sent()
	if before != 2 {
		t.Errorf("%d exports were sent; want 2, and renewals without any", before)
	}
	stopped := time.Now()
	east.server.stop()
	within(t, "the lease out", func() bool { return west.outcome("checkout", "orders") == "stale" })
	if after := time.Since(stopped); after < allRefuseFor {
		t.Errorf("the lease ended after %s, and gateways may refuse for %s", after, allRefuseFor)
	}
	within(t, "why, for the exports as well", func() bool { return strings.Contains(only(links).Error, "refused") })
	if s := only(links); s.State != stale || s.Exports != 2 || s.Ready != 2 || s.Lapses != 1 || s.LeaseLeftMs != 0 {
		t.Errorf("status %v", s)
	}
	if text := links.Describe("east"); !strings.Contains(text, "s ago: its gateway "+address+" refuses connections") {
		t.Errorf("described as %q", text)
	}
	east.apply(runs("orders", "10.0.0.3:50002"))
	east.serve(address)
	within(t, "orders answered again", func() bool { return west.outcome("checkout", "orders") == "ok east" })
	if again := east.server.sent(); again != 1 {
		t.Errorf("%d exports were sent again; only orders has changed", again)
	}
}

func TestAPeerIsFollowedToItsNewGateways(t *testing.T) {
	east, west := eastAndWest(t, withTLS(t))
	_, clusters := west.link(reaches("east", 0, "127.0.0.1:1", east.server.address))
	within(t, "orders by the second gateway", func() bool { return west.outcome("checkout", "orders") == "ok east" })
	old := east.server
	east.serve("")
	clusters.Store([]*catalog.Cluster{reaches("east", 0, east.server.address)})
	old.stop()
	east.apply(topology.Change{Objects: &topology.ObjectChange{Delete: []catalog.Key{exported("ledger").Key()}}})
	within(t, "a change by the new gateway", func() bool { return west.outcome("checkout", "ledger") == "unavailable" })
}

func TestOnlyTheClusterThatWasMeantIsBelieved(t *testing.T) {
	t.Run("by its name", func(t *testing.T) {
		east, west := eastAndWest(t, withoutTLS)
		links, _ := west.link(reaches("north", 0, east.server.address))
		within(t, "an error with both names", func() bool {
			text := only(links).Error
			return strings.Contains(text, `"north"`) && strings.Contains(text, `"east"`)
		})
		if got := west.outcome("checkout", "orders"); got == "ok north" {
			t.Error("it was believed")
		}
	})
	t.Run("by its certificate", func(t *testing.T) {
		east, west := eastAndWest(t, withTLS(t))
		links, _ := west.link(reaches("north", 0, east.server.address))
		within(t, "an error with both apps", func() bool {
			text := only(links).Error
			return strings.Contains(text, "isthmus-system/isthmus-north") && strings.Contains(text, "isthmus-system/isthmus-east")
		})
	})
}

func TestAServerAnswersOnlyTheClusterThatAsks(t *testing.T) {
	ca := identitytest.NewCA(t)
	east, _ := eastAndWest(t, func(cluster string) identity.Config { return ca.Config(identity.ServiceApp("", cluster)) })
	for _, c := range []struct {
		what, cluster, want string
		as                  catalog.App
	}{
		{"in another's name", "north", "spiffe://public/ns/isthmus-system/isthmus-west asks in the name of cluster north", identity.ServiceApp("", "west")},
		{"as an app", "west", "", app("checkout")},
		{"as an operator", "west", "", identity.CLIApp("")},
		{"in a name that can't be", "West!", "cluster name", identity.ServiceApp("", "west")},
		{"in the server's own name", "east", `both clusters are named "east"`, identity.ServiceApp("", "east")},
	} {
		source, err := identity.New(ca.Config(c.as), c.as, quiet)
		if err != nil {
			t.Fatal(err)
		}
		if err := source.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		conn, err := grpc.NewClient(east.server.address, grpc.WithTransportCredentials(source.ClientCredentials(identity.Anyone)))
		if err != nil {
			t.Fatal(err)
		}
		stream, err := v1alpha1.NewPeeringClient(conn).Exports(t.Context())
		if err == nil {
			_ = stream.Send(&v1alpha1.ExportsRequest{Cluster: c.cluster})
			_, err = stream.Recv()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
		conn.Close()
	}
}

func instance(id, address string) catalog.Instance {
	return catalog.Instance{ID: address, App: app(id), Address: netip.MustParseAddrPort(address)}
}

// only is the status of the only link, or of none yet.
func only(l *Links) *v1alpha1.PeerStatus {
	all := l.Status()
	if len(all) == 0 {
		return &v1alpha1.PeerStatus{}
	}
	return all[0]
}

func TestAServiceHasSettledOnceItsFirstPeersWereHeard(t *testing.T) {
	settled := func(l *Links) bool {
		select {
		case <-l.Settled():
			return true
		default:
			return false
		}
	}
	t.Run("all of them", func(t *testing.T) {
		east, west := eastAndWest(t, withoutTLS)
		begin := time.Now()
		links, clusters := west.link(reaches("east", 0, east.server.address), reaches("north", 0, "127.0.0.1:1"))
		within(t, "orders answered from east", func() bool { return west.outcome("checkout", "orders") == "ok east" })
		if settled(links) && time.Since(begin) < settleWithin {
			t.Error("settled without a word of north")
		}
		clusters.Store([]*catalog.Cluster{reaches("east", 0, east.server.address)})
		within(t, "settled without north, which is gone", func() bool { return settled(links) })
	})
	t.Run("and what they said is in views", func(t *testing.T) {
		for range 10 { // a busy machine may have settled without it: that takes settleWithin
			east, west := eastAndWest(t, withoutTLS)
			begin := time.Now()
			links, _ := west.link(reaches("east", enough, east.server.address))
			<-links.Settled()
			got := west.outcome("checkout", "orders")
			if got == "ok east" {
				return
			}
			if time.Since(begin) < settleWithin {
				t.Fatalf("settled, and orders is %s", got)
			}
		}
		t.Error("never settled in time")
	})
	t.Run("or had time to be", func(t *testing.T) {
		_, west := eastAndWest(t, withoutTLS)
		links, _ := west.link(reaches("north", 0, "127.0.0.1:1"))
		within(t, "settled without a word of north", func() bool { return settled(links) })
	})
	t.Run("none of them", func(t *testing.T) {
		_, west := eastAndWest(t, withoutTLS)
		links, _ := west.link()
		within(t, "settled without peers", func() bool { return settled(links) })
	})
}
