package stream_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// moves tells a replica that what registers with it has gone to another.
type moves struct{ taken chan func() }

func (m moves) Register(_ catalog.Instance, taken func()) { m.taken <- taken }
func (m moves) Drain(topology.InstanceKey)                {}
func (m moves) Withdraw(topology.InstanceKey)             {}

// A sidecar that is turned away goes to the other replica, and its instance is in the views of the
// first until it is known to be there.
func TestASidecarThatIsTurnedAwayGoesToAnotherReplica(t *testing.T) {
	share := moves{make(chan func(), 1)}
	first := start(t, stream.Config{Share: share}, "127.0.0.1:0")
	second := start(t, stream.Config{}, anAddress(t))
	second.server.TurnAway("this replica does not hear east", true)
	o := sidecarOf(t, first.address+","+second.address, orders, 50002, nil)
	taken := <-share.taken
	second.server.TurnAway("", true)
	caller := sidecarOf(t, second.address, checkout, 50001, nil)
	caller.finds(orders, "not found")

	first.server.TurnAway("this replica does not hear east", true)
	caller.finds(orders, "127.0.0.1:50002")
	o.finds(checkout, "127.0.0.1:50001")
	if n := first.server.Instances(); n != 1 {
		t.Fatalf("the first replica has %d instances before it knows of the move; want 1", n)
	}
	taken()
	first.hasInstances(0)
}

// hasInstances waits until so many are registered.
func (s *service) hasInstances(want int) {
	s.t.Helper()
	for end := time.Now().Add(patience); s.server.Instances() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("the replica has %d instances; want %d", s.server.Instances(), want)
		}
	}
}

// journal is the events of a replica, as text.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

// left is how often sidecars of an app have left.
func (j *journal) left(app catalog.App) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.text.String(), fmt.Sprintf("msg=\"sidecar left\" app=%s ", app))
}

// Two replicas tell each other nothing and both lose a peer. A sidecar that knows both goes from one to
// the other once and is kept there. One that knows a single replica stays.
func TestASidecarGoesToAnotherReplicaOnceWhereNobodyKnowsABetterOne(t *testing.T) {
	var replicas [2]*service
	var journals [2]journal
	for i := range replicas {
		replicas[i] = start(t, stream.Config{Events: slog.New(slog.NewTextHandler(&journals[i], nil))}, anAddress(t))
		// What a sidecar finds shows which replica it follows.
		sidecarOf(t, replicas[i].address, orders, 50010+i, nil)
		replicas[i].hasInstances(1)
	}
	caller := sidecarOf(t, replicas[0].address+","+replicas[1].address, checkout, 50001, nil)
	ctx, end := t.Context(), make(chan struct{})
	first, err := caller.ResolveID(ctx, orders)
	if err != nil {
		t.Fatal(err)
	}
	var lookups sync.WaitGroup
	defer lookups.Wait()
	defer close(end)
	lookups.Go(func() {
		for {
			select {
			case <-end:
				return
			case <-time.After(time.Millisecond):
			}
			if _, err := caller.ResolveID(ctx, orders); err != nil && ctx.Err() == nil {
				t.Errorf("a lookup failed: %v", err)
				return
			}
		}
	})
	at := 0
	if first == "127.0.0.1:50011" {
		at = 1
	}
	for _, i := range []int{at, 1 - at} {
		replicas[i].server.TurnAway("this replica does not hear east, and others may", false)
		caller.finds(orders, fmt.Sprintf("127.0.0.1:%d", 50010+1-at))
	}
	// The same once more, in another outage soon after.
	for _, r := range replicas {
		r.server.TurnAway("", false)
		r.server.TurnAway("this replica does not hear east, and others may", false)
	}
	// One that starts meanwhile is sent on once, and then served.
	starting := sidecarOf(t, replicas[0].address+","+replicas[1].address, catalog.App{Namespace: "shop", ID: "billing"}, 50002, nil)
	if _, err := starting.ResolveID(ctx, orders); err != nil {
		t.Error(err)
	}
	news := catalog.App{Namespace: "shop", ID: "stock"}
	sidecarOf(t, replicas[1-at].address, news, 50020, nil)
	caller.finds(news, "127.0.0.1:50020") // it follows that replica still
	for i := range journals {
		want := 0
		if i == at {
			want = 1
		}
		if got := journals[i].left(checkout); got != want || journals[i].left(orders) != 0 {
			t.Errorf("replica %d: the sidecar with two replicas has left %d times, want %d; the one with one %d times", i, got, want, journals[i].left(orders))
		}
	}
}
