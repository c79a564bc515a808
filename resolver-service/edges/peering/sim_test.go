package peering

import (
	"context"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/peering/peeringtest"
	"github.com/isthmus-mesh/isthmus/resolver-service/events"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// site is a cluster in a bubble, on a network in memory. It connects to others from the host of
// its name; others connect to it by the hosts of its gateways.
type site struct {
	t        testing.TB
	net      *peeringtest.Network
	cfg      Config
	topology *topology.Topology
	links    *Links
	clusters live.Value[[]*catalog.Cluster]
	server   *Server
	grpc     *grpc.Server
	serving  sync.WaitGroup
	started  time.Time
	events   *events.Ring // what the links log
}

// newSite makes a cluster whose store holds the objects, with links to the others.
func newSite(t testing.TB, n *peeringtest.Network, name string, objects ...catalog.Object) *site {
	t.Helper()
	return newSiteOf(t, n, Config{Cluster: name}, objects...)
}

// newSiteOf is newSite with more of a configuration.
func newSiteOf(t testing.TB, n *peeringtest.Network, cfg Config, objects ...catalog.Object) *site {
	t.Helper()
	name := cfg.Cluster
	cfg.Domain, cfg.Dial = catalog.DefaultDomain, n.Host(name).Dial
	s := &site{t: t, net: n, cfg: cfg, started: time.Now(), events: events.New()}
	source, err := identity.New(identity.Config{Insecure: true}, identity.ServiceApp("", name), quiet)
	if err != nil {
		t.Fatal(err)
	}
	s.topology = topology.New(topology.Config{Cluster: name, Domain: catalog.DefaultDomain, Open: true}, quiet)
	background(t, s.topology.Run)
	s.apply(topology.Change{Objects: &topology.ObjectChange{Full: true, Put: objects}})
	s.links = NewLinks(s.cfg, s.topology, source, s.events.Logger())
	var clusters []*catalog.Cluster
	for _, o := range objects {
		if c, ok := o.(*catalog.Cluster); ok {
			clusters = append(clusters, c)
		}
	}
	s.clusters.Store(clusters)
	s.server = NewServer(s.cfg, s.topology, quiet)
	Join(s.links, s.server)
	background(t, func(ctx context.Context) error { return s.links.Run(ctx, &s.clusters) })
	return s
}

func (s *site) apply(c topology.Change) {
	s.t.Helper()
	if _, err := s.topology.Apply(context.Background(), c); err != nil {
		s.t.Fatal(err)
	}
}

// serve answers peers at hosts, port 15443, until the test ends or stop.
func (s *site) serve(hosts ...string) {
	s.t.Helper()
	if s.server == nil {
		s.server = NewServer(s.cfg, s.topology, quiet)
		Join(s.links, s.server)
	}
	s.answer(s.server, hosts...)
}

// answer runs a Peering service at hosts.
func (s *site) answer(with v1alpha1.PeeringServer, hosts ...string) {
	s.t.Helper()
	s.grpc = grpc.NewServer(grpc.WaitForHandlers(true))
	v1alpha1.RegisterPeeringServer(s.grpc, with)
	server := s.grpc
	for _, host := range hosts {
		l, err := s.net.Host(host).Listen("15443")
		if err != nil {
			s.t.Fatal(err)
		}
		s.serving.Go(func() { _ = server.Serve(l) })
	}
	s.t.Cleanup(s.stop)
}

// stop ends the service gracefully.
func (s *site) stop() {
	if s.server != nil {
		s.server.Stop()
	}
	s.grpc.Stop()
	s.serving.Wait()
	s.server = nil
}

// kill ends it like kill -9.
func (s *site) kill(hosts ...string) {
	for _, host := range hosts {
		s.net.Host(host).Kill()
	}
	s.stop()
}

func (s *site) outcome(caller, callee string) string {
	d := s.topology.Resolve(app(caller), app(callee))
	if d.Outcome != catalog.OK {
		return d.Outcome.String()
	}
	return "ok " + d.Cluster
}

func (s *site) status() *v1alpha1.PeerStatus { return only(s.links) }

// takes waits for a condition, and returns how long that took.
func (s *site) takes(most time.Duration, what string, holds func() bool) time.Duration {
	s.t.Helper()
	start := time.Now()
	for !holds() {
		if time.Since(start) > most {
			s.t.Fatalf("after %s not: %s; %v", most, what, s.status())
		}
		time.Sleep(max(5*time.Millisecond, most/1000))
	}
	return time.Since(start)
}

func (s *site) ok() bool { return s.outcome("checkout", "orders") == "ok east" }

func (s *site) staleNow() bool { return s.outcome("checkout", "orders") == "stale" }

// at is a Cluster object with gateways at hosts.
func at(name string, after time.Duration, hosts ...string) *catalog.Cluster {
	c := &catalog.Cluster{Name: name, StaleAfter: after}
	for _, h := range hosts {
		c.Gateways = append(c.Gateways, net.JoinHostPort(h, "15443"))
	}
	return c
}

// westOf makes two clusters: east, which exports orders, and west, which calls it. West's lease
// lasts staleAfter, through gateways at hosts.
func westOf(t *testing.T, n *peeringtest.Network, staleAfter time.Duration, hosts ...string) (east, west *site) {
	east = newSite(t, n, "east", exported("orders"), at("west", staleAfter, "west-gw"))
	east.apply(runs("orders", "10.0.0.1:50002"))
	east.serve(hosts...)
	west = newSite(t, n, "west", selection("checkout", "orders"), at("east", staleAfter, hosts...))
	west.serve("west-gw")
	return east, west
}

func TestASilentLinkEndsTheLeaseInTimeAndIsHeardOfAgainSoon(t *testing.T) {
	for _, down := range []time.Duration{3 * time.Second, 12 * time.Second, 10 * time.Minute} {
		t.Run(down.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := peeringtest.New(1)
				_, west := westOf(t, n, 2*time.Second, "east-gw")
				west.takes(time.Second, "heard", west.ok)
				time.Sleep(time.Minute)
				n.Drop("west", "east-gw")
				took := west.takes(3*time.Second, "stale", west.staleNow)
				if took < 1500*time.Millisecond || took > 2500*time.Millisecond {
					t.Errorf("the lease ran out %s after the link was dropped", took)
				}
				time.Sleep(down - took)
				n.Heal("west", "east-gw")
				t.Logf("heard again after %s", west.takes(time.Second, "heard again", west.ok))
				if s := west.status(); s.Lapses != 1 || s.State != connected {
					t.Errorf("status %v", s)
				}
			})
		})
	}
}

func TestAKilledClusterIsGivenUpWhenItsGatewaysRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		east, west := westOf(t, n, 10*time.Second, "east-a", "east-b")
		west.takes(time.Second, "heard", west.ok)
		time.Sleep(time.Minute)
		east.kill("east-a", "east-b")
		took := west.takes(time.Second, "stale", west.staleNow)
		if took < allRefuseFor || took > 2*allRefuseFor {
			t.Errorf("given up after %s", took)
		}
		time.Sleep(time.Minute)
		east.serve("east-a", "east-b")
		t.Logf("given up after %s, heard again after %s", took, west.takes(time.Second, "heard again", west.ok))
	})
}

func TestAShortRestartEndsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		east, west := westOf(t, n, 2*time.Second, "east-gw")
		west.takes(time.Second, "heard", west.ok)
		time.Sleep(time.Minute)
		east.kill("east-gw")
		time.Sleep(allRefuseFor / 2)
		east.serve("east-gw")
		time.Sleep(time.Minute)
		if s := west.status(); s.Lapses != 0 || s.State != connected {
			t.Errorf("status %v", s)
		}
	})
}

func TestASlowLinkThatLosesPacketsEndsNoLease(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := peeringtest.New(seed)
				poor := peeringtest.Path{Delay: 300 * time.Millisecond, Jitter: 30 * time.Millisecond, Loss: 0.05}
				n.SetPaths("west", "east-gw", poor)
				n.SetPaths("east", "west-gw", poor)
				_, west := westOf(t, n, 2*time.Second, "east-gw")
				west.takes(20*time.Second, "heard", west.ok)
				least := time.Hour
				for range 10 * 60 * 4 {
					time.Sleep(100 * time.Millisecond)
					if left := time.Duration(west.status().LeaseLeftMs) * time.Millisecond; left < least {
						least = left
					}
				}
				s := west.status()
				t.Logf("after 4 min %d lapses, the lease had %s left at least", s.Lapses, least)
				if s.Lapses != 0 {
					t.Errorf("status %v", s)
				}
			})
		})
	}
}

func TestOneOfTwoGatewaysIsNotMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		_, west := westOf(t, n, 2*time.Second, "east-a", "east-b")
		west.takes(time.Second, "heard", west.ok)
		time.Sleep(time.Minute)
		for _, lost := range []string{"east-a", "east-b"} {
			n.Drop("west", lost)
			time.Sleep(time.Minute)
			states := map[string]string{}
			for _, g := range west.status().Gateways {
				states[g.Address] = g.State
			}
			if states[lost+":15443"] != gatewaySilent && states[lost+":15443"] != gatewayConnecting {
				t.Errorf("%s is lost, and gateways are %v", lost, states)
			}
			n.Heal("west", lost)
			time.Sleep(time.Minute)
		}
		if s := west.status(); s.Lapses != 0 || s.State != connected {
			t.Errorf("status %v", s)
		}
	})
}

func TestASplitIsToldOnBothSides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		east, west := westOf(t, n, 2*time.Second, "east-gw")
		west.takes(time.Second, "heard", west.ok)
		time.Sleep(10 * time.Second)
		if a, b := west.status(), east.status(); a.Hears != connected || b.Hears != connected || a.AskedBy < 2 || b.AskedBy < 2 {
			t.Errorf("both hear each other: %v, %v", a, b)
		}
		n.Drop("east", "west-gw")
		time.Sleep(10 * time.Second)
		if s := west.status(); s.State != connected || s.Hears != stale {
			t.Errorf("west: %v", s)
		}
		if s := east.status(); s.State != stale || s.AskedBy == 0 {
			t.Errorf("east: %v", s)
		}
		if !west.ok() {
			t.Error("west hears east, and does not call it")
		}
		t.Log("west: ", west.links.Describe("east"))
		t.Log("east: ", east.links.Describe("west"))
	})
}

// TestAPeerThatIsHeardAndHearsNothingIsNotCalled cuts one direction: east's messages keep
// arriving, but nothing reaches east. Calls would not reach it either.
func TestAPeerThatIsHeardAndHearsNothingIsNotCalled(t *testing.T) {
	for _, cut := range []struct{ from, to string }{{"west", "east-gw"}, {"east-gw", "west"}} {
		t.Run("from "+cut.from, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := peeringtest.New(1)
				_, west := westOf(t, n, 2*time.Second, "east-gw")
				west.takes(time.Second, "heard", west.ok)
				time.Sleep(time.Minute)
				n.SetPath(cut.from, cut.to, peeringtest.Path{Down: true})
				if took := west.takes(time.Minute, "stale", west.staleNow); took > 2*time.Second+echoGrace {
					t.Errorf("the lease of 2 s ran out after %s", took)
				}
				t.Log(west.links.Describe("east"))
				n.Heal("west", "east-gw")
				if took := west.takes(time.Minute, "heard again", func() bool { return west.status().State == connected }); took > time.Second {
					t.Errorf("heard again after %s", took)
				}
			})
		})
	}
}

func TestAPeerThatFlapsIsDampedAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		_, west := westOf(t, n, 2*time.Second, "east-gw")
		west.takes(time.Second, "heard", west.ok)
		for range 3 {
			n.Drop("west", "east-gw")
			west.takes(3*time.Second, "stale", west.staleNow)
			n.Heal("west", "east-gw")
			time.Sleep(time.Second)
		}
		if s := west.status(); s.State != damped || s.Lapses != 3 || s.DampedUntilUnixMs == 0 || s.LeaseLeftMs == 0 {
			t.Errorf("status %v", s)
		}
		t.Log(west.links.Describe("east"))
		if d := west.topology.Resolve(app("checkout"), app("orders")); d.Outcome != catalog.OK || !strings.Contains(d.Reason, "damped, used because nothing else is ready") {
			t.Errorf("who has no other way gets %+v", d)
		}
		west.apply(runs("orders", "10.0.0.7:50002"))
		if got := west.outcome("checkout", "orders"); got != "ok west" {
			t.Errorf("who has another way gets %q", got)
		}
		west.apply(topology.Change{Instances: []topology.InstanceChange{{Source: "test", Full: true}}})
		took := west.takes(time.Minute, "relied on again", func() bool { return west.status().State == connected })
		if took < 30*time.Second {
			t.Errorf("relied on again after %s", took)
		}
		t.Log(west.links.Describe("east"))
		told := map[string]int{}
		for _, e := range west.events.After(0, time.Time{}) {
			if strings.Contains(e.Message, "lease of a peer ended") || strings.Contains(e.Message, "damped") {
				told[e.Message[:20]] += e.Count
			}
		}
		if want := map[string]int{"lease of a peer ende": 3, "peer is back, and da": 1, "peer is damped no mo": 1}; !maps.Equal(told, want) {
			t.Errorf("events tell %v, want %v", told, want)
		}
	})
}

func TestALeaseIsChangedWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		_, west := westOf(t, n, time.Minute, "east-gw")
		west.takes(time.Second, "heard", west.ok)
		time.Sleep(time.Minute)
		west.clusters.Store([]*catalog.Cluster{at("east", time.Second, "east-gw")})
		time.Sleep(time.Minute)
		if s := west.status(); s.Lapses != 0 || s.StaleAfterMs != 1000 {
			t.Errorf("status %v", s)
		}
		n.Drop("west", "east-gw")
		if took := west.takes(2*time.Second, "stale", west.staleNow); took > 1500*time.Millisecond {
			t.Errorf("the lease of 1 s ran out after %s", took)
		}
	})
}

// rhythmic records the renewal intervals that peers request.
type rhythmic struct {
	*Server
	asked chan time.Duration
}

func (r rhythmic) Exports(to exportsServer) error { return r.Server.Exports(noting{to, r.asked}) }

type noting struct {
	exportsServer
	asked chan time.Duration
}

func (n noting) Recv() (*v1alpha1.ExportsRequest, error) {
	m, err := n.exportsServer.Recv()
	if renew := m.GetRenewMs(); renew != 0 {
		n.asked <- time.Duration(renew) * time.Millisecond
	}
	return m, err
}

func TestExportsAreAskedForInTheRhythmOfTheLeaseOnceTheyAreAskedForAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		east := newSite(t, n, "east", exported("orders"))
		east.apply(runs("orders", "10.0.0.1:50002"))
		asked := make(chan time.Duration, 8)
		east.answer(rhythmic{east.server, asked}, "east-gw")
		west := newSite(t, n, "west", selection("checkout", "orders"), at("east", time.Minute, "east-gw"))
		west.takes(time.Second, "heard", west.ok)
		if got := <-asked; got != maxRenew {
			t.Errorf("asked for a word every %s, want %s", got, maxRenew)
		}
		west.clusters.Store([]*catalog.Cluster{at("east", time.Second, "east-gw")})
		time.Sleep(time.Second)
		n.Drop("west", "east-gw")
		time.Sleep(time.Minute)
		n.Heal("west", "east-gw")
		if got := <-asked; got != minRenew {
			t.Errorf("asked anew for a word every %s, want %s", got, minRenew)
		}
	})
}

func TestAChangeOfOneClusterWakesNoOtherLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		west := newSite(t, peeringtest.New(1), "west", at("east", time.Minute, "east-gw"), at("north", time.Minute, "north-gw"))
		synctest.Wait()
		_, _, east := west.links.links["east"].object.Follow()
		_, _, north := west.links.links["north"].object.Follow()
		west.clusters.Store([]*catalog.Cluster{at("east", time.Minute, "east-gw"), at("north", time.Second, "north-gw")})
		synctest.Wait()
		select {
		case <-east:
			t.Error("the link to east looks at a change of north's")
		default:
		}
		select {
		case <-north:
		default:
			t.Error("the link to north does not look at a change of its own")
		}
	})
}

type exportsServer = grpc.BidiStreamingServer[v1alpha1.ExportsRequest, v1alpha1.ExportsResponse]

// TestReplicasOfAPeerAreOnePeer runs two replicas of east, each with a gateway and other
// revisions. One sends the exports, the other renews the lease.
func TestReplicasOfAPeerAreOnePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		first := newSite(t, n, "east", exported("orders"))
		for range 3 {
			first.apply(runs("orders", "10.0.0.9:50002"))
			first.apply(topology.Change{Instances: []topology.InstanceChange{{Source: "test", Full: true}}})
		}
		second := newSite(t, n, "east", exported("orders"))
		for i, s := range []*site{first, second} {
			s.apply(runs("orders", "10.0.0.1:50002"))
			s.serve(fmt.Sprint("east-", i))
		}
		if a, b := first.topology.Revision(), second.topology.Revision(); a == b {
			t.Fatalf("both are at revision %d", a)
		}
		west := newSite(t, n, "west", selection("checkout", "orders"), at("east", 2*time.Second, "east-0", "east-1"))
		west.takes(time.Second, "heard", west.ok)
		time.Sleep(time.Minute)
		renewed, _, _ := second.server.subscribers.streamsOf("west")
		if asked, _, _ := first.server.subscribers.streamsOf("west"); asked == 0 || renewed == 0 {
			t.Fatalf("%d streams to one, %d to the other", asked, renewed)
		}
		link := west.links.links["east"]
		link.freshness.mu.Lock()
		other, held := link.freshness.behindSince, link.freshness.patience
		link.freshness.mu.Unlock()
		if !other.IsZero() || held != stuckAfter {
			t.Errorf("renewals name another digest since %s; stuck after %s", other, held)
		}
	})
}
