package dial

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	internalv1 "github.com/dapr/dapr/pkg/proto/internals/v1"
	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// worker carries a few calls at a time, each for a while; others wait.
type worker struct {
	internalv1.UnimplementedServiceInvocationServer
	room    chan struct{}
	takes   time.Duration
	given   atomic.Int64
	waiting atomic.Int64
}

const workerCarries = 4

func (w *worker) register(server *grpc.Server) {
	internalv1.RegisterServiceInvocationServer(server, w)
}

func (w *worker) CallLocal(ctx context.Context, _ *internalv1.InternalInvokeRequest) (*internalv1.InternalInvokeResponse, error) {
	w.given.Add(1)
	w.waiting.Add(1)
	select {
	case w.room <- struct{}{}:
		w.waiting.Add(-1)
	case <-ctx.Done():
		w.waiting.Add(-1)
		return nil, ctx.Err()
	}
	time.Sleep(w.takes)
	<-w.room
	return &internalv1.InternalInvokeResponse{}, nil
}

// region is six instances, of which the first is in zone a and the others are in zone b.
type region struct {
	workers   []*worker
	addresses []string
	near      *gateway
}

func startRegion(t *testing.T, takes time.Duration) *region {
	r := &region{}
	for range 6 {
		w := &worker{room: make(chan struct{}, workerCarries), takes: takes}
		g := startGateway(t, w.register)
		r.workers, r.addresses = append(r.workers, w), append(r.addresses, g.Address)
		if r.near == nil {
			r.near = g
		}
	}
	return r
}

// caller is one in a zone, which has reached the instance in zone a.
func (r *region) caller(t *testing.T, zone string) *grpc.ClientConn {
	t.Helper()
	w := newWorld(t)
	route := here(r.addresses...)
	route.Zones = catalog.NewZones([]string{"a", "b", "b", "b", "b", "b"})
	w.set(nil, route)
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

// given is how many calls the zone of the first instance had, and how many left.
func (r *region) given() (near, far int64) {
	for _, w := range r.workers[1:] {
		far += w.given.Load()
	}
	return r.workers[0].given.Load(), far
}

// during is what they have while the caller waits.
func (r *region) during(d time.Duration) (near, far int64) {
	near, far = r.given()
	time.Sleep(d)
	nearer, farther := r.given()
	return nearer - near, farther - far
}

func TestWithLittleLoadAllCallsStayInTheZone(t *testing.T) {
	r := startRegion(t, 5*time.Millisecond)
	conn := r.caller(t, "a")
	_, before := r.given()
	var callers sync.WaitGroup
	for range 2 {
		callers.Go(func() {
			for range 100 {
				if err := invoke(t.Context(), conn, time.Minute); err != nil {
					t.Errorf("call: %v", err)
				}
			}
		})
	}
	callers.Wait()
	if _, far := r.given(); far > before {
		t.Errorf("%d of 200 calls left the zone", far-before)
	}
}

func TestZonesThatAreNotTheCallersAreAlike(t *testing.T) {
	for _, zone := range []string{"", "c"} {
		r := startRegion(t, 5*time.Millisecond)
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

// The zone's one instance carries 40 calls a second, and its callers have more. It is kept
// at work, and what it can't carry leaves.
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
			r := startRegion(t, takes)
			var conns []*grpc.ClientConn
			for range c.callers {
				conns = append(conns, r.caller(t, "a"))
			}
			time.Sleep(time.Second)
			var load []*steady
			for _, conn := range conns {
				load = append(load, startSteady(t, conn, c.calls))
			}
			time.Sleep(5 * time.Second) // until it is known
			const during = 4 * time.Second
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
			for _, s := range load {
				s.end()
			}
			carries := int64(during/takes) * workerCarries
			t.Logf("%d calls in the zone, which carries %d, and %d elsewhere; %d waited there at a time", near, carries, far, waiting/looks)
			if near < carries/2 {
				t.Errorf("calls leave a zone that could carry them")
			}
			if mean := waiting / looks; mean > 2*workerCarries {
				t.Errorf("%d calls wait at a time in a zone that can't carry them", mean)
			}
			// Less load again: all calls stay.
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
	r := startRegion(t, 5*time.Millisecond)
	s := startSteady(t, r.caller(t, "a"), 2)
	time.Sleep(300 * time.Millisecond)
	r.near.stop()
	time.Sleep(time.Second)
	s.end() // none has failed
	if _, far := r.given(); far < 10 {
		t.Errorf("%d calls went elsewhere", far)
	}
}

func TestTheZonesInstanceHangs(t *testing.T) {
	r := startRegion(t, 5*time.Millisecond)
	f := &freezer{}
	r.addresses[0] = f.before(t, r.addresses[0])
	conn := r.caller(t, "a")
	s := startSteady(t, conn, 2)
	time.Sleep(300 * time.Millisecond)
	f.freeze()
	time.Sleep(time.Second)
	for range 50 {
		if err := invoke(t.Context(), conn, tooLong); err != nil {
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
			t.Fatalf("the instance goes on, and %d calls leave the zone beside %d that do not", far, near)
		}
	}
	s.end() // none has failed
}
