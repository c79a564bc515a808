package dial

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func TestTheNextPriorityHasTheCallsWhenAnInstanceIsLost(t *testing.T) {
	local, gw := startGateway(t), startGateway(t)
	w := newTestDialer(t)
	w.setRoutes(map[string][]string{"east": {gw.Address}}, localRoute(local.Address), gatewayRoute("east", 1))
	conn := w.dial(t)
	callUntilOnly(t, conn, local.Address)
	local.stop()
	callAsDaprd(t, conn) // it may begin on a connection that has ended unnoticed
	for range 50 {       // none of these fails, not even to be repeated
		if got := mustCall(t, conn); got != gw.Address {
			t.Fatalf("reached %s, want the gateway", got)
		}
	}
	time.Sleep(rampAfter)
	back, elsewhere := startGatewayAt(t, local.Address), 0
	callUntil(t, conn, back.Address)
	for begun := time.Now(); time.Since(begun) < 3*rampStep; time.Sleep(time.Millisecond) {
		if mustCall(t, conn) == gw.Address {
			elsewhere++
		}
	}
	if elsewhere == 0 {
		t.Error("the instance had all calls at once when it was back")
	}
	callUntilOnly(t, conn, back.Address)
}

func TestNothingIsCalledThatTheViewDoesNotHave(t *testing.T) {
	gw := startGateway(t)
	w := newEastDialer(t, gw.Address)
	conn := w.dial(t)
	mustCall(t, conn)
	stale := gatewayRoute("east", 0)
	stale.State, stale.Addresses = catalog.LeaseExpired, nil
	w.setRoutes(map[string][]string{"east": {gw.Address}}, stale)
	refused := func(want string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; { // gRPC gets the plan a moment after the view
			_, err := call(t, conn)
			if status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), want) {
				return
			}
			if err != nil || time.Now().After(deadline) {
				t.Fatalf("call: %v, want Unavailable with %q", err, want)
			}
		}
	}
	refused("lease")
	for range 100 {
		w.setEast(gw.Address)
		mustCall(t, conn) // the first call after the view leads there again
		w.setRoutes(map[string][]string{"east": {gw.Address}}, stale)
		refused("lease")
	}
	w.views.Store(&catalog.View{})
	refused("")
}

func TestNothingTakesConnections(t *testing.T) {
	w := newTestDialer(t)
	dead := deadAddress(t)
	w.setRoutes(nil, localRoute(dead))
	conn := w.dial(t)
	_, err := call(t, conn)
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), dead) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("call: %v, want Unavailable with the address and the reason", err)
	}
	callUntilRecovered(t, conn, startGatewayAt(t, dead).Address)
}

func TestSharesOfRoutesAndInstances(t *testing.T) {
	a, b, gw := startGateway(t), startGateway(t), startGateway(t)
	w := newTestDialer(t)
	local, remote := localRoute(a.Address, b.Address), gatewayRoute("east", 0)
	local.Weight, remote.Weight = 3, 1
	w.setRoutes(map[string][]string{"east": {gw.Address}}, local, remote)
	conn := w.dial(t)
	for _, at := range []*gateway{a, b, gw} {
		callUntil(t, conn, at.Address)
	}
	counts := map[string]int{}
	for range 800 {
		counts[mustCall(t, conn)]++
	}
	for at, want := range map[*gateway]int{a: 300, b: 300, gw: 200} {
		if got := counts[at.Address]; got < want-20 || got > want+20 {
			t.Errorf("%d of 800 calls, want about %d: %v", got, want, counts)
		}
	}
}

func TestAnInstanceThatRefusesAllHasFewCalls(t *testing.T) {
	instances, conn := startFive(t, direct)
	instances[0].fails.Store(true)
	for range 100 {
		_ = invoke(t.Context(), conn, time.Minute) // calls may fail until the instance is ejected
	}
	failed := 0
	for range 400 {
		if invoke(t.Context(), conn, time.Minute) != nil {
			failed++
		}
	}
	if failed > 10 {
		t.Errorf("%d of 400 calls failed", failed)
	}
	instances[0].fails.Store(false)
	waitForShare(t, conn, instances)
}

// A new process at an instance's address starts without the penalties of the one before.
func TestAnInstanceThatStartsAnewBeginsAnew(t *testing.T) {
	w, first := newTestDialer(t), startGateway(t)
	w.setRoutes(nil, localRoute(first.Address))
	conn := w.dial(t)
	mustCall(t, conn)
	before := w.watcher.connections()[0]
	p := before.endpoint
	p.ejections = 5
	p.balancer.eject(p)
	p.instance.latency.observe(time.Since(processStart), time.Hour)
	p.instance.latency.penalty.Store(maxPenalty)
	first.stop()
	callUntilRecovered(t, conn, startGatewayAt(t, first.Address).Address)
	if now := w.watcher.connections(); len(now) != 1 || now[0] == before || now[0].endpoint != p {
		t.Fatalf("%d connections, want one of the same point made anew", len(now))
	}
	p.balancer.mu.Lock()
	defer p.balancer.mu.Unlock()
	if mean, _ := p.instance.latency.current(time.Since(processStart)); !p.usable() || mean > 60 || p.instance.latency.penalty.Load() > 1 {
		t.Errorf("takes calls: %v, which last %.3f s and cost %d", p.usable(), mean, p.instance.latency.penalty.Load())
	}
}

// When an instance dies, its connections through several gateways do not end at the same moment.
func TestAnInstanceIsLeftByAllGatewaysOnceOneConnectionEnded(t *testing.T) {
	w := newTestDialer(t)
	route := gatewayRoute("east", 0)
	route.Ready, route.Instances = 2, []uint32{1, 2}
	w.setRoutes(map[string][]string{"east": {startGateway(t).Address, startGateway(t).Address}}, route)
	conn := w.dial(t)
	usable := func() (n int) { // gRPC uses a connection a moment after the watcher has it
		for _, c := range w.watcher.connections() {
			c.endpoint.balancer.mu.Lock()
			if c.endpoint.usable() {
				n++
			}
			c.endpoint.balancer.mu.Unlock()
		}
		return n
	}
	for deadline := time.Now().Add(time.Minute); usable() < 4; mustCall(t, conn) {
		if time.Now().After(deadline) {
			t.Fatal("two instances behind two gateways are not four connections")
		}
	}
	lost := w.watcher.connections()[0]
	p := lost.endpoint
	_ = lost.Conn.Close() // gRPC closes it, too
	for left := false; !left; time.Sleep(time.Millisecond) {
		p.balancer.mu.Lock()
		left = !p.instance.endedAt.IsZero()
		p.balancer.mu.Unlock()
	}
	began := time.Now()
	before := map[*endpoint]int64{}
	for _, c := range w.watcher.connections() {
		before[c.endpoint] = c.endpoint.instance.latency.lastCall.Load()
	}
	for range 20 {
		mustCall(t, conn)
	}
	for o, last := range before {
		now := o.instance.latency.lastCall.Load() // 0 after a reconnect
		if o.name == p.name && now != last && now != 0 && time.Since(began) < suspectFor {
			t.Errorf("%s had calls by %s right after its connection by %s ended", o.name, o.address, p.address)
		}
	}
}

// Calls wait for a first connection that takes long, as on a link that loses packets. If it does not
// come about they fail, and later calls do not wait again.
func TestCallsWaitForTheFirstConnection(t *testing.T) {
	f := &freezer{}
	f.freeze()
	w := newTestDialer(t)
	slow := f.proxy(t, startGateway(t).Address)
	w.setRoutes(nil, localRoute(slow))
	conn := w.dial(t)
	time.AfterFunc(firstConnectWait+holdCalls+holdCalls/2, f.thaw)
	mustCall(t, conn)
	f.freeze()
	w.setRoutes(nil, localRoute(f.proxy(t, deadAddress(t))))
	for deadline := time.Now().Add(time.Minute); ; {
		began := time.Now()
		_, err := call(t, conn)
		if status.Code(err) == codes.Unavailable && time.Since(began) < holdCalls/2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after a minute calls still wait %s for who does not answer: %v", time.Since(began), err)
		}
	}
	f.thaw()
}
