package resolverservice

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// A service waits for its sources before it serves anybody, but not for ever; and says
// which is missing, and when it is there.
func TestASourceThatIsAwayAtTheStart(t *testing.T) {
	etcd := serverstest.Start(t, servers.StartEtcd, servers.EtcdOptions{})
	link, err := servers.NewProxy(etcd.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	link.Refuse()
	dir := t.TempDir()
	cfg, err := Parse("isthmus.yaml", fmt.Appendf(nil, "cluster: west\ndataDir: %s\nidentity: {insecure: true}\n"+
		"store: {etcd: {endpoints: ['%s']}}\ninstances: {etcd: {endpoints: ['%s'], ttl: 4s}}\nreplicas: {name: resolver-1}\n"+
		"listen: {resolver: '127.0.0.1:0', admin: '127.0.0.1:0'}\n", filepath.Join(dir, "data"), etcd.Addr(), link.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	west := launch(t, cfg, nil)
	west.within("not ready, and why", func() bool {
		code, body := west.get("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "not ready: source etcd: away for") && strings.Contains(body, link.Addr())
	})
	west.within("ready without it", func() bool {
		code, body := west.get("/readyz")
		return code == http.StatusOK && strings.Contains(body, "note: source etcd: away for")
	})
	t.Logf("ready without a source %s after the start", time.Since(begin).Round(10*time.Millisecond))
	west.sidecar(orders, "10.0.0.1:50002")
	if got := west.resolve(checkout, orders); got != "ok 10.0.0.1:50002" {
		t.Errorf("a lookup while the source is away: %s", got)
	}
	if err := link.Mend(); err != nil {
		t.Fatal(err)
	}
	west.within("nothing to note", func() bool {
		_, body := west.get("/readyz")
		return body == "ok\n"
	})
	status := west.status()
	var names []string
	for _, s := range status.GetSources() {
		names = append(names, fmt.Sprintf("%s %t %d", s.GetName(), s.GetReady(), s.GetInstances()))
	}
	if want := []string{"stream true 1", "static true 0", "etcd true 0"}; status.GetReplica() != "resolver-1" || !slices.Equal(names, want) {
		t.Errorf("replica %q with sources %v; want resolver-1 with %v", status.GetReplica(), names, want)
	}
	client := clientOf(t, etcd)
	west.within("what registered meanwhile is shared", func() bool {
		answer, err := client.Get(t.Context(), "isthmus-instances/v1/west/shop/orders/", clientv3.WithPrefix())
		return err == nil && len(answer.Kvs) == 1
	})
}
