package peering

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/peering/peeringtest"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// longLease has few renewals in the many minutes that these tests take.
const longLease = time.Minute

// restful are three clusters, of which west follows two: east, which it calls, and north, which it
// does not.
func restful(t *testing.T) (west, north *site) {
	n := peeringtest.New(1)
	n.SetPaths("west", "north-gw", peeringtest.Path{Delay: 10 * time.Millisecond}) // so that what comes before an answer is seen
	for _, name := range []string{"east", "north"} {
		there := newSiteOf(t, n, Config{Cluster: name, Many: -1}, exported("orders"), exported("ledger"), reaches("west", longLease, "west-gw:15443"))
		there.serve(name + "-gw")
		there.apply(runs("orders", "10.0.0.1:50002"))
		there.apply(runs("ledger", "10.0.0.2:50002"))
		north = there
	}
	west = newSiteOf(t, n, Config{Cluster: "west", Many: 1}, selects("checkout", "orders", "east"), reaches("east", longLease, "east-gw:15443"), reaches("north", longLease, "north-gw:15443"))
	west.serve("west-gw")
	west.takes(time.Second, "orders answered from east", west.ok)
	west.takes(time.Second, "north at rest", func() bool {
		p := west.peer("north")
		return p.GetState() == catalog.PeerResting && p.GetExports() == 2
	})
	return west, north
}

// selects has a caller lead to one cluster.
func selects(caller, callee, cluster string) *catalog.AppEndpoints {
	return &catalog.AppEndpoints{App: app(caller), Endpoints: []catalog.Endpoint{{App: app(callee), Routes: []catalog.RouteSpec{{Cluster: cluster, Weight: 1}}}}}
}

func (s *site) peer(cluster string) *v1alpha1.PeerStatus {
	for _, p := range s.links.Status() {
		if p.GetCluster() == cluster {
			return p
		}
	}
	return nil
}

func (s *site) put(objects ...catalog.Object) {
	s.apply(topology.Change{Objects: &topology.ObjectChange{Put: objects}})
}

func TestALinkRestsUntilItIsOfUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		west, north := restful(t)
		if p := west.peer("north"); p.GetExports() != 2 || p.GetFollowed() != 0 || p.GetLapses() != 0 || p.GetError() != "" {
			t.Errorf("at rest: %v", p)
		}
		time.Sleep(4 * pollPause)
		if p, there := west.peer("north"), north.peer("west"); p.GetState() != catalog.PeerResting || p.GetLapses() != 0 || there.GetAskedBy() != 0 || there.GetRestsMs() == 0 || !west.ok() {
			t.Errorf("after four polls: %v; there: %v", p, there)
		}
		north.put(exported("vault"))
		west.takes(pollPause+time.Second, "a new name", func() bool { return west.peer("north").GetExports() == 3 })

		west.put(selects("cart", "ledger", "north"))
		if took := west.takes(time.Second, "ledger answered from north", func() bool { return west.outcome("cart", "ledger") == "ok north" }); took > 200*time.Millisecond {
			t.Errorf("it took %s until a link at rest was of use", took)
		}
		time.Sleep(2 * restAfter)
		if p := west.peer("north"); p.GetState() != connected || p.GetFollowed() != 1 {
			t.Errorf("in use: %v", p)
		}
		west.apply(topology.Change{Objects: &topology.ObjectChange{Delete: []catalog.Key{selection("cart").Key()}}})
		time.Sleep(restAfter / 2)
		if p := west.peer("north"); p.GetState() != connected {
			t.Errorf("shortly after its use: %v", p)
		}
		west.takes(restAfter, "rest", func() bool { return west.peer("north").GetState() == catalog.PeerResting })
		west.put(selects("cart", "ledger", "north"))
		west.takes(200*time.Millisecond, "ledger answered again", func() bool { return west.outcome("cart", "ledger") == "ok north" })
	})
}

// TestAPeerThatIsLostWhileItsLinkRests is no fault until it is of use, and is found then.
func TestAPeerThatIsLostWhileItsLinkRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		west, north := restful(t)
		north.kill("north-gw")
		west.takes(pollPause+time.Minute, "why a poll failed", func() bool { return west.peer("north").GetError() != "" })
		if p := west.peer("north"); p.GetState() != catalog.PeerResting || p.GetExports() != 2 || p.GetLapses() != 0 {
			t.Errorf("lost: %v", p)
		}
		west.put(selects("cart", "ledger", "north"))
		time.Sleep(time.Minute)
		if p := west.peer("north"); p.GetState() != connecting || west.outcome("cart", "ledger") != "unavailable" {
			t.Errorf("of use, and away: %v; %s", p, west.outcome("cart", "ledger"))
		}
		north.serve("north-gw")
		west.takes(2*time.Second, "ledger answered", func() bool { return west.outcome("cart", "ledger") == "ok north" })
		if p := west.peer("north"); p.GetLapses() != 0 || p.GetError() != "" {
			t.Errorf("back: %v", p)
		}
	})
}

// TestPeersThatNeverWereCostLittle: most of what a hub introduces may be down, or not there yet. They are
// found all the same.
func TestPeersThatNeverWereCostLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		west, _ := restful(t)
		const count = 5
		all, _ := west.clusters.Load()
		all = slices.Clone(all)
		for i := range count {
			all = append(all, reaches(fmt.Sprint("south-", i), 10*time.Second, fmt.Sprintf("south-%d-gw:15443", i)))
		}
		for _, c := range all[2:] {
			west.put(c)
		}
		west.clusters.Store(all)
		lines := func() (n int) {
			for _, e := range west.events.After(0, time.Time{}) {
				if strings.Contains(fmt.Sprint(e.Fields), "south-") {
					n += e.Count
				}
			}
			return n
		}
		time.Sleep(3 * pollPause) // by then the pauses are as long as they get
		made, logged := west.net.Made(), lines()
		time.Sleep(2 * pollPause)
		made, logged = west.net.Made()-made, lines()-logged
		// Three a poll at most, and some of east and north.
		if least, most := uint64(count), uint64(count*3*2*pollTries); made < least || made > most || logged != 0 {
			t.Errorf("then %d connections to %d peers that never were, and %d lines of log; want %d to %d, and none", made, count, logged, least, most)
		}
		south := newSite(t, west.net, "south-0", exported("orders"), reaches("west", 0, "west-gw:15443"))
		south.serve("south-0-gw")
		west.takes(pollPause+time.Minute, "south-0 at rest", func() bool { return west.peer("south-0").GetExports() == 1 })
	})
}

// TestLinksRestOnlyWhereThereAreMany wakes one that rests when others go.
func TestLinksRestOnlyWhereThereAreMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		west, _ := restful(t)
		west.clusters.Store([]*catalog.Cluster{reaches("north", longLease, "north-gw:15443")})
		west.takes(time.Second, "connected", func() bool { return west.peer("north").GetState() == connected })
		time.Sleep(2 * pollPause)
		if p := west.peer("north"); p.GetState() != connected || p.GetLapses() != 0 {
			t.Errorf("one of one: %v", p)
		}
	})
}

// becomes is the outcomes of a new selection that leads to north, one after the other as they change,
// until the last one wanted.
func (s *site) becomes(t *testing.T, within time.Duration, want ...string) {
	t.Helper()
	var seen []string
	s.put(selects("cart", "ledger", "north"))
	for start := time.Now(); !slices.Equal(seen, want); time.Sleep(time.Millisecond) {
		if is := s.outcome("cart", "ledger"); len(seen) == 0 || seen[len(seen)-1] != is {
			seen = append(seen, is)
		}
		if time.Since(start) > within {
			t.Fatalf("a new selection had %q within %s; want %q", seen, within, want)
		}
	}
}

// TestANewSelectionIsNotReadyUntilTheLinkWakes or has failed to, whatever the peer did before.
func TestANewSelectionIsNotReadyUntilTheLinkWakes(t *testing.T) {
	for name, c := range map[string]struct {
		before func(t *testing.T, west, north *site)
		within time.Duration
		want   []string
	}{
		"it answers":           {func(*testing.T, *site, *site) {}, 200 * time.Millisecond, []string{"not ready", "ok north"}},
		"it refuses":           {func(_ *testing.T, _, north *site) { north.kill("north-gw") }, 200 * time.Millisecond, []string{"not ready", "unavailable"}},
		"its packets are lost": {func(_ *testing.T, _, north *site) { north.net.Drop("west", "north-gw") }, 2100 * time.Millisecond, []string{"not ready", "unavailable"}},
		"it refused to answer a poll": {func(_ *testing.T, west, north *site) {
			north.kill("north-gw")
			west.takes(pollPause+time.Minute, "why a poll failed", func() bool { return west.peer("north").GetError() != "" })
			time.Sleep(pollWithin)
		}, 10 * time.Millisecond, []string{"unavailable"}},
		"it is back since": {func(t *testing.T, west, north *site) {
			north.kill("north-gw")
			west.takes(pollPause+time.Minute, "why a poll failed", func() bool { return west.peer("north").GetError() != "" })
			north.serve("north-gw")
			time.Sleep(pollPause + time.Minute)
		}, 200 * time.Millisecond, []string{"not ready", "ok north"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				west, north := restful(t)
				c.before(t, west, north)
				west.becomes(t, c.within, c.want...)
			})
		})
	}
}

// TestAPeerAtRestHearsOfANewExportSoon, and of its end, whether or not the other direction is in use; and
// one that changes all the time, or says so, is asked less and less often.
func TestAPeerAtRestHearsOfANewExportSoon(t *testing.T) {
	for name, used := range map[string]bool{"both rest": false, "one is in use": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := peeringtest.New(1)
				north := newSiteOf(t, n, Config{Cluster: "north", Many: -1}, exported("orders"), reaches("west", 10*time.Second, "west-gw:15443"))
				north.serve("north-gw")
				west := newSiteOf(t, n, Config{Cluster: "west", Many: -1}, exported("mail"), reaches("north", 10*time.Second, "north-gw:15443"))
				west.serve("west-gw")
				if used {
					north.put(selects("cart", "mail", "west"))
				}
				rests := func() bool {
					return west.peer("north").GetState() == catalog.PeerResting && (used || north.peer("west").GetState() == catalog.PeerResting)
				}
				north.apply(runs("vault", "10.0.0.3:50002"))
				west.put(&catalog.AppEndpoints{App: app("checkout"), Endpoints: []catalog.Endpoint{{App: app("vault")}}})
				west.takes(time.Minute, "rest", rests)
				time.Sleep(time.Hour)
				north.put(exported("vault"))
				west.takes(15*time.Second, "a new export that is selected", func() bool { return west.outcome("checkout", "vault") == "ok north" })
				north.apply(topology.Change{Objects: &topology.ObjectChange{Delete: []catalog.Key{exported("vault").Key()}}})
				west.takes(2*restAfter, "rest again", rests)
				time.Sleep(time.Hour)
				if got := west.peer("north").GetExports(); got != 1 {
					t.Errorf("%d exports are left; want 1", got)
				}
				north.put(exported("ledger"))
				west.takes(15*time.Second, "a name", func() bool { return west.peer("north").GetExports() == 2 })
				north.apply(topology.Change{Objects: &topology.ObjectChange{Delete: []catalog.Key{exported("ledger").Key()}}})
				west.takes(30*time.Second, "its end", func() bool { return west.peer("north").GetExports() == 1 })

				time.Sleep(time.Hour)
				before := n.Made()
				for i := range 3600 {
					if i%2 == 0 {
						north.put(exported("ledger"))
					} else {
						north.apply(topology.Change{Objects: &topology.ObjectChange{Delete: []catalog.Key{exported("ledger").Key()}}})
					}
					west.links.nudged("north")
					time.Sleep(time.Second)
				}
				if polls := n.Made() - before; polls < 12 || polls > 60 { // 12 each way, if nothing changes
					t.Errorf("%d connections in an hour in which the names changed each second", polls)
				}
			})
		})
	}
}

// TestAPollTriesEachGateway holds that a peer is heard whichever of its gateways are gone.
func TestAPollTriesEachGateway(t *testing.T) {
	for _, gateways := range [][]string{{"north-gw:15443"}, {"dead-1:15443", "north-gw:15443"}, {"dead-1:15443", "dead-2:15443", "north-gw:15443"}, {"dead-1:15443", "dead-2:15443", "dead-3:15443", "north-gw:15443"}} {
		synctest.Test(t, func(t *testing.T) {
			n := peeringtest.New(1)
			n.SetPaths("west", "north-gw", peeringtest.Path{Delay: 20 * time.Millisecond})
			north := newSiteOf(t, n, Config{Cluster: "north", Many: -1}, exported("orders"), reaches("west", 10*time.Second, "west-gw:15443"))
			north.serve("north-gw")
			north.apply(runs("orders", "10.0.0.1:50002"))
			west := newSiteOf(t, n, Config{Cluster: "west", Many: -1}, reaches("north", 10*time.Second, gateways...))
			west.serve("west-gw")
			west.put(&catalog.AppEndpoints{App: app("checkout"), Endpoints: []catalog.Endpoint{{App: app("orders")}}})
			for range 3 { // after errors of the last time, too
				west.takes(2*pollPause, "an export of a cluster with gateways "+fmt.Sprint(gateways), func() bool { return west.outcome("checkout", "orders") == "ok north" })
				north.kill("north-gw")
				time.Sleep(3 * pollPause)
				north.serve("north-gw")
			}
		})
	}
}

// TestPollsAreNoMoreWithMorePeers: where thousands rest, each is polled less often.
func TestPollsAreNoMoreWithMorePeers(t *testing.T) {
	for links, pause := range map[int]time.Duration{1: pollPause, 300: pollPause, 1000: 1000 * time.Second, 10_000: 10_000 * time.Second} {
		t.Run(fmt.Sprint(links), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := peeringtest.New(1)
				north := newSiteOf(t, n, Config{Cluster: "north", Many: -links}, exported("orders"), reaches("west", longLease, "west-gw:15443"))
				north.serve("north-gw")
				west := newSiteOf(t, n, Config{Cluster: "west", Many: -links}, reaches("north", longLease, "north-gw:15443"))
				west.takes(time.Minute, "rest", func() bool { return west.peer("north").GetState() == catalog.PeerResting })
				before := n.Made()
				time.Sleep(12 * pause)
				if made := n.Made() - before; made < 3*12 || made > 4*16 { // west by one connection each, and north by two that are refused
					t.Errorf("%d connections in 12 pauses of %s", made, pause)
				}
				if ms, want := north.peer("west").GetRestsMs(), (pause + pollWithin).Milliseconds(); int64(ms) != want {
					t.Errorf("north was told of a rest of %d ms, want %d", ms, want)
				}
			})
		})
	}
}

// TestAPeerHearsThatALinkIsAboutToRest, so that it nudges this cluster from then on.
func TestAPeerHearsThatALinkIsAboutToRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		north := newSiteOf(t, n, Config{Cluster: "north", Many: -1}, exported("orders"), reaches("west", 10*time.Second, "west-gw:15443"))
		north.serve("north-gw")
		west := newSiteOf(t, n, Config{Cluster: "west", Many: -1}, exported("mail"), reaches("north", 10*time.Second, "north-gw:15443"))
		west.serve("west-gw")
		rests := func() bool { return west.peer("north").GetState() == catalog.PeerResting }
		west.takes(time.Minute, "rest", rests)
		west.put(selects("cart", "orders", "north"))
		west.takes(time.Second, "use", func() bool { return west.peer("north").GetState() == connected })
		time.Sleep(time.Minute)
		if ms := north.peer("west").GetRestsMs(); ms != 0 {
			t.Errorf("a link in use rests for %d ms", ms)
		}
		west.apply(topology.Change{Objects: &topology.ObjectChange{Delete: []catalog.Key{selection("cart").Key()}}})
		west.takes(2*restAfter, "rest again", rests)
		time.Sleep(time.Second)
		if ms := north.peer("west").GetRestsMs(); int64(ms) != (pollPause + pollWithin).Milliseconds() {
			t.Errorf("a link at rest rests for %d ms", ms)
		}
		north.put(exported("vault"))
		west.takes(15*time.Second, "a name", func() bool { return west.peer("north").GetExports() == 2 })
	})
}

// TestAPeerThatIsGoneRestsAfterItsLastUse, whether or not it was ever heard.
func TestAPeerThatIsGoneRestsAfterItsLastUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		west, north := restful(t)
		all, _ := west.clusters.Load()
		south := reaches("south", 10*time.Second, "south-gw:15443")
		west.put(south)
		west.clusters.Store(append(slices.Clone(all), south))
		west.put(selects("cart", "ledger", "north"))
		west.takes(time.Second, "a call", func() bool { return west.outcome("cart", "ledger") == "ok north" })
		west.put(selects("stock", "ledger", "south"))
		north.kill("north-gw")
		time.Sleep(time.Minute)
		west.apply(topology.Change{Objects: &topology.ObjectChange{Delete: []catalog.Key{selection("cart").Key(), selection("stock").Key()}}})
		time.Sleep(20 * time.Minute)
		before := west.net.Made()
		time.Sleep(10 * time.Minute)
		// Each of two that are gone is polled three times at most, by three connections, and west by two others.
		if made := west.net.Made() - before; made > 3*3*2+3*2 {
			t.Errorf("%d connections are tried in ten minutes, 20 after the last use", made)
		}
		north.serve("north-gw")
		west.put(selects("cart", "ledger", "north"))
		west.takes(5*time.Second, "a call again", func() bool { return west.outcome("cart", "ledger") == "ok north" })
	})
}

// TestWhatIsInUseComesFirst holds that a start has the routes in use ready before it dials other peers,
// and does not wait long for one that is gone.
func TestWhatIsInUseComesFirst(t *testing.T) {
	for _, gone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := peeringtest.New(1)
			objects := []catalog.Object{selects("checkout", "orders", "east")}
			others := []string{"north", "south", "up", "down"}
			for _, name := range append(others, "east") {
				delay := 5 * time.Millisecond
				if name == "east" {
					delay = 20 * time.Millisecond
				}
				n.SetPaths("west", name+"-gw", peeringtest.Path{Delay: delay})
				there := newSite(t, n, name, exported("orders"), reaches("west", 0, "west-gw:15443"))
				if there.apply(runs("orders", "10.0.0.1:50002")); name != "east" || !gone {
					there.serve(name + "-gw")
				}
				objects = append(objects, reaches(name, longLease, name+"-gw:15443"))
			}
			for i := range 3 { // in use as well, and each is heard later than the last
				name := fmt.Sprint("far-", i)
				n.SetPaths("west", name+"-gw", peeringtest.Path{Delay: time.Duration(i+1) * 80 * time.Millisecond})
				newSite(t, n, name, exported("orders"), reaches("west", 0, "west-gw:15443")).serve(name + "-gw")
				objects = append(objects, reaches(name, longLease, name+"-gw:15443"))
				if gone {
					objects = append(objects, selects("caller-"+name, "orders", name))
				}
			}
			west := newSiteOf(t, n, Config{Cluster: "west", Many: -1}, objects...)
			west.serve("west-gw")
			rest := func() bool {
				return !slices.ContainsFunc(others, func(name string) bool { return west.peer(name).GetExports() != 1 })
			}
			if gone {
				west.takes(firstWithin+time.Second/2, "the others are heard, though one in use is gone", rest)
				return
			}
			west.takes(time.Second, "orders answered from east", west.ok)
			for _, name := range others {
				if west.peer(name).GetExports() > 0 {
					t.Errorf("%s was asked before the route in use was ready", name)
				}
			}
			west.takes(time.Second, "the others are heard", rest)
		})
	}
}

// TestAStartConnectsToSoManyAtATime, and those that are not there hold up the others for a moment only. Who
// waits rests.
func TestAStartConnectsToSoManyAtATime(t *testing.T) {
	for _, silent := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			const gone = 3 * togetherAtMost
			n := peeringtest.New(1)
			objects := make([]catalog.Object, 0, gone+1)
			for i := range gone {
				host := fmt.Sprintf("gw-%d", i)
				if silent { // or it refuses
					n.Drop("west", host)
				}
				objects = append(objects, reaches(fmt.Sprint("gone-", i), longLease, host+":15443"))
			}
			newSite(t, n, "north", exported("orders")).serve("north-gw")
			n.SetPaths("west", "north-gw", peeringtest.Path{Delay: reachWithin / 3})
			west := newSiteOf(t, n, Config{Cluster: "west"}, append(objects, reaches("north", longLease, "north-gw:15443"))...)
			time.Sleep(reachWithin / 2)
			if made := n.Made(); made != togetherAtMost {
				t.Errorf("%d connections are tried at once; want %d", made, togetherAtMost)
			}
			for _, p := range west.links.Status() {
				if p.GetState() != catalog.PeerResting {
					t.Errorf("%s, which waits or is asked, is %s", p.GetCluster(), p.GetState())
				}
			}
			for _, r := range west.links.Reach() {
				if !r.Heard {
					t.Errorf("%s, which waits or is asked, counts as lost", r.Cluster)
				}
			}
			west.takes((gone/togetherAtMost+1)*reachWithin+time.Second/2, "north is heard", func() bool { return west.peer("north").GetExports() == 1 })
		})
	}
}
