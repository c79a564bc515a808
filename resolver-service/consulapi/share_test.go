package consulapi

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// others are the other replicas.
type others struct {
	said  []string
	taken func()
}

func (o *others) Register(i catalog.Instance, taken func()) {
	o.said, o.taken = append(o.said, "register "+i.ID), taken
}

func (o *others) Withdraw(key topology.InstanceKey) { o.said = append(o.said, "withdraw "+key.ID) }

// TestReplicasAreTold of what is registered, and one lets go of what registers with another.
func TestReplicasAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &others{}
		r := newRegistry(&counting{}, o, &store{}, newNode("n", "127.0.0.1", "west"), DefaultPortMeta, new(atomic.Uint64), slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.run(ctx) }()
		synctest.Wait()
		for _, id := range []string{"a", "b"} {
			if err := r.register(ctx, shop("orders"), &serviceDefinition{ID: id, Name: "orders", Port: len(o.said) + 1}, netip.MustParseAddr("10.0.0.1"), false); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.deregister(ctx, shop("orders"), "a"); err != nil {
			t.Fatal(err)
		}
		o.taken()
		synctest.Wait()
		if all, _ := r.own(shop("orders")).roster.Load(); len(all.services) != 0 {
			t.Error("b is kept, which has registered with another replica")
		}
		if got := strings.Join(o.said, ", "); got != "register a, register b, withdraw a, withdraw b" {
			t.Errorf("told: %s", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestAReplicaAloneRefuses what the others would never know.
func TestAReplicaAloneRefuses(t *testing.T) {
	i := ours(t)
	i.server.cfg.Alone = "share it by instances.etcd"
	if r := i.do(t, "checkout", "PUT", "/v1/agent/service/register", `{"Name":"checkout"}`); r.code != 500 || r.body != i.server.cfg.Alone {
		t.Errorf("%+v", r)
	}
}
