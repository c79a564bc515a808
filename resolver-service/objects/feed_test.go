package objects

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

const vm1 = `{"apiVersion":"isthmus.dev/v1alpha1","kind":"AppInstance","metadata":{"namespace":"shop","name":"orders-vm1"},"spec":{"app":"orders","address":"10.0.0.5:50002"}}`

// TestInstancesAreFollowedApartFromWhatLookupsFollow: an AppInstance is there at once, and
// alters no decision by itself.
func TestInstancesAreFollowedApartFromWhatLookupsFollow(t *testing.T) {
	s := newService(t, catalog.DefaultDomain, true)
	names := func() (all []string) {
		placed, err := s.feed.Instances().Wait(t.Context()) // the first are there a moment after the topology is
		if err != nil {
			t.Fatal("nothing is known of instances, though the store was read")
		}
		for _, i := range placed {
			all = append(all, i.Key().String()+" "+i.Address.String())
		}
		return all
	}
	if got := names(); len(got) != 0 {
		t.Errorf("from the start there are %v", got)
	}
	if a := s.mustApply(vm1, east); results(a) != "orders-vm1 created, east created" || effects(a) != "" {
		t.Errorf("results %s, effects %s", results(a), effects(a))
	}
	if got, want := names(), []string{"AppInstance shop/orders-vm1 10.0.0.5:50002"}; !slices.Equal(got, want) {
		t.Errorf("then there are %v, want %v", got, want)
	}
	if stats := s.topology.Stats(); stats.Objects != 2 || stats.Instances != 0 {
		t.Errorf("the topology counts %+v; want two objects and no instance", stats)
	}
	clusters, _, unmoved := s.feed.Clusters().Follow()
	if _, err := s.Delete(t.Context(), &v1alpha1.DeleteRequest{Keys: []*v1alpha1.ObjectKey{{Kind: "AppInstance", Namespace: "shop", Name: "orders-vm1"}}}); err != nil {
		t.Fatal(err)
	}
	if got := names(); len(got) != 0 {
		t.Errorf("after it was deleted there are %v", got)
	}
	select {
	case <-unmoved:
		t.Errorf("clusters %v were told anew for an instance", clusters)
	default:
	}
}

// TestListsOfAKindAreWhatTheSetHas checks the lists after random changes, and that an earlier
// list does not change.
func TestListsOfAKindAreWhatTheSetHas(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	object := func() configstore.Stored {
		name := fmt.Sprint("vm", random.IntN(20))
		var o catalog.Object = &catalog.AppInstance{Namespace: "shop", Name: name}
		if random.IntN(3) == 0 {
			o = &catalog.Cluster{Name: name}
		}
		return configstore.Stored{Object: o, Revision: fmt.Sprint(random.Uint64())}
	}
	var f Feed
	for round := range 2000 {
		c := configstore.Change{Full: round%100 == 0}
		for range random.IntN(4) {
			c.Objects = append(c.Objects, object())
		}
		for range random.IntN(4) {
			if key := object().Object.Key(); !c.Full && !slices.ContainsFunc(c.Objects, func(s configstore.Stored) bool { return s.Object.Key() == key }) {
				c.Deleted = append(c.Deleted, key)
			}
		}
		was, _ := f.instances.Load()
		before := slices.Clone(was)
		f.remember(c, time.Now())
		placed, _ := f.instances.Load()
		clusters, _ := f.clusters.Load()
		if want := ofKind[*catalog.AppInstance](f.set.All()); !slices.Equal(placed, want) {
			t.Fatalf("round %d: after %+v instances are %v, want %v", round, c, placed, want)
		}
		if want := ofKind[*catalog.Cluster](f.set.All()); !slices.Equal(clusters, want) {
			t.Fatalf("round %d: after %+v clusters are %v, want %v", round, c, clusters, want)
		}
		if !slices.Equal(was, before) {
			t.Fatalf("round %d: a list was changed that others may read", round)
		}
	}
}
