package consulapi

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// TestAQueryWaitsForAClusterThatIsAsked, blocking or not, until it has answered or should have.
func TestAQueryWaitsForAClusterThatIsAsked(t *testing.T) {
	for _, answers := range []bool{true, false} {
		east := &catalog.Cluster{Name: "east", Gateways: []string{"203.0.113.7:15443"}}
		i := ours(t, east)
		need, err := i.topology.Need(t.Context(), "east")
		if err != nil {
			t.Fatal(err)
		}
		defer need.Close()
		says := func(named bool) {
			export := topology.PeerExport{App: shop("orders"), Allow: []catalog.Allow{{}}, Ready: 1, Named: named}
			if _, err := i.topology.Apply(t.Context(), topology.Change{Peers: []topology.PeerChange{{Cluster: "east", Lease: topology.Fresh, Put: []topology.PeerExport{export}}}}); err != nil {
				t.Fatal(err)
			}
		}
		says(true)
		i.apply(t, east, selection("checkout", catalog.Endpoint{App: shop("orders")}))
		got := make(chan string, 2)
		for _, query := range []string{"", "&index=1&wait=10s"} {
			go func() { got <- i.do(t, "checkout", "GET", "/v1/health/service/orders?passing"+query, "").body }()
		}
		select {
		case body := <-got:
			t.Errorf("at once %s", body)
		case <-time.After(50 * time.Millisecond):
		}
		if answers {
			says(false)
		}
		for range 2 {
			if body := <-got; strings.Contains(body, "203.0.113.7") != answers {
				t.Errorf("answered %v: %s", answers, body)
			}
		}
	}
}
