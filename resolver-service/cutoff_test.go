package resolverservice

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/configstore/consul"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/nameresolution"
	instances "github.com/isthmus-mesh/isthmus/resolver-service/sources/instances/consul"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// Two replicas share Consul and no etcd, so that neither knows what the other hears. When the peer is
// gone for both, a sidecar goes to the other once and stays there, with its view.
func TestReplicasWithoutEtcdTurnASidecarAwayOnce(t *testing.T) {
	server := serverstest.Start(t, servers.StartConsul, servers.ConsulOptions{})
	ca := identitytest.NewCA(t)
	var replicas [2]*running
	for i := range replicas {
		cfg := configOf(t, "west", ca)
		cfg.Replicas, cfg.Store = &Replicas{Name: fmt.Sprint("r", i)}, Store{Consul: &consul.Config{Address: server.URL()}}
		cfg.Instances.Consul = &instances.Config{Address: server.URL()}
		replicas[i] = start(t, cfg, ca)
	}
	east := start(t, configOf(t, "east", ca), ca)
	east.apply(export("west") + "---\n" + clusterOnly("west"))
	east.sidecar(orders, "10.1.0.1:50002")
	replicas[0].apply(clusterAt("east", east.Addr("gateway"), "3s") + "---\n" + selectsOrders)
	for _, r := range replicas {
		r.within("orders in east", func() bool { return strings.HasPrefix(r.resolve(checkout, orders), "ok") })
	}
	f := ca.Config(checkout).Files
	caller := nameresolution.New(nameresolution.Options{Logger: slog.New(slog.DiscardHandler)})
	err := caller.Init(t.Context(), map[string]any{
		"resolver": replicas[0].Addr("resolver").String() + "," + replicas[1].Addr("resolver").String(), "cluster": "west",
		"identity": map[string]any{"files": map[string]any{"cert": f.Cert, "key": f.Key, "ca": f.CA}},
	}, nameresolution.Instance{App: checkout, Address: "127.0.0.1", Port: 50001})
	if err != nil {
		t.Fatal(err)
	}
	defer caller.Close()
	if _, err := caller.ResolveID(t.Context(), orders); err != nil {
		t.Fatal(err)
	}
	left := func(r *running) (times int) {
		for _, e := range r.events.After(0, time.Time{}) {
			if e.Message == "sidecar left" && strings.Contains(fmt.Sprint(e.Fields), checkout.String()) {
				times += e.Count
			}
		}
		return times
	}
	at, other := replicas[0], replicas[1]
	at.within("the sidecar registered", func() bool {
		if other.resolver.stream.Instances() == 1 {
			at, other = other, at
		}
		return at.resolver.stream.Instances() == 1
	})
	before := left(at) // with a view alone
	if err := east.stop(); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*running{at, other} {
		r.within("it sends on a sidecar that knows another replica", func() bool {
			ctx, end := context.WithCancel(t.Context())
			defer end()
			stream, err := v1alpha1.NewResolverClient(r.connect(orders)).Watch(ctx)
			if err == nil {
				err = stream.Send(&v1alpha1.WatchRequest{Request: &v1alpha1.WatchRequest_Hello{Hello: &v1alpha1.Hello{App: wireApp(orders), HasOthers: true}}})
			}
			if err == nil {
				_, err = stream.Recv()
			}
			return err != nil && strings.Contains(err.Error(), "this replica does not hear east, and others may; another replica of the resolver service may be better")
		})
	}
	other.within("the sidecar is there", func() bool { return left(at) == before+1 && other.resolver.stream.Instances() == 1 })
	if d := caller.Explain(t.Context(), orders); len(d.Routes) == 0 {
		t.Errorf("the sidecar has lost its view: %+v", d)
	}
	if left(at) != before+1 || left(other) != 0 {
		t.Errorf("sidecars have left %d times and %d times; want %d and 0", left(at), left(other), before+1)
	}
}
