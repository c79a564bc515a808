package peering

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/peering/peeringtest"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

func says(id string) func() string { return func() string { return id } }

// service is a service of a cluster with an identity, beside the cluster's name, that exports an app.
func service(t *testing.T, n *peeringtest.Network, id, app string, hosts ...string) *site {
	t.Helper()
	s := &site{t: t, net: n, cfg: Config{Cluster: "east", Domain: catalog.DefaultDomain, Service: says(id)}, topology: topology.New(topology.Config{Cluster: "east", Open: true}, quiet)}
	background(t, s.topology.Run)
	s.apply(topology.Change{Objects: &topology.ObjectChange{Full: true, Put: []catalog.Object{exported(app), at("west", 0, "west-gw")}}})
	s.apply(runs(app, "10.0.0.1:50002"))
	s.server = NewServer(s.cfg, s.topology, quiet)
	s.answer(s.server, hosts...)
	return s
}

// again starts a service again, as another process, and with another identity where that is not "".
func (s *site) again(id string, hosts ...string) {
	s.t.Helper()
	s.cfg.Service = says(id)
	s.server = NewServer(s.cfg, s.topology, quiet)
	s.answer(s.server, hosts...)
}

// Of two clusters with one name behind one Cluster object, the first that is heard is the cluster. The
// other is refused, also when the first is gone, and named.
func TestASecondClusterOfTheNameIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		first := service(t, n, "one", "orders", "east-gw")
		west := newSite(t, n, "west", selection("checkout", "orders", "ledger"), at("east", 2*time.Second, "east-gw", "twin-gw"))
		west.takes(4*time.Second, "orders heard", west.ok)
		twin := service(t, n, "two", "ledger", "twin-gw")
		west.takes(2*time.Minute, "the second named", func() bool { return west.status().GetSecondService() != "" })
		said := west.status().GetSecondService()
		for _, want := range []string{"at gateway twin-gw:15443 a second service says that it is cluster east: two", "the exports come from one", "remove its gateway from spec.gateways"} {
			if !strings.Contains(said, want) {
				t.Errorf("status says %q, want %q", said, want)
			}
		}
		if all := fmt.Sprint(west.events.After(0, time.Time{})); !strings.Contains(all, "a second service has the name of a peer; it is refused") {
			t.Errorf("no event: %s", all)
		}
		if !west.ok() || west.outcome("checkout", "ledger") == "ok east" {
			t.Errorf("orders: %s, ledger: %s", west.outcome("checkout", "orders"), west.outcome("checkout", "ledger"))
		}
		time.Sleep(time.Minute)
		first.kill("east-gw")
		west.takes(4*time.Second, "stale", west.staleNow)
		time.Sleep(time.Minute)
		if got := west.outcome("checkout", "ledger"); got == "ok east" || !west.staleNow() {
			t.Errorf("a minute after the first has gone: orders: %s, ledger: %s", west.outcome("checkout", "orders"), got)
		}
		if text := west.links.Describe("east"); !strings.Contains(text, "a second service says that it is cluster east") && !strings.Contains(text, "refuse") {
			t.Errorf("described as %q", text)
		}
		first.again("one", "east-gw")
		west.takes(30*time.Second, "the first is back", west.ok)
		// An operator who names the second alone means it.
		west.clusters.Store([]*catalog.Cluster{at("east", 2*time.Second, "twin-gw")})
		west.takes(30*time.Second, "the second is the cluster", func() bool { return west.outcome("checkout", "ledger") == "ok east" })
		if said := west.status().GetSecondService(); said != "" {
			t.Errorf("status still says %q", said)
		}
		// One that comes when the first has gone is let in, and not silently.
		twin.kill("twin-gw")
		twin.again("three", "twin-gw")
		west.takes(30*time.Second, "a third is the cluster", func() bool { return west.outcome("checkout", "ledger") == "ok east" })
		if all := fmt.Sprint(west.events.After(0, time.Time{})); !strings.Contains(all, "another service than before answers for a peer") {
			t.Errorf("no event: %s", all)
		}
	})
}

// One that does not say who it is may be an older release of the first, or another cluster. It is let
// in and named.
func TestAServerThatDoesNotSayWhoItIsIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		service(t, n, "one", "orders", "east-gw")
		silent := service(t, n, "", "orders", "twin-gw")
		west := newSite(t, n, "west", selection("checkout", "orders"), at("east", 2*time.Second, "east-gw", "twin-gw"))
		said := func() string { return west.status().GetSecondService() }
		west.takes(2*time.Minute, "it is named", func() bool {
			return strings.HasPrefix(said(), "a server behind this peer's gateways, at twin-gw:15443, does not say who it is, while others do; ")
		})
		west.takes(time.Minute, "an event", func() bool {
			return strings.Contains(fmt.Sprint(west.events.After(0, time.Time{})), "a server behind a peer's gateways does not say who it is")
		})
		if !west.ok() {
			t.Errorf("orders: %s", west.outcome("checkout", "orders"))
		}
		silent.kill("twin-gw")
		west.takes(time.Minute, "it is gone", func() bool { return said() == "" && west.ok() })
	})
}

// What isn't a second cluster is let in: replicas, a restart, and a new installation.
func TestOneClusterOfANameIsLetIn(t *testing.T) {
	for name, then := range map[string]func(t *testing.T, n *peeringtest.Network, first *site){
		"a replica": func(t *testing.T, n *peeringtest.Network, first *site) { service(t, n, "one", "orders", "twin-gw") },
		"a restart": func(_ *testing.T, _ *peeringtest.Network, first *site) {
			first.stop()
			first.again("one", "east-gw")
		},
		"a new installation": func(_ *testing.T, _ *peeringtest.Network, first *site) {
			first.kill("east-gw")
			first.again("two", "east-gw")
		},
		"what was replaced": func(t *testing.T, n *peeringtest.Network, first *site) {
			service(t, n, "two", "orders", "twin-gw")
			first.kill("east-gw")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := peeringtest.New(1)
				first := service(t, n, "one", "orders", "east-gw")
				west := newSite(t, n, "west", selection("checkout", "orders"), at("east", 2*time.Second, "east-gw", "twin-gw"))
				west.takes(4*time.Second, "heard", west.ok)
				then(t, n, first)
				time.Sleep(time.Minute)
				west.takes(10*time.Second, "heard a minute later", west.ok)
				if said := west.status().GetSecondService(); said != "" {
					t.Errorf("status says %q", said)
				}
			})
		})
	}
}

// What a peer says of itself is bounded where it is logged.
func TestALongIdentityIsNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		long := strings.Repeat("x", 1<<20)
		service(t, n, "one", "orders", "east-gw")
		var log bytes.Buffer
		west := newSite(t, n, "west", selection("checkout", "orders"), at("east", 2*time.Second, "east-gw", "twin-gw"))
		west.takes(4*time.Second, "orders heard", west.ok)
		service(t, n, "two\x1b[2J"+long, "ledger", "twin-gw")
		west.takes(2*time.Minute, "the second named", func() bool { return west.status().GetSecondService() != "" })
		for _, e := range west.events.After(0, time.Time{}) {
			fmt.Fprintln(&log, e)
		}
		if text := log.String(); len(text) > 10_000 || !strings.Contains(text, "two?[2Jxx") {
			t.Errorf("%d bytes: %.500q", len(text), text)
		}
		// A peer's name is as long as it likes until it is checked.
		if err := NewServer(west.cfg, west.topology, quiet).admit(t.Context(), long); len(err.Error()) > 2*maxReason {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	})
}

// TestAServiceIsBesideAnotherFromItsFirstMessage, before that was applied, and until its streams are
// silent.
func TestAServiceIsBesideAnotherFromItsFirstMessage(t *testing.T) {
	for name, c := range map[string]struct {
		then    func(s *linkStatus, first *clientStream)
		refused bool
	}{
		"its first message is being applied": {func(*linkStatus, *clientStream) {}, true},
		"it was applied":                     {func(s *linkStatus, first *clientStream) { s.setHeard(first, true) }, true},
		"it is silent":                       {func(s *linkStatus, first *clientStream) { s.setHeard(first, true); s.setHeard(first, false) }, false},
		"it speaks again": {func(s *linkStatus, first *clientStream) {
			s.setHeard(first, false)
			_, _ = s.admit(first, "east", "a:1", "") // as each message, and it says no more who it is
			s.setHeard(first, true)
		}, true},
		"it ended before that": {func(s *linkStatus, first *clientStream) { s.setHeard(first, false) }, false},
	} {
		var s linkStatus
		first, second := &clientStream{}, &clientStream{}
		if _, err := s.admit(first, "east", "a:1", "one"); err != nil {
			t.Fatal(err)
		}
		c.then(&s, first)
		_, err := s.admit(second, "east", "b:1", "two")
		var refused secondCluster
		if errors.As(err, &refused) != c.refused || c.refused != (s.second("east") != "") {
			t.Errorf("%s: %v; named as %q", name, err, s.second("east"))
		}
		// One of the two goes on, and the other one is refused also by later messages.
		_, one := s.admit(first, "east", "a:1", "")
		if _, two := s.admit(second, "east", "b:1", "two"); (one == nil) != c.refused || (two == nil) == c.refused {
			t.Errorf("%s: then one has %v, and two has %v", name, one, two)
		}
	}
}

// TestASecondClusterIsRefusedAfterARest, as before.
func TestASecondClusterIsRefusedAfterARest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &linkStatus{}
		first, second := &clientStream{}, &clientStream{}
		for range 20 {
			if _, err := s.admit(first, "east", "a:1", "one"); err != nil {
				t.Fatal(err)
			}
			s.setHeard(first, true)
			if _, err := s.admit(second, "east", "b:1", "two"); err == nil {
				t.Fatal("a second cluster is taken")
			}
			time.Sleep(time.Second)
		}
		s.setHeard(first, false) // the link rests: its streams end
		time.Sleep(time.Hour)
		if _, err := s.admit(&clientStream{}, "east", "b:1", "two"); err == nil {
			t.Error("a second cluster is taken once the link wakes")
		}
	})
}
