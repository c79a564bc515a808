package topology_test

import (
	"net/netip"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/consulapi"
	"github.com/isthmus-mesh/isthmus/resolver-service/instances/consul"
	"github.com/isthmus-mesh/isthmus/resolver-service/instances/etcd"
	"github.com/isthmus-mesh/isthmus/resolver-service/instances/kubernetes"
	"github.com/isthmus-mesh/isthmus/resolver-service/instances/static"
	"github.com/isthmus-mesh/isthmus/resolver-service/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// TestSourcesByTheirWord holds the names of sources to what their words are worth for what was
// there before.
func TestSourcesByTheirWord(t *testing.T) {
	weakestFirst := []string{
		static.Name, "another", (*consul.Source)(nil).Name(), (*kubernetes.Source)(nil).Name(), consulapi.Source, etcd.Name, stream.Source,
	}
	for i, strong := range weakestFirst[1:] {
		weak := weakestFirst[i]
		for _, order := range [][2]string{{weak, strong}, {strong, weak}} {
			g := topology.NewGraph(topology.Config{Cluster: "west", Domain: catalog.DefaultDomain, Open: true})
			g.Apply(topology.Change{Objects: &topology.ObjectChange{Full: true}})
			for _, source := range order {
				g.Apply(topology.Change{Instances: []topology.InstanceChange{{Source: source, Full: true, Standing: true, Put: []catalog.Instance{{
					ID: "1", App: catalog.App{Namespace: "shop", ID: source}, Address: netip.MustParseAddrPort("10.0.0.1:50002"),
				}}}}})
			}
			e, _ := g.Apply(topology.Change{Objects: &topology.ObjectChange{Put: []catalog.Object{&catalog.AppEndpoints{
				App: catalog.App{Namespace: "shop", ID: "checkout"}, Endpoints: []catalog.Endpoint{{App: catalog.App{Namespace: "shop", ID: strong}}},
			}}}})[0].Views[0].View.Entries.Get(catalog.App{Namespace: "shop", ID: strong})
			if e.Routes[0].Ready != 1 {
				t.Errorf("of %v, which say that another app is there, %s is not believed", order, strong)
			}
		}
	}
}
