package dial

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	internalv1 "github.com/dapr/dapr/pkg/proto/internals/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func TestTheNextPriorityHasTheCallsWhenAnInstanceIsLost(t *testing.T) {
	local, gw := startGateway(t), startGateway(t)
	w := newWorld(t)
	w.set(map[string][]string{"east": {gw.Address}}, here(local.Address), through("east", 1))
	conn := w.dial(t)
	for range 50 {
		if got := mustCall(t, conn); got != local.Address {
			t.Fatalf("reached %s, want the local instance", got)
		}
	}
	local.stop()
	callAsDaprd(t, conn) // it may begin on a connection whose end has not been seen yet
	for range 50 {       // none of these fails, not even once to be tried again
		if got := mustCall(t, conn); got != gw.Address {
			t.Fatalf("reached %s, want the gateway", got)
		}
	}
	lis, err := net.Listen("tcp", local.Address)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(goneFor)
	back, elsewhere := startGatewayOn(t, lis), 0
	until(t, conn, back.Address)
	for begun := time.Now(); time.Since(begun) < 3*returnStep; time.Sleep(time.Millisecond) {
		if mustCall(t, conn) == gw.Address {
			elsewhere++
		}
	}
	if elsewhere == 0 {
		t.Error("the instance had all calls at once when it was back")
	}
	only(t, conn, back.Address)
}

func TestNothingIsCalledThatTheViewDoesNotHave(t *testing.T) {
	gw := startGateway(t)
	w := east(t, gw.Address)
	conn := w.dial(t)
	mustCall(t, conn)
	stale := through("east", 0)
	stale.State, stale.Addresses = catalog.LeaseExpired, nil
	w.set(map[string][]string{"east": {gw.Address}}, stale)
	refused := func(want string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; { // gRPC is told of a plan a moment after the view
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
		w.eastAt(gw.Address)
		mustCall(t, conn) // the first after the view leads there again
		w.set(map[string][]string{"east": {gw.Address}}, stale)
		refused("lease")
	}
	w.views.Store(&catalog.View{})
	refused("")
}

func TestNothingTakesConnections(t *testing.T) {
	w := newWorld(t)
	dead := deadAddress(t)
	w.set(nil, here(dead))
	conn := w.dial(t)
	_, err := call(t, conn)
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), dead) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("call: %v, want Unavailable with the address and the reason", err)
	}
	lis, err := net.Listen("tcp", dead)
	if err != nil {
		t.Fatal(err)
	}
	recovers(t, conn, startGatewayOn(t, lis).Address)
}

func TestSharesOfRoutesAndInstances(t *testing.T) {
	a, b, gw := startGateway(t), startGateway(t), startGateway(t)
	w := newWorld(t)
	local, remote := here(a.Address, b.Address), through("east", 0)
	local.Weight, remote.Weight = 3, 1
	w.set(map[string][]string{"east": {gw.Address}}, local, remote)
	conn := w.dial(t)
	for _, at := range []*gateway{a, b, gw} {
		until(t, conn, at.Address)
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

// paced answers calls after a time that tests set.
type paced struct {
	internalv1.UnimplementedServiceInvocationServer
	after atomic.Int64
	given atomic.Int64
	fails atomic.Bool
}

func (p *paced) register(server *grpc.Server) { internalv1.RegisterServiceInvocationServer(server, p) }

func (p *paced) CallLocal(ctx context.Context, _ *internalv1.InternalInvokeRequest) (*internalv1.InternalInvokeResponse, error) {
	p.given.Add(1)
	if p.fails.Load() {
		return nil, status.Error(codes.Unavailable, "not now")
	}
	select {
	case <-time.After(time.Duration(p.after.Load())):
	case <-ctx.Done():
	}
	return &internalv1.InternalInvokeResponse{}, nil
}

// five starts five instances, and a connection that has reached each.
func five(t *testing.T, through func(address string) string) (instances []*paced, conn *grpc.ClientConn) {
	w := newWorld(t)
	var addresses []string
	for range 5 {
		p := &paced{}
		p.after.Store(int64(time.Millisecond))
		instances = append(instances, p)
		addresses = append(addresses, through(startGateway(t, p.register).Address))
	}
	w.set(nil, here(addresses...))
	conn = w.dial(t)
	for _, p := range instances {
		for deadline := time.Now().Add(time.Minute); p.given.Load() == 0; {
			if err := invoke(t.Context(), conn, time.Minute); err != nil || time.Now().After(deadline) {
				t.Fatalf("an instance has no call: %v", err)
			}
		}
	}
	return instances, conn
}

func direct(address string) string { return address }

// calls makes so many calls, a few at a time, and says how many each instance had.
func calls(t *testing.T, conn *grpc.ClientConn, instances []*paced, n int) (given []int64) {
	t.Helper()
	for _, p := range instances {
		given = append(given, -p.given.Load())
	}
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range n / 4 {
				if err := invoke(t.Context(), conn, time.Minute); err != nil {
					t.Errorf("call: %v", err)
					return
				}
			}
		})
	}
	callers.Wait()
	for i, p := range instances {
		given[i] += p.given.Load()
	}
	return given
}

func TestASlowInstanceHasFewCalls(t *testing.T) {
	instances, conn := five(t, direct)
	instances[0].after.Store(int64(200 * time.Millisecond)) // far from what a busy machine makes of the others
	calls(t, conn, instances, 1000)                         // until it is known
	given := calls(t, conn, instances, 2000)
	t.Logf("%v of 2000 calls", given)
	if given[0] > 100 { // 400 would be its share
		t.Errorf("the slow instance had %d calls", given[0])
	}
	instances[0].after.Store(int64(time.Millisecond))
	for deadline := time.Now().Add(time.Minute); calls(t, conn, instances, 400)[0] < 40; {
		if time.Now().After(deadline) {
			t.Fatal("the instance is quick again, and has no share")
		}
	}
}

// gRPC hears of the end of a connection a moment after it was broken off.
func TestAConnectionThatIsBrokenOffHasNoMoreCalls(t *testing.T) {
	w := newWorld(t)
	a, b := startGateway(t), startGateway(t)
	w.set(nil, here(a.Address, b.Address))
	conn := w.dial(t)
	until(t, conn, a.Address)
	until(t, conn, b.Address)
	c := w.watch.all()[0]
	c.point.doubt(true)
	c.part()
	for range 20 {
		if got := mustCall(t, conn); got == c.point.address {
			t.Fatal("the connection is given a call")
		}
	}
	c.breakOff()
	until(t, conn, c.point.address)
}

func TestAnInstanceThatRefusesAllHasFewCalls(t *testing.T) {
	instances, conn := five(t, direct)
	instances[0].fails.Store(true)
	for range 100 {
		_ = invoke(t.Context(), conn, time.Minute) // those that it is found out by may fail
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
	for deadline := time.Now().Add(time.Minute); calls(t, conn, instances, 400)[0] < 40; {
		if time.Now().After(deadline) {
			t.Fatal("the instance is well again, and has no share")
		}
	}
}

// What was held against an instance is not held against the one that comes after it.
func TestAnInstanceThatStartsAnewBeginsAnew(t *testing.T) {
	w, first := newWorld(t), startGateway(t)
	w.set(nil, here(first.Address))
	conn := w.dial(t)
	mustCall(t, conn)
	before := w.watch.all()[0]
	p := before.point
	p.left = 5
	p.policy.refuses(p)
	p.pace.took(time.Since(began), time.Hour)
	p.pace.penalty.Store(mostSlow)
	first.stop()
	lis, err := net.Listen("tcp", first.Address)
	if err != nil {
		t.Fatal(err)
	}
	recovers(t, conn, startGatewayOn(t, lis).Address)
	if now := w.watch.all(); len(now) != 1 || now[0] == before || now[0].point != p {
		t.Fatalf("%d connections, want one of the same point made anew", len(now))
	}
	p.policy.mu.Lock()
	defer p.policy.mu.Unlock()
	if mean, _ := p.pace.now(time.Since(began)); !p.takes() || mean > 60 || p.pace.penalty.Load() > 1 {
		t.Errorf("takes calls: %v, which last %.3f s and cost %d", p.takes(), mean, p.pace.penalty.Load())
	}
}

// A dead instance ends its connections by each gateway, and not all at one moment.
func TestAnInstanceIsLeftByAllGatewaysOnceOneConnectionEnded(t *testing.T) {
	w := newWorld(t)
	route := through("east", 0)
	route.Ready, route.Instances = 2, []uint32{1, 2}
	w.set(map[string][]string{"east": {startGateway(t).Address, startGateway(t).Address}}, route)
	conn := w.dial(t)
	for deadline := time.Now().Add(time.Minute); len(w.watch.all()) < 4; mustCall(t, conn) {
		if time.Now().After(deadline) {
			t.Fatal("two instances behind two gateways are not four connections")
		}
	}
	lost := w.watch.all()[0]
	p := lost.point
	_ = lost.Conn.Close() // gRPC closes it again
	for left := false; !left; time.Sleep(time.Millisecond) {
		p.policy.mu.Lock()
		left = p.state != connectivity.Ready || !p.policy.ended[p.name].IsZero()
		p.policy.mu.Unlock()
	}
	began := time.Now()
	before := map[*point]int64{}
	for _, c := range w.watch.all() {
		before[c.point] = c.point.pace.last.Load()
	}
	for range 20 {
		mustCall(t, conn)
	}
	for o, last := range before {
		now := o.pace.last.Load() // 0 once the connection is made anew
		if o.name == p.name && now != last && now != 0 && time.Since(began) < suspectFor {
			t.Errorf("%s had calls by %s right after its connection by %s ended", o.name, o.address, p.address)
		}
	}
}

func TestAnInstanceThatHangs(t *testing.T) {
	f := &freezer{}
	first := true
	instances, conn := five(t, func(address string) string {
		if first {
			first = false
			return f.before(t, address)
		}
		return address
	})
	f.freeze()
	began := time.Now()
	given := calls(t, conn, instances, 400) // none fails: those that hang are made again
	took := time.Since(began)
	t.Logf("%v of 400 calls, in %s", given, took.Round(time.Millisecond))
	if took > tooLong {
		t.Errorf("the calls took %s", took)
	}
	f.thaw()
	for deadline := time.Now().Add(time.Minute); calls(t, conn, instances, 400)[0] < 40; {
		if time.Now().After(deadline) {
			t.Fatal("the instance goes on, and has no share")
		}
	}
}

// The last there is is not left: its calls wait, and end when it goes on.
func TestTheOnlyInstanceHangs(t *testing.T) {
	f := &freezer{}
	p := &paced{}
	w := newWorld(t)
	w.set(nil, here(f.before(t, startGateway(t, p.register).Address)))
	conn := w.dial(t)
	if err := invoke(t.Context(), conn, time.Minute); err != nil {
		t.Fatal(err)
	}
	f.freeze()
	ended := make(chan error, 1)
	go func() { ended <- invoke(t.Context(), conn, time.Minute) }()
	time.Sleep(2 * time.Second) // far longer than an instance beside others would be given
	f.thaw()
	if err := <-ended; err != nil {
		t.Errorf("the call ended with %v", err)
	}
	if n := p.given.Load(); n != 2 {
		t.Errorf("2 calls ran %d times", n)
	}
}

// Where nothing is connected yet, calls wait for who takes long to answer the first time, as on
// a link that loses packets. Who does not answer at all fails them, and is not waited for again.
func TestCallsWaitForTheFirstConnection(t *testing.T) {
	f := &freezer{}
	f.freeze()
	w := newWorld(t)
	slow := f.before(t, startGateway(t).Address)
	w.set(nil, here(slow))
	conn := w.dial(t)
	time.AfterFunc(firstPatience+holdFor+holdFor/2, f.thaw)
	mustCall(t, conn)
	f.freeze()
	w.set(nil, here(f.before(t, deadAddress(t))))
	for deadline := time.Now().Add(time.Minute); ; {
		began := time.Now()
		_, err := call(t, conn)
		if status.Code(err) == codes.Unavailable && time.Since(began) < holdFor/2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after a minute calls still wait %s for who does not answer: %v", time.Since(began), err)
		}
	}
	f.thaw()
}

// A large request is written in parts, between which nothing of ours may go.
func TestInquiriesGoBetweenFrames(t *testing.T) {
	p := &paced{}
	gw := startGateway(t, p.register)
	w := newWorld(t)
	w.set(nil, here(gw.Address))
	conn := w.dial(t)
	if err := invoke(t.Context(), conn, time.Minute); err != nil {
		t.Fatal(err)
	}
	stop, asked := make(chan struct{}), atomic.Int64{}
	var asking sync.WaitGroup
	asking.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, c := range w.watch.all() {
				if c.frames.inquire() {
					asked.Add(1)
				}
			}
			time.Sleep(100 * time.Microsecond)
		}
	})
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for i := range 200 {
				req := &internalv1.InternalInvokeRequest{Metadata: map[string]*internalv1.ListStringValue{"x": {Values: []string{strings.Repeat("x", i*997)}}}}
				if _, err := internalv1.NewServiceInvocationClient(conn).CallLocal(t.Context(), req); err != nil {
					t.Errorf("call: %v", err)
					return
				}
			}
		})
	}
	callers.Wait()
	close(stop)
	asking.Wait()
	if sni, _ := gw.seen(); len(sni) != 1 || asked.Load() < 10 {
		t.Errorf("%d connections and %d inquiries, want one and many", len(sni), asked.Load())
	}
}
