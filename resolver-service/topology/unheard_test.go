package topology

import (
	"slices"
	"testing"
)

// TestWhichClustersHaveNotBeenHeard: those with an object, until their first word, and again when
// they come anew.
func TestWhichClustersHaveNotBeenHeard(t *testing.T) {
	top := running(t, west)
	unheard := func(after string, want ...string) {
		t.Helper()
		all, _ := top.Clusters().Load()
		if !slices.Equal(all.Unheard, want) {
			t.Errorf("after %s not heard are %v; want %v", after, all.Unheard, want)
		}
	}
	east, north := reaches("east", "10.9.0.1:15443"), reaches("north", "10.9.0.2:15443")
	top.must(t, says("south", has("orders", 1)))
	top.must(t, full(north, east, reaches("west", "10.9.0.3:15443"), selects("checkout", calls("orders", via("far", 0, 1)))))
	unheard("the store's full set", "east", "north")
	top.must(t, Change{Peers: []PeerChange{{Cluster: "east", Put: []PeerExport{has("orders", 1)}}}})
	unheard("a part of what east says", "east", "north")
	top.must(t, lease("north", Expired))
	unheard("a lease that ran out before the first word", "east", "north")
	top.must(t, lease("east", Fresh))
	unheard("all that east says", "north")
	top.must(t, lease("east", Expired))
	unheard("the end of its lease", "north")
	top.must(t, objects(reaches("south", "10.9.0.4:15443")))
	unheard("an object for who had been heard", "north")
	top.must(t, lease("north", Fresh))
	unheard("the last of them")
	top.must(t, deletes(east.Key()))
	top.must(t, Change{Peers: []PeerChange{{Cluster: "east", Full: true, Lease: Forgotten}}})
	unheard("the end of east")
	top.must(t, objects(east))
	unheard("its coming again", "east")
}

// TestViewsHaveTheRoutesOfWhoIsHeard before it is said that it is heard: whoever finds an app
// without a route to a cluster, and then finds the cluster heard, may look again and be sure.
func TestViewsHaveTheRoutesOfWhoIsHeard(t *testing.T) {
	top := running(t, west)
	top.must(t, full(reaches("east", "10.9.0.1:15443"), selects("checkout", calls("orders"))))
	_, _, changed := top.Clusters().Follow()
	routes := make(chan int, 1)
	sub := top.Subscribe(app("checkout"))
	defer sub.Close()
	go func() {
		<-changed
		view, _ := sub.View()
		entry, _ := view.Entries.Get(app("orders"))
		routes <- len(entry.Routes)
	}()
	top.must(t, says("east", has("orders", 1)))
	if got := <-routes; got != 2 {
		t.Errorf("orders has %d routes, and east was said to be heard", got)
	}
}
