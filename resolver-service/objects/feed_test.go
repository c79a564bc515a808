package objects

import (
	"slices"
	"testing"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
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
