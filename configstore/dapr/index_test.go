package dapr

import (
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
)

// TestRedisThatLosesItsIndexTakesNothingAway: a sidecar reads by the index alone, and what
// it has is deleted only when its own key is.
func TestRedisThatLosesItsIndexTakesNothingAway(t *testing.T) {
	r, prefix := startRedis(t), newPrefix()
	c := Config{Component: yamlOf(t, kindRedis, r.settings("", redisPassword)), Prefix: prefix, Heartbeat: 100 * time.Millisecond, Rescan: 200 * time.Millisecond}
	w := opened(t, c)
	storetest.Put(t, w, cluster("east", "a"), cluster("west", "a"))
	s := openStore(t, c, configstore.Scope{App: catalog.App{Namespace: "shop", ID: "checkout"}})
	t.Cleanup(func() { _ = s.Close() })
	got := storetest.Watch(t, s, "")
	got.AwaitClusters("east=a west=a")
	if err := r.admin.Del(t.Context(), prefix+indexPath+"Cluster").Err(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	got.AwaitClusters("east=a west=a")
	r.admin.Del(t.Context(), prefix+westPath)
	got.AwaitClusters("east=a")
}
