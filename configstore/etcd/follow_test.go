package etcd

import (
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
)

// patience is only used up when a test fails.
const patience = time.Minute

func cluster(name, network string) *catalog.Cluster { return storetest.Cluster(name, network) }

func clusterKey(name string) catalog.Key { return catalog.Key{Kind: catalog.KindCluster, Name: name} }

// eventually tries until it works.
func eventually(t testing.TB, try func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatal(err)
}
