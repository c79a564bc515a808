package dial

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	internalv1 "github.com/isthmus-mesh/isthmus/api/dapr/proto/internals/v1"
	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// boundedServer runs a few calls at a time, each for a while; others wait.
type boundedServer struct {
	internalv1.UnimplementedServiceInvocationServer
	slots   chan struct{}
	takes   time.Duration
	given   atomic.Int64
	waiting atomic.Int64
}

const boundedServerLimit = 4

func (w *boundedServer) register(server *grpc.Server) {
	internalv1.RegisterServiceInvocationServer(server, w)
}

func (w *boundedServer) CallLocal(ctx context.Context, _ *internalv1.InternalInvokeRequest) (*internalv1.InternalInvokeResponse, error) {
	w.given.Add(1)
	w.waiting.Add(1)
	select {
	case w.slots <- struct{}{}:
		w.waiting.Add(-1)
	case <-ctx.Done():
		w.waiting.Add(-1)
		return nil, ctx.Err()
	}
	time.Sleep(w.takes)
	<-w.slots
	return &internalv1.InternalInvokeResponse{}, nil
}

// zonedInstances are six instances: the first in zone a, the others in zone b.
type zonedInstances struct {
	workers   []*boundedServer
	addresses []string
	near      *gateway
}

func startZonedInstances(t *testing.T, takes time.Duration) *zonedInstances {
	r := &zonedInstances{}
	for range 6 {
		w := &boundedServer{slots: make(chan struct{}, boundedServerLimit), takes: takes}
		g := startGateway(t, w.register)
		r.workers, r.addresses = append(r.workers, w), append(r.addresses, g.Address)
		if r.near == nil {
			r.near = g
		}
	}
	return r
}

// caller returns a connection from a zone that has reached the instance in zone a.
func (r *zonedInstances) caller(t *testing.T, zone string) *grpc.ClientConn {
	t.Helper()
	w := newTestDialer(t)
	route := localRoute(r.addresses...)
	route.Zones = catalog.NewLabels([]string{"a", "b", "b", "b", "b", "b"})
	w.setRoutes(nil, route)
	view, _ := w.View()
	in := *view
	in.Zone = zone
	w.views.Store(&in)
	conn := w.dial(t)
	for deadline := time.Now().Add(time.Minute); ; {
		before := r.workers[0].given.Load()
		if err := invoke(t.Context(), conn, time.Minute); err != nil {
			t.Fatal(err)
		}
		if r.workers[0].given.Load() > before {
			return conn
		}
		if time.Now().After(deadline) {
			t.Fatal("no call reaches the zone")
		}
	}
}

// given returns how many calls zone a had, and how many zone b had.
func (r *zonedInstances) given() (near, far int64) {
	for _, w := range r.workers[1:] {
		far += w.given.Load()
	}
	return r.workers[0].given.Load(), far
}

// during waits, and returns how many calls the zones had meanwhile.
func (r *zonedInstances) during(d time.Duration) (near, far int64) {
	near, far = r.given()
	time.Sleep(d)
	nearer, farther := r.given()
	return nearer - near, farther - far
}

// On a busy machine a few calls may look slow, or the instance silent. So a while without such
// calls has to come.
func TestWithLittleLoadAllCallsStayInTheZone(t *testing.T) {
	r := startZonedInstances(t, 20*time.Millisecond)
	conn := r.caller(t, "a")
	for deadline := time.Now().Add(time.Minute); ; {
		_, before := r.given()
		var callers sync.WaitGroup
		for range 2 {
			callers.Go(func() {
				for range 20 {
					if err := invoke(t.Context(), conn, time.Minute); err != nil {
						t.Errorf("call: %v", err)
					}
				}
			})
		}
		callers.Wait()
		_, far := r.given()
		if far == before {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of 40 calls left the zone", far-before)
		}
	}
}

func TestZonesThatAreNotTheCallersAreAlike(t *testing.T) {
	for _, zone := range []string{"", "c"} {
		r := startZonedInstances(t, 5*time.Millisecond)
		conn := r.caller(t, zone)
		for deadline := time.Now().Add(time.Minute); ; { // until all are connected
			near, far := r.given()
			for range 60 {
				if err := invoke(t.Context(), conn, time.Minute); err != nil {
					t.Fatal(err)
				}
			}
			nearer, farther := r.given()
			if nearer-near == 10 && farther-far == 50 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("from zone %q, %d calls went to the one instance and %d to the five others", zone, nearer-near, farther-far)
			}
		}
	}
}

// The one instance in the zone carries 40 calls a second, and its callers make more. It stays busy,
// and the calls beyond that leave the zone.
func TestCallsLeaveTheZoneAsFarAsItCantCarryThem(t *testing.T) {
	for _, c := range []struct {
		what           string
		callers, calls int // calls under way of each
	}{
		{"one caller with many calls", 1, 24},
		{"many callers with few calls each", 12, 2},
	} {
		t.Run(c.what, func(t *testing.T) {
			const takes = 100 * time.Millisecond
			r := startZonedInstances(t, takes)
			var conns []*grpc.ClientConn
			for range c.callers {
				conns = append(conns, r.caller(t, "a"))
			}
			time.Sleep(time.Second)
			var load []*load
			for _, conn := range conns {
				load = append(load, startLoad(t, conn, c.calls))
			}
			const during = 4 * time.Second
			carries := int64(during/takes) * boundedServerLimit
			for deadline := time.Now().Add(time.Minute); ; { // until the spill has settled
				var waiting, looks int64
				watched := make(chan struct{})
				go func() {
					defer close(watched)
					for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
						waiting += r.workers[0].waiting.Load()
						looks++
					}
				}()
				near, far := r.during(during)
				<-watched
				mean := waiting / looks
				if near >= carries/2 && mean <= 2*boundedServerLimit {
					break
				}
				if time.Now().After(deadline) {
					t.Errorf("%d calls in the zone, which carries %d, and %d elsewhere; %d waited there at a time, want %d at most", near, carries, far, mean, 2*boundedServerLimit)
					break
				}
			}
			for _, s := range load {
				s.stop()
			}
			// With less load all calls stay.
			for deadline := time.Now().Add(time.Minute); ; {
				_, before := r.given()
				for range 20 {
					if err := invoke(t.Context(), conns[0], time.Minute); err != nil {
						t.Fatal(err)
					}
				}
				if _, far := r.given(); far == before {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("the load is gone, and calls still leave the zone")
				}
			}
		})
	}
}

func TestTheZonesInstanceIsLost(t *testing.T) {
	r := startZonedInstances(t, 5*time.Millisecond)
	s := startLoad(t, r.caller(t, "a"), 2)
	time.Sleep(300 * time.Millisecond)
	r.near.stop()
	time.Sleep(time.Second)
	s.stop() // none has failed
	if _, far := r.given(); far < 10 {
		t.Errorf("%d calls went elsewhere", far)
	}
}

func TestTheZonesInstanceHangs(t *testing.T) {
	r := startZonedInstances(t, 5*time.Millisecond)
	f := &freezer{}
	r.addresses[0] = f.proxy(t, r.addresses[0])
	conn := r.caller(t, "a")
	s := startLoad(t, conn, 2)
	time.Sleep(300 * time.Millisecond)
	f.freeze()
	time.Sleep(time.Second)
	for range 50 {
		if err := invoke(t.Context(), conn, callLimit); err != nil {
			t.Fatalf("call beside an instance that hangs: %v", err)
		}
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // until those that hang are made again
		if _, far := r.given(); far >= 100 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("calls do not go elsewhere")
		}
	}
	f.thaw()
	for deadline := time.Now().Add(time.Minute); ; {
		near, far := r.during(time.Second)
		if near > 9*far {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the instance has continued, but %d calls leave the zone beside %d that don't", far, near)
		}
	}
	s.stop() // none has failed
}
