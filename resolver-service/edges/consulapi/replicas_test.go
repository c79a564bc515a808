package consulapi

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// ahead is a time that no machine's clock has, so that those after it count up from it.
const ahead = 1 << 50

// others are the other replicas.
type others struct {
	said  []string
	taken func()
	last  int64
}

func (o *others) Share(i catalog.Instance, restored bool, taken func()) {
	o.last = i.Since

	what := "share "
	if restored {
		what = "restore "
	}
	o.said, o.taken = append(o.said, fmt.Sprintf("%s%s of %d", what, i.ID, i.Since-ahead)), taken
}

func (o *others) Withdraw(key topology.InstanceKey) { o.said = append(o.said, "withdraw "+key.ID) }

// TestReplicasAreTold of what is registered, and one lets go of what registers with another.
func TestReplicasAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &others{}
		r := newRegistry(&counting{}, o, newStore("", slog.New(slog.DiscardHandler)), newNode("n", "127.0.0.1", "west"), DefaultPortMeta, new(atomic.Uint64), slog.New(slog.DiscardHandler))
		r.clock.Heard(ahead)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.run(ctx) }()
		synctest.Wait()
		for _, id := range []string{"a", "b"} {
			if err := r.register(ctx, shop("orders"), &api.AgentServiceRegistration{ID: id, Name: "orders", Port: len(o.said) + 1}, netip.MustParseAddr("10.0.0.1")); err != nil {
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
		if got := strings.Join(o.said, ", "); got != "share a of 1, share b of 2, withdraw a, withdraw b" {
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

// TestReplicasAreToldWhatIsRestored, since when it is registered, and that one which registers
// once more has come here last, whether it has changed or not.
func TestReplicasAreToldWhatIsRestored(t *testing.T) {
	dir, sender := t.TempDir(), netip.MustParseAddr("10.0.0.1")
	service := func() *api.AgentServiceRegistration {
		return &api.AgentServiceRegistration{ID: "a", Name: "orders", Port: 1, Checks: api.AgentServiceChecks{{CheckID: "c", TTL: "1h"}}}
	}
	o := &others{}
	register := func(r *registry) {
		t.Helper()
		if err := r.register(t.Context(), shop("orders"), service(), sender); err != nil {
			t.Fatal(err)
		}
	}
	pass := func(r *registry) {
		t.Helper()
		if err := r.update(t.Context(), shop("orders"), "c", passing, ""); err != nil {
			t.Fatal(err)
		}
	}
	r := lone(o, dir)
	r.clock.Heard(ahead + 41)
	register(r)
	pass(r)
	again := lone(o, dir)
	again.restore(again.store.load(again.log))
	if err := again.publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	register(again)
	want := "share a of 42, share a of 42, restore a of 42, share a of 43"
	if got := strings.Join(o.said, ", "); got != want {
		t.Errorf("told: %s, want %s", got, want)
	}
}

// TestWhatRegistersWhileItIsLetGoOfStays, whichever of the two is first.
func TestWhatRegistersWhileItIsLetGoOfStays(t *testing.T) {
	o := &others{}
	r := lone(o, "")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.run(ctx) }()
	register := func(port int) {
		if err := r.register(ctx, shop("orders"), &api.AgentServiceRegistration{ID: "a", Name: "orders", Port: port}, netip.MustParseAddr("10.0.0.1")); err != nil {
			t.Error(err)
		}
	}
	for n := range 1000 {
		register(1 + 2*n)
		l := lost{key: topology.InstanceKey{App: shop("orders"), ID: "a"}, at: o.last}
		var both sync.WaitGroup
		both.Go(func() { r.letGo(ctx, l) })
		both.Go(func() { register(2 + 2*n) })
		both.Wait()
		if all, _ := r.own(shop("orders")).roster.Load(); len(all.services) != 1 {
			t.Fatalf("round %d: what has registered is gone", n)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
