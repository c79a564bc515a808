package stream

import (
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

func TestHowCallersWithoutAServerNameGetThere(t *testing.T) {
	const at = "203.0.113.8:50002"
	doubled := topology.SharedGateway{Address: at, Cluster: "north", App: catalog.App{Namespace: "shop", ID: "ledger"}}
	many := make([]topology.SharedGateway, 10)
	for i := range many {
		many[i] = topology.SharedGateway{Address: at, Cluster: "north"}
	}
	for _, c := range []struct {
		says     topology.ClusterReport
		answered bool
		want     string
		without  string
	}{
		{topology.ClusterReport{}, false, "", "refused"},
		{topology.ClusterReport{}, true, "refused: the Cluster object lists no gateway for this app alone", "by "},
		{topology.ClusterReport{Gateways: []string{at, "203.0.113.9:50002"}}, false, "by 203.0.113.8:50002, 203.0.113.9:50002", ";"},
		{topology.ClusterReport{Gateways: []string{at}, Shared: []topology.SharedGateway{doubled}}, true, "by 203.0.113.8:50002; the Cluster object north has 203.0.113.8:50002 for shop/ledger, and it leads to one app of one cluster: correct spec.gateways", "all apps"},
		{topology.ClusterReport{Gateways: []string{at}, Shared: many}, true, "for all apps, ", "for /"},
		{topology.ClusterReport{Gateways: []string{at}, Shared: many}, true, "; 7 more", "8 more"},
	} {
		if got := unnamed(c.says, c.answered); !strings.Contains(got, c.want) || strings.Contains(got, c.without) {
			t.Errorf("%+v: %q; want %q in it, and not %q", c.says, got, c.want, c.without)
		}
	}
}
