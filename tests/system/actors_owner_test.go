package system

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/stalls"
)

// refused waits until a call of an actor is refused with these words.
func (m *actorMesh) refused(t *testing.T, by *sandbox.Sidecar, actor string, words ...string) {
	t.Helper()
	meshtest.Eventually(t, meshtest.Patience, func() error {
		got, err := callActor(meshtest.Within(t, meshtest.Patience), by.Daprd, actor, "echo", nil, nil)
		for _, w := range words {
			if err == nil && (got.code == 200 || !strings.Contains(got.body, w)) {
				err = fmt.Errorf("%s answers %d %s; want %q", actor, got.code, got.body, w)
			}
		}
		return err
	})
}

// TestATypeHasOneOwner changes who owns a type, and who selects it, while everything runs.
func TestATypeHasOneOwner(t *testing.T) {
	t.Parallel()
	m := startActorMesh(t, false)
	pids := []int{m.host.PID(), m.checkout.PID(), m.neighbour.PID()}

	t.Run("two owners are an error that names both, and nothing is bridged", func(t *testing.T) {
		second := strings.NewReplacer("owner: east", "owner: west", "name: cart", "name: cart-here").Replace(cartsOfEast)
		m.apply(t, m.west, second)
		m.refused(t, m.checkout, "Cart/1", "has two owners", "ActorType shop/cart in cluster east", "ActorType shop/cart-here in cluster west")
		if _, errs, err := m.isthmus(t, m.west, "", "delete", "actortype", "shop/cart-here"); err != nil {
			t.Fatal(err, errs)
		}
		m.reach(t, m.checkout.Daprd, "Cart/1")
	})
	t.Run("a type that an app here hosts, too, is not bridged", func(t *testing.T) {
		local := startActors(t, "Cart", false)
		twin := m.sidecar(t, m.west, sandbox.SidecarOptions{App: m.app("twin"), AppAddress: local.address})
		meshtest.Eventually(t, meshtest.Patience, func() error {
			before := m.carts.calls.Load()
			for i := range 20 {
				_, err := callActor(meshtest.Within(t, meshtest.Attempt), m.checkout.Daprd, fmt.Sprintf("Cart/two-%d", i), "echo", nil, nil)
				if err != nil {
					return err
				}
			}
			if n := m.carts.calls.Load() - before; n > 0 {
				return fmt.Errorf("%d of 20 calls were bridged", n)
			}
			return nil
		})
		log, err := os.ReadFile(m.bridge.LogFile())
		if text := string(log); err != nil || !strings.Contains(text, "hosted here, too") || !strings.Contains(text, "app shop/twin at") || !strings.Contains(text, "owner=east") {
			t.Errorf("the bridge does not name both places: %v", err)
		}
		if err := twin.Kill(); err != nil {
			t.Fatal(err)
		}
		m.reach(t, m.checkout.Daprd, "Cart/1")
	})
	t.Run("another type comes without a restart of anything", func(t *testing.T) {
		vouchers := startActors(t, "Voucher", false)
		m.apply(t, m.east, strings.NewReplacer("type: Cart", "type: Voucher", "name: cart", "name: voucher").Replace(cartsOfEast))
		m.sidecar(t, m.east, sandbox.SidecarOptions{App: m.app("vouchers"), AppAddress: vouchers.address})
		m.apply(t, m.west, callsCarts+"  - {type: Voucher, routes: [{cluster: east}]}\n")
		m.reach(t, m.checkout.Daprd, "Voucher/1")
		m.reach(t, m.checkout.Daprd, "Cart/1")
	})
	t.Run("an owner that drains takes no new calls, and leaves when it is gone", func(t *testing.T) {
		m.apply(t, m.east, cartsOfEast+"  draining: true\n")
		m.refused(t, m.checkout, "Cart/1", "ERR_ISTHMUS_UNAVAILABLE", "takes no new calls")
		m.reach(t, m.neighbour.Daprd, "Cart/1") // within the cluster, Dapr decides
		if _, errs, err := m.isthmus(t, m.east, "", "delete", "actortype", "shop/cart"); err != nil {
			t.Fatal(err, errs)
		}
		m.refused(t, m.checkout, "Cart/1", "no cluster that this one hears exports the actor type Cart")
		m.apply(t, m.east, cartsOfEast)
		m.reach(t, m.checkout.Daprd, "Cart/1")
	})
	t.Run("an owner cluster that is down is said within a second of its lease", func(t *testing.T) {
		const lease = 2 * time.Second
		m.apply(t, m.west, meshtest.ClusterThatLapses(lease, "east", m.east.Gateway))
		m.reach(t, m.checkout.Daprd, "Cart/1")
		watch, start := stalls.Begin(t), time.Now()
		if err := m.east.Kill(); err != nil {
			t.Fatal(err)
		}
		m.refused(t, m.checkout, "Cart/1", "ERR_ISTHMUS_STALE", "its lease has run out; nothing else may run these actors")
		if took := time.Since(start); took > lease+time.Second+10*watch.Longest(start) {
			t.Errorf("it is said %s after the owner was lost", took)
		}
		m.apply(t, m.west, strings.NewReplacer("owner: east", "owner: west").Replace(cartsOfEast))
		m.refused(t, m.checkout, "Cart/1", "has two owners", "in cluster east says cluster east") // it may run its actors
	})
	for i, s := range []*sandbox.Sidecar{m.host, m.checkout, m.neighbour} {
		if s.PID() != pids[i] {
			t.Errorf("%s was restarted", s.App)
		}
	}
}

// TestATypeMovesToAnotherCluster, in the steps of docs/how-to/actors.md, while both clusters call.
func TestATypeMovesToAnotherCluster(t *testing.T) {
	t.Parallel()
	m := startActorMesh(t, false)
	m.apply(t, m.east, strings.Replace(callsCarts, "checkout", "neighbour", 1))
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	defer callers.Wait()
	defer stop()
	for _, by := range []*sandbox.Sidecar{m.checkout, m.neighbour} {
		callers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				within, cancel := context.WithTimeout(ctx, meshtest.Attempt)
				_, _ = callActor(within, by.Daprd, fmt.Sprintf("Cart/moving-%d", i%50), "slow", nil, nil) // some are refused
				cancel()
			}
		})
	}
	m.apply(t, m.east, cartsOfEast+"  draining: true\n")
	m.refused(t, m.checkout, "Cart/1", "takes no new calls")
	if err := m.host.Stop(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, errs, err := m.isthmus(t, m.east, "", "delete", "actortype", "shop/cart"); err != nil {
		t.Fatal(err, errs)
	}
	m.refused(t, m.checkout, "Cart/1", "no cluster that this one hears exports the actor type Cart")
	moved := startActors(t, "Cart", false)
	m.sidecar(t, m.west, sandbox.SidecarOptions{App: m.app("carts"), AppAddress: moved.address})
	m.apply(t, m.west, strings.NewReplacer("owner: east", "owner: west", "cluster: west, app: checkout", "cluster: east, app: neighbour").Replace(cartsOfEast))
	m.reach(t, m.checkout.Daprd, "Cart/1")
	m.reach(t, m.neighbour.Daprd, "Cart/1")
	stop()
	callers.Wait()
	if first, last := moved.first.Load(), m.carts.last.Load(); last == 0 || first <= last {
		t.Errorf("the new owner ran an actor %s before the old one's last was done", time.Duration(last-first))
	}
	if n := moved.overlaps.Load(); n > 0 {
		t.Errorf("%d calls ran beside another of their actor", n)
	}
}

// TestAReentrantCallPassesBothWays has an actor of one cluster call one of the other, which calls back.
func TestAReentrantCallPassesBothWays(t *testing.T) {
	t.Parallel()
	m := startActorMesh(t, true)
	baskets := startActors(t, "Basket", true)
	m.apply(t, m.east, cartsOfEast+"  - {cluster: west, app: baskets}\n", strings.NewReplacer("checkout", "carts", "Cart", "Basket").Replace(callsCarts))
	m.apply(t, m.west, strings.NewReplacer("Cart", "Basket", "name: cart", "name: basket", "owner: east", "owner: west", "cluster: west, app: checkout", "cluster: east, app: carts").Replace(cartsOfEast),
		strings.Replace(callsCarts, "checkout", "baskets", 1))
	host := m.sidecar(t, m.west, sandbox.SidecarOptions{App: m.app("baskets"), AppAddress: baskets.address})
	calls := func(by *sandbox.Daprd, actor, method string) *func(context.Context, http.Header) error {
		f := func(ctx context.Context, from http.Header) error {
			id := from.Get("Dapr-Reentrancy-Id")
			if id == "" {
				return errors.New("the call has no Dapr-Reentrancy-Id")
			}
			got, err := callActor(ctx, by, actor, method, nil, http.Header{"Dapr-Reentrancy-Id": {id}})
			if err == nil && got.code != 200 {
				err = fmt.Errorf("%s answers %d %s", actor, got.code, got.body)
			}
			return err
		}
		return &f
	}
	baskets.back.Store(calls(host.Daprd, "Cart/1", "callback"))
	m.carts.back.Store(calls(m.host.Daprd, "Basket/1", "echo"))
	m.reach(t, m.host.Daprd, "Basket/other")
	m.reach(t, host.Daprd, "Cart/other")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	before := baskets.calls.Load()
	got, err := callActor(ctx, m.checkout.Daprd, "Basket/1", "callback", nil, nil)
	if err != nil || got.code != 200 || baskets.calls.Load()-before != 2 {
		t.Errorf("%d %s, %v, with %d calls of the basket; want 200 with two, one within the other", got.code, got.body, err, baskets.calls.Load()-before)
	}
}

// bridged is how many calls a bridge has passed on for apps of its cluster.
func bridged(t *testing.T, by *sandbox.Bridge) int {
	t.Helper()
	res, err := http.Get("http://" + by.Metrics + "/metrics")
	if err != nil {
		t.Error(err)
		return 0
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	at := regexp.MustCompile(`(?m)^isthmus_actor_calls_total\{direction="out",outcome="ok",type="Cart"\} (\d+)$`).FindSubmatch(text)
	if at == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(at[1]))
	return n
}

// TestABridgeReplicaIsLost kills one of two replicas under calls of 4,000 actors, and has another come.
func TestABridgeReplicaIsLost(t *testing.T) {
	t.Parallel()
	m := startActorMesh(t, false)
	second := m.startBridge(t, m.west, "-2")
	early := 0
	meshtest.Eventually(t, meshtest.Patience, func() error { // until checkout's sidecar knows of both replicas
		early++
		got, err := callActor(t.Context(), m.checkout.Daprd, fmt.Sprintf("Cart/early-%d", early), "echo", []byte("hello"), nil)
		if err == nil && (got.code != 200 || bridged(t, second) == 0) {
			err = fmt.Errorf("call %d answers %d %s, and the second replica has passed on none", early, got.code, got.body)
		}
		return err
	})
	const actors, workers = 4_000, 16
	var next, failed, lost, shared atomic.Int64
	var killed, enough atomic.Bool
	var firstFailure, lastFailure atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := next.Add(1); (i <= actors || !enough.Load()) && t.Context().Err() == nil; i = next.Add(1) {
				actor := fmt.Sprintf("Cart/%d", i)
				if i == actors/4 {
					shared.Store(int64(bridged(t, second)))
					killed.Store(true)
					if err := second.Kill(); err != nil {
						t.Error(err)
					}
				}
				got, err := callActor(t.Context(), m.checkout.Daprd, actor, "echo", []byte("hello"), nil)
				if err == nil && got.code == 200 {
					continue
				}
				if !killed.Load() {
					t.Errorf("before a replica was lost, %s answers %d %s, %v", actor, got.code, got.body, err)
				}
				failed.Add(1)
				firstFailure.CompareAndSwap(0, time.Now().UnixMilli())
				lastFailure.Store(time.Now().UnixMilli())
				if got, err := callActor(t.Context(), m.checkout.Daprd, actor, "echo", []byte("hello"), nil); err != nil || got.code != 200 {
					lost.Add(1)
				}
			}
		})
	}
	defer wg.Wait()
	defer enough.Store(true)
	made := func(n int64) {
		meshtest.Eventually(t, meshtest.Patience, func() error {
			if is := next.Load(); is < n {
				return fmt.Errorf("%d calls were made, want %d", is, n)
			}
			return nil
		})
	}
	made(actors / 2)
	third := m.startBridge(t, m.west, "-3")
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if bridged(t, third) == 0 {
			return errors.New("the replica that came has passed on no call")
		}
		return nil
	})
	came, before := next.Load(), bridged(t, third)
	made(came + actors/10)
	if n, of := int64(bridged(t, third)-before), next.Load()-came; n < of/20 {
		t.Errorf("the replica that came has passed on %d of %d calls, want its share", n, of)
	}
	enough.Store(true)
	wg.Wait()
	t.Logf("of %d calls of as many actors, %d failed as a replica was killed and one came, for %d ms; %d of these failed again", next.Load(), failed.Load(), lastFailure.Load()-firstFailure.Load(), lost.Load())
	if failed.Load() > 20*workers {
		t.Errorf("%d calls failed, want no more than were under way for a while", failed.Load())
	}
	if n := shared.Load(); n < actors/20 || n > actors/4 {
		t.Errorf("the replica had passed on %d calls as it was killed, want its share of %d", n, actors/4)
	}
	if lost.Load() > 0 {
		t.Errorf("%d calls failed when repeated", lost.Load())
	}
	for _, i := range []int{1, 17, actors / 2, actors} {
		m.reach(t, m.checkout.Daprd, fmt.Sprintf("Cart/%d", i))
	}
}

// TestABridgeReplicaEnds has one of two replicas told to end, under calls. No call fails.
func TestABridgeReplicaEnds(t *testing.T) {
	t.Parallel()
	m := startActorMesh(t, false)
	second := m.startBridge(t, m.west, "-2")
	ctx, stop := context.WithCancel(t.Context())
	const workers = 8
	var callers sync.WaitGroup
	defer callers.Wait()
	defer stop()
	call := func(actor string) error {
		got, err := callActor(t.Context(), m.checkout.Daprd, actor, "echo", []byte("hello"), nil)
		if err == nil && got.code != 200 {
			err = fmt.Errorf("%s answers %d %s", actor, got.code, got.body)
		}
		return err
	}
	for worker := range workers {
		callers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				actor := fmt.Sprintf("Cart/%d-%d", worker, i%100)
				if err := call(actor); err != nil {
					t.Error(err)
				}
			}
		})
	}
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if bridged(t, second) == 0 {
			return errors.New("the second replica has passed on no call")
		}
		return nil
	})
	if err := second.Stop(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Error(err)
	}
	time.Sleep(2 * time.Second)
	stop()
	callers.Wait()
	out, _, _ := m.isthmus(t, m.west, "", "check")
	if strings.Contains(out, "actors-bridge") {
		t.Errorf("with a bridge, check says:\n%s", out)
	}
	if err := m.bridge.Stop(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Error(err)
	}
	meshtest.Eventually(t, meshtest.Patience, func() error {
		out, _, err := m.isthmus(t, m.west, "", "check")
		if err == nil || !strings.Contains(out, "actors-bridge") {
			return fmt.Errorf("without a bridge, check says %v:\n%s", err, out)
		}
		return nil
	})
}
