package resolverservice

import (
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// TestAnotherClusterOfTheSameNameIsToldOf: two clusters are called west, and share the keys of
// one etcd since neither has a prefix.
func TestAnotherClusterOfTheSameNameIsToldOf(t *testing.T) {
	etcd := serverstest.Start(t, servers.StartEtcd, servers.EtcdOptions{})
	replica := func(name, domain string) *running {
		cfg, err := Parse("isthmus.yaml", []byte(fmt.Sprintf("cluster: west\ndomain: %s\ndataDir: %s/data\nidentity: {insecure: true}\n"+
			"listen: {resolver: '127.0.0.1:0', admin: '127.0.0.1:0'}\nstore: {etcd: {endpoints: ['%s'], prefix: %[1]s/}}\n"+
			"instances: {etcd: {endpoints: ['%[3]s']}}\nreplicas: {name: %s}\n", domain, t.TempDir(), etcd.Addr(), name)))
		if err != nil {
			t.Fatal(err)
		}
		return start(t, cfg, nil)
	}
	one, other := replica("r1", "one.internal"), replica("r2", "other.internal")
	other.sidecar(orders, "127.0.0.21:50002")
	for r, want := range map[*running]string{one: `its domain is "other.internal", and here "one.internal"`, other: `its domain is "one.internal", and here "other.internal"`} {
		r.within(want, func() bool {
			for _, s := range r.status().GetSources() {
				for _, refused := range s.GetRefused() {
					if strings.Contains(refused.GetError(), want) {
						return true
					}
				}
			}
			return false
		})
	}
	one.within("what the other has is taken in all the same", func() bool { return one.topology.Resolve(checkout, orders).Address == "127.0.0.21:50002" })
}
