package objects

import (
	"fmt"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// TestAGuestEndsByItsTime: its object counts as not there from then on, also if it is written later.
func TestAGuestEndsByItsTime(t *testing.T) {
	s := newService(t, "isthmus.internal", true)
	background(t, s.feed.RunGuests)
	guest := func(until time.Time) string {
		return fmt.Sprintf(`{"apiVersion":"isthmus.dev/v1alpha1","kind":"Cluster","metadata":{"name":"anna"},"spec":{"tunnel":"accept","guest":{"until":%q,"apps":["shop/orders"]}}}`, until.UTC().Format(time.RFC3339Nano))
	}
	counts := func() (clusters, stored, objects int) {
		c, _ := s.feed.Clusters().Load()
		all, _ := s.feed.Stored().Load()
		return len(c), len(all), s.topology.Stats().Objects
	}
	is := func(what string, want int) {
		t.Helper()
		meshtest.Eventually(t, meshtest.Patience, func() error {
			if clusters, stored, objects := counts(); clusters != want || stored != 1 || objects != want {
				return fmt.Errorf("%s: %d clusters count, %d are stored, and the topology has %d; want %d, 1 and %[5]d", what, clusters, stored, objects, want)
			}
			return nil
		})
	}
	s.mustApply(guest(time.Now().Add(time.Hour)))
	is("a guest", 1)
	s.mustApply(guest(time.Now().Add(time.Second)))
	is("its time is over", 0)
	s.mustApply(guest(time.Now().Add(time.Hour)))
	is("it has more time", 1)
	s.mustApply(guest(time.Now().Add(-time.Hour)))
	is("its time was over before", 0)
}
