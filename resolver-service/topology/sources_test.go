package topology_test

import (
	"slices"
	"testing"

	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances/consul"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances/etcd"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances/kubernetes"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances/static"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// TestSourcesByRank holds the sources to the order that docs promise, from the weakest.
func TestSourcesByRank(t *testing.T) {
	var ranks []topology.Rank
	for _, s := range []instances.Source{(*static.Source)(nil), (*consul.Source)(nil), (*kubernetes.Source)(nil), (*etcd.Source)(nil)} {
		ranks = append(ranks, s.Rank())
	}
	if !slices.IsSorted(ranks) || len(slices.Compact(ranks)) != 4 || ranks[3] != topology.Live {
		t.Errorf("ranks %v", ranks)
	}
}
