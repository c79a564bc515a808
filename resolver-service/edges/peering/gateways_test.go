package peering

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/peering/peeringtest"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

func TestAGatewayThatHangsUpIsLeftForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		l, err := n.Host("hollow").Listen("15443")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
				conn.Close()
			}
		}()
		east := newSite(t, n, "east", exported("orders"), at("west", 0, "west-gw"))
		east.apply(runs("orders", "10.0.0.1:50002"))
		east.serve("east-gw")
		west := newSite(t, n, "west", selection("checkout", "orders"), at("east", 2*time.Second, "hollow", "east-gw"))
		west.takes(2*time.Second, "heard through the other", west.ok)
	})
}

// A gateway that was away, at the start or later, has a channel again soon after it is back, and status
// says so.
func TestAGatewayThatComesBackIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		east := newSite(t, n, "east", exported("orders"), at("west", 0, "west-gw"))
		east.apply(runs("orders", "10.0.0.1:50002"))
		east.serve("east-gw")
		second := service(t, n, "", "orders", "late-gw")
		second.kill("late-gw")
		west := newSite(t, n, "west", selection("checkout", "orders"), at("east", 2*time.Second, "east-gw", "late-gw"))
		states := func() string {
			var all []string
			for _, g := range west.status().GetGateways() {
				all = append(all, g.State)
			}
			return strings.Join(all, " ")
		}
		for range 2 {
			west.takes(4*time.Second, "one is away", func() bool { return west.ok() && states() == "connected refused" })
			time.Sleep(time.Minute)
			second.again("", "late-gw")
			west.takes(30*time.Second, "both are used", func() bool { return states() == "connected connected" })
			time.Sleep(time.Minute)
			if !west.ok() || states() != "connected connected" {
				t.Errorf("a minute later orders: %s, gateways: %s", west.outcome("checkout", "orders"), states())
			}
			second.kill("late-gw")
		}
	})
}

func TestAReplicaWithoutItsStoreIsLeftForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		east := newSite(t, n, "east", exported("orders"), at("west", 0, "west-gw"))
		east.apply(runs("orders", "10.0.0.1:50002"))
		east.serve("east-gw")
		unready := &site{t: t, net: n, cfg: east.cfg, topology: topology.New(topology.Config{Cluster: "east"}, quiet)}
		background(t, unready.topology.Run)
		unready.answer(NewServer(unready.cfg, unready.topology, quiet), "unready")
		west := newSite(t, n, "west", selection("checkout", "orders"), at("east", 2*time.Second, "unready", "east-gw"))
		west.takes(4*time.Second, "heard through the other", west.ok)
	})
}

// With one gateway there is nothing else to try, so the status has the reason until exports come.
func TestAServiceWithoutItsStoreIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		east := newSite(t, n, "east")
		unready := &site{t: t, net: n, cfg: east.cfg, topology: topology.New(topology.Config{Cluster: "east"}, quiet)}
		background(t, unready.topology.Run)
		unready.answer(NewServer(unready.cfg, unready.topology, quiet), "east-gw")
		west := newSite(t, n, "west", selection("checkout", "orders"), at("east", 2*time.Second, "east-gw"))
		west.takes(4*time.Second, "said why", func() bool { return strings.Contains(west.status().Error, "has not read its config store yet") })
		time.Sleep(time.Minute)
		if s := west.status(); s.State != connecting || s.Error == "" {
			t.Errorf("a minute later: %s, %q", s.State, s.Error)
		}
		if said := west.links.Describe("east"); !strings.Contains(said, "has not read its config store yet") {
			t.Errorf("described as %q", said)
		}
		unready.apply(topology.Change{Objects: &topology.ObjectChange{Full: true, Put: []catalog.Object{exported("orders")}}})
		unready.apply(runs("orders", "10.0.0.1:50002"))
		west.takes(4*time.Second, "heard", west.ok)
		if s := west.status(); s.State != connected || s.Error != "" {
			t.Errorf("with exports: %s, %q", s.State, s.Error)
		}
	})
}

func TestWhatIsNoResolverServiceIsTriedAgainNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		east := newSite(t, n, "east", exported("orders"))
		east.apply(runs("orders", "10.0.0.1:50002"))
		east.answer(v1alpha1.UnimplementedPeeringServer{}, "east-gw")
		west := newSite(t, n, "west", selection("checkout", "orders"), at("east", 2*time.Second, "east-gw"))
		west.takes(time.Second, "said why", func() bool { return strings.Contains(west.status().Error, "not implemented") })
		time.Sleep(time.Minute)
		east.stop()
		east.serve("east-gw")
		west.takes(refusedMost+time.Second, "heard", west.ok)
	})
}

func TestAStreamThatEndsBeforeItAsksEndsNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan struct{})
		time.AfterFunc(time.Second, cancel)
		_, _, err := receiveFirst(ctx, func() (*v1alpha1.RenewRequest, error) {
			<-left
			return nil, errors.New("gone")
		}, &interest{})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("listen: %v", err)
		}
		close(left)
		synctest.Wait()
	})
}
