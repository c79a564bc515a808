package xds

import (
	"slices"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// TestEndpointsWaitForAClusterThatIsAsked: a client has none until the cluster has answered, and none are
// there only once it should have.
func TestEndpointsWaitForAClusterThatIsAsked(t *testing.T) {
	for _, delta := range []bool{false, true} {
		for _, answers := range []bool{true, false} {
			x := start(t, Settings{}, cluster("east", "203.0.113.7:15443"))
			need, err := x.topology.Need(t.Context(), "east")
			if err != nil {
				t.Fatal(err)
			}
			defer need.Close()
			x.apply(topology.Change{Peers: []topology.PeerChange{{Cluster: "east", Lease: topology.Fresh, Put: []topology.PeerExport{{App: shop("orders"), Allow: []catalog.Allow{{}}, Ready: 1, Named: true}}}}})
			began := time.Now()
			x.apply(topology.Change{Objects: &topology.ObjectChange{Put: []catalog.Object{selects("checkout", endpoint("orders"))}}})
			c := x.connect(t, shop("checkout"), delta)
			name := "orders.shop"
			c.follow(clusters, name)
			c.follow(endpoints, name)
			if answers {
				time.Sleep(50 * time.Millisecond)
				x.exports("east", shop("orders"), 1)
			}
			c.until("endpoints", func() bool { return c.have[endpoints][name] != nil })
			got, want := c.endpointsOf(name), []string{"0 east x1: 203.0.113.7:15443"}
			if took := time.Since(began); !answers {
				if want = nil; took < time.Second {
					t.Errorf("delta %v: that nothing is there comes after %s", delta, took)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("delta %v, answered %v: %q; responses %q", delta, answers, got, c.order)
			}
			x.stop()
		}
	}
}
