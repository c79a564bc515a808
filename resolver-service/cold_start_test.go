package resolverservice

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/nameresolution"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// All replicas start, and nobody has settled for as long as rejoinAfterOutage. A sidecar that came
// early, and comes back to register, must not have its view stand still for so long: which
// is longer here than even a slow machine takes for all else.
func TestAtAColdStartOfAllReplicasViewsFollow(t *testing.T) {
	t.Parallel()
	const rejoinAfterOutage = 2 * patience
	etcd := serverstest.Start(t, servers.StartEtcd, servers.EtcdOptions{})
	var replicas []*replicaProcess
	for _, name := range []string{"r1", "r2"} {
		p := newReplica(t, "west", name, etcd.Addr(), "")
		p.rejoinAfterOutage = rejoinAfterOutage.String()
		replicas = append(replicas, p)
	}
	start := func() {
		for _, p := range replicas {
			p.start()
		}
	}
	start()
	follows := func(port int) {
		began := time.Now()
		isReady := make(chan struct{})
		early := &caller{app: checkout, Resolver: nameresolution.New(nameresolution.Options{
			Logger: slog.New(slog.DiscardHandler),
			Health: func(ctx context.Context, turn func(error)) {
				select {
				case <-isReady:
					turn(nil)
				case <-ctx.Done():
				}
			},
		})}
		configuration := map[string]any{
			"resolver": replicas[0].resolver + ", " + replicas[1].resolver, "cluster": "west",
			"identity": map[string]any{"insecure": true}, "resolveTimeout": "10s",
		}
		if err := early.Init(t.Context(), configuration, nameresolution.Instance{App: checkout, Address: "127.0.0.1", Port: port}); err != nil {
			t.Fatal(err)
		}
		defer early.Close()
		_, _ = early.ResolveID(t.Context(), orders) // waits for its first view
		close(isReady)                              // daprd is: it comes back to register
		serverstest.Await(t, "the early one is registered", func() bool {
			return !slices.ContainsFunc(replicas, func(p *replicaProcess) bool {
				return !strings.Contains(p.view(orders), fmt.Sprint("127.0.0.1:", port))
			})
		})
		time.Sleep(time.Second) // for the replicas to have other news than that
		served := sidecarAt(t, replicas, orders, port+1)
		defer served.Close()
		came := time.Now()
		serverstest.Await(t, "the early one finds orders", func() bool {
			address, err := early.ResolveID(t.Context(), orders)
			return err == nil && strings.HasPrefix(address, "127.0.0.1:")
		})
		if time.Since(began) > rejoinAfterOutage {
			t.Errorf("a view stood still until the replicas had settled, for %s", time.Since(began))
		}
		t.Logf("an instance was found %s after it came", time.Since(came).Round(time.Millisecond))
	}
	follows(50001)

	// The same for who starts after all were away for longer than their leases.
	for _, p := range replicas {
		p.end(syscall.SIGKILL)
	}
	time.Sleep(overLeases)
	start()
	follows(50011)
}
