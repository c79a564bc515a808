package system

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// target is an app in the other cluster, as a caller names it.
type target struct {
	app  catalog.App
	id   string
	grpc bool
}

// daprd pools connections by address alone and looks at the other side's certificate
// only when it connects. So apps behind one gateway must never share an address: with
// a shared one, calls over a warm connection reach the wrong app.
func TestTwoAppsBehindOneGatewayNeverAnswerEachOthersCalls(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	targets := []target{
		{catalog.App{Namespace: "talk", ID: "orders"}, "orders", false},
		{catalog.App{Namespace: "talk", ID: "payments"}, "payments", false},
		{catalog.App{Namespace: "talk-finance", ID: "orders"}, "orders.talk-finance", false}, // same app-id
		{catalog.App{Namespace: "talk", ID: "quotes"}, "quotes", true},
		{catalog.App{Namespace: "talk-finance", ID: "quotes"}, "quotes.talk-finance", true},
	}
	for _, to := range targets {
		m.apply(t, m.east, export(to.app.Namespace, to.app.ID, "west"))
		m.sidecar(t, m.east, sandbox.SidecarOptions{App: to.app, GRPC: to.grpc})
	}
	var all callers
	for _, id := range []string{"checkout", "cart"} {
		endpoints := make([]string, len(targets))
		for i, to := range targets {
			endpoints[i] = fmt.Sprintf("app: %s, namespace: %s", to.app.ID, to.app.Namespace)
		}
		m.apply(t, m.west, selection("talk", id, endpoints...))
		all = append(all, m.caller(t, "talk", id, targets))
	}

	for name, from := range map[string]callers{"one caller": all[:1], "two callers": all} {
		const workers, each = 6, 250
		t.Run(name, func(t *testing.T) { from.interleave(t, targets, workers, each) })
	}
}

// callers call every target by both of daprd's APIs.
type callers []func(context.Context, target) (*sandbox.Reply, error)

// caller starts a sidecar, and returns once it reaches every target.
func (m *mesh) caller(t *testing.T, namespace, id string, targets []target) func(context.Context, target) (*sandbox.Reply, error) {
	t.Helper()
	s := m.app(t, m.west, namespace, id)
	conn, err := s.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := func(ctx context.Context, to target) (*sandbox.Reply, error) {
		if to.grpc {
			return sandbox.Proxy(ctx, conn, to.id, nil)
		}
		return s.Invoke(ctx, to.id, "hello", untraced)
	}
	for _, to := range targets {
		meshtest.Eventually(t, meshtest.Patience, func() error {
			_, err := c(meshtest.Within(t, meshtest.Attempt), to)
			return err
		})
	}
	return c
}

// interleave calls targets in random order from many goroutines at once.
func (from callers) interleave(t *testing.T, targets []target, workers, each int) {
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for range each {
				to := targets[rand.IntN(len(targets))]
				reply, err := from[w%len(from)](meshtest.Within(t, callTimeout), to)
				if err != nil {
					t.Error(err)
					return
				}
				if got := (catalog.App{Namespace: reply.Namespace, ID: reply.App}); got != to.app || reply.Cluster != "east" {
					t.Errorf("a call of %s was answered by %s in %s", to.app, got, reply.Cluster)
				}
			}
		})
	}
	start := time.Now()
	wg.Wait()
	t.Logf("%d calls in %s to %d apps behind one gateway", workers*each, time.Since(start).Round(time.Millisecond), len(targets))
}
