package dial

import (
	"context"
	"math"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	internalv1 "github.com/isthmus-mesh/isthmus/api/dapr/proto/internals/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// moodyServer answers calls at once, refuses them, or takes its time.
type moodyServer struct {
	internalv1.UnimplementedServiceInvocationServer
	given atomic.Int64
	mood  atomic.Pointer[func() (*internalv1.InternalInvokeResponse, error)] // nil: well
}

func (s *moodyServer) register(server *grpc.Server) {
	internalv1.RegisterServiceInvocationServer(server, s)
}

func (s *moodyServer) CallLocal(context.Context, *internalv1.InternalInvokeRequest) (*internalv1.InternalInvokeResponse, error) {
	s.given.Add(1)
	if mood := s.mood.Load(); mood != nil {
		return (*mood)()
	}
	return &internalv1.InternalInvokeResponse{}, nil
}

// crowd is a route to instances in west that carry all calls if so many are ready, and one to an
// instance in another cluster, in the next priority.
type crowd struct {
	*testDialer
	near     []*moodyServer
	gateways []*gateway // of near
	far      *moodyServer
	routes   []catalog.Route
}

func startCrowd(t *testing.T, instances int, min catalog.MinReady) *crowd {
	t.Helper()
	c := &crowd{testDialer: newTestDialer(t), far: &moodyServer{}}
	var addresses []string
	for range instances {
		s := &moodyServer{}
		g := startGateway(t, s.register)
		c.near, c.gateways, addresses = append(c.near, s), append(c.gateways, g), append(addresses, g.Address)
	}
	west, east := localRoute(addresses...), localRoute(startGateway(t, c.far.register).Address)
	west.MinReady, east.Cluster, east.Priority, east.Local = min, "east", 1, false
	c.routes = []catalog.Route{west, east}
	c.setRoutes(nil, c.routes...)
	return c
}

// share makes calls, and returns which part of them near had. Failures are no matter.
func (c *crowd) share(t *testing.T, conn *grpc.ClientConn, calls int) float64 {
	t.Helper()
	given := func() (n int64) {
		for _, s := range c.near {
			n += s.given.Load()
		}
		return n
	}
	before, far := given(), c.far.given.Load()
	for range calls {
		err := invoke(t.Context(), conn, time.Minute)
		if code := status.Code(err); code != codes.OK && code != codes.ResourceExhausted && code != codes.Unavailable {
			t.Fatal(err)
		}
	}
	near := float64(given() - before)
	return near / (near + float64(c.far.given.Load()-far))
}

// await makes calls until near has such a part of them.
func (c *crowd) await(t *testing.T, conn *grpc.ClientConn, what string, want func(share float64) bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		share := c.share(t, conn, 50)
		if want(share) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: the route has %.2f of the calls", what, share)
		}
	}
}

func about(want float64) func(float64) bool {
	return func(share float64) bool { return math.Abs(share-want) < 0.05 }
}

func TestEnoughInstancesCarryEveryCallFromTheFirst(t *testing.T) {
	c := startCrowd(t, 12, -50)
	if share := c.share(t, c.dial(t), 24); share < 1 { // so few that latencies are not compared yet
		t.Errorf("the route has %.3f of the calls while its instances are being connected, want all", share)
	}
}

func TestTheShareThatIsMissingGoesOn(t *testing.T) {
	c := startCrowd(t, 1, 4)
	conn := c.dial(t)
	c.await(t, conn, "one of four", about(.25))
	next := append([]catalog.Route(nil), c.routes...)
	next[0].MinReady = 2
	c.setRoutes(nil, next...)
	c.await(t, conn, "one of two", about(.5))
}

func TestTheShareOfARouteThatHasNoneGoesOnAndNotBesideIt(t *testing.T) {
	c := startCrowd(t, 1, 0)
	beside := catalog.Route{RouteSpec: catalog.RouteSpec{Cluster: "north", Weight: 1, MinReady: 2}, State: catalog.Empty}
	c.setRoutes(nil, c.routes[0], beside, c.routes[1])
	c.await(t, c.dial(t), "half of the priority has no instance", about(.5))
}

func TestAnInstanceThatTheCallerCannotReachIsNotReady(t *testing.T) {
	c := startCrowd(t, 3, 3)
	conn := c.dial(t)
	c.await(t, conn, "all are there", about(1))
	c.gateways[0].stop()
	c.gateways[1].stop()
	c.await(t, conn, "two of three are lost, as nobody has said yet", about(1./3))
}

func TestARouteThatRefusesCallsKeepsFewer(t *testing.T) {
	for name, refusal := range map[string]func() (*internalv1.InternalInvokeResponse, error){
		"gRPC": func() (*internalv1.InternalInvokeResponse, error) {
			return nil, status.Error(codes.ResourceExhausted, "too many calls")
		},
		"HTTP": func() (*internalv1.InternalInvokeResponse, error) {
			return &internalv1.InternalInvokeResponse{Status: &internalv1.Status{Code: http.StatusTooManyRequests}}, nil
		},
		"slow": func() (*internalv1.InternalInvokeResponse, error) {
			time.Sleep(30 * time.Millisecond)
			return &internalv1.InternalInvokeResponse{}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCrowd(t, 2, 1)
			conn := c.dial(t)
			for began := time.Now(); time.Since(began) < 4*compareInterval; { // how long calls take is learnt
				c.await(t, conn, "before", about(1))
			}
			for _, s := range c.near {
				s.mood.Store(&refusal)
			}
			c.await(t, conn, "overloaded", func(share float64) bool { return share < .3 })
			for _, s := range c.near {
				s.mood.Store(nil)
			}
			c.await(t, conn, "well again", about(1))
		})
	}
}

// Without minReady a refusal is the app's own business: its limit for a caller must not be passed by
// way of another cluster.
func TestWithoutMinReadyRefusalsMoveNothing(t *testing.T) {
	c := startCrowd(t, 1, 0)
	refusal := func() (*internalv1.InternalInvokeResponse, error) {
		return nil, status.Error(codes.ResourceExhausted, "too many calls")
	}
	c.near[0].mood.Store(&refusal)
	conn := c.dial(t)
	// One that stands still for a moment, since the machine is busy, has none meanwhile.
	for began, all := time.Now(), time.Now(); time.Since(all) < 4*compareInterval; {
		if share := c.share(t, conn, 50); share < 1 {
			all = time.Now()
			if time.Since(began) > time.Minute {
				t.Fatalf("the route has %.2f of the calls, want all", share)
			}
		}
	}
}
