package dial

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/live"
)

// views are the views of an app that may call orders in east.
type views struct{ live.Value[*catalog.View] }

// lead has lookups answer so many names.
func (v *views) lead(names int) {
	route := catalog.Route{Cluster: "east", Gateway: true, Weight: 1, State: catalog.Empty}
	for n := range names {
		route.State, route.Addresses = catalog.Ready, append(route.Addresses, shardOfOrders(n))
	}
	if names == 1 {
		route.Addresses[0] = ordersInEast
	}
	orders := catalog.App{Namespace: "default", ID: "orders"}
	entry := &catalog.Entry{Plan: catalog.NewPlan(orders, []catalog.Route{route})}
	v.Store(&catalog.View{Entries: catalog.NewTable([]catalog.Edit[*catalog.Entry]{{App: orders, Value: entry}})})
}

func (v *views) follow() (*catalog.View, <-chan struct{}) {
	view, _, changed := v.Follow()
	return view, changed
}

func shardOfOrders(n int) string { return fmt.Sprintf("%d.%s", n, ordersInEast) }

// eastLed is east, with views that have lookups answer so many names.
func eastLed(count int, addresses ...string) (*Names, *views) {
	names, gateways := east(addresses...)
	v := new(views)
	v.lead(count)
	names.Use(gateways, v.follow, true)
	return names, v
}

// through is the connection that a call took, by its own end.
func through(t *testing.T, conn *grpc.ClientConn) string {
	t.Helper()
	var p peer.Peer
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}, grpc.Peer(&p)); err != nil {
		t.Fatalf("call: %v", err)
	}
	return p.LocalAddr.String()
}

func TestAShardThatWasGivenUpIsConnectedToAnewOnceItCountsAgain(t *testing.T) {
	gw := startGateway(t)
	names, view := eastLed(3, gw.Address)
	stays, moves := mustDial(t, names, shardOfOrders(1)), mustDial(t, names, shardOfOrders(2))
	one, two := through(t, stays), through(t, moves)

	// What is under way goes on where it is.
	ctx, end := context.WithCancel(t.Context())
	defer end()
	long, err := healthpb.NewHealthClient(moves).Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := long.Recv(); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := call(t, moves); err != nil {
					t.Errorf("call while the shard is given up and comes back: %v", err)
					return
				}
			}
		})
	}
	for range 3 {
		before := through(t, moves)
		view.lead(2)
		names.leads.Load().seeing()
		if now := through(t, moves); now != before {
			t.Errorf("a shard that was given up has a new connection, %s after %s", now, before)
		}
		view.lead(3)
		deadline := time.Now().Add(time.Minute)
		for through(t, moves) == before {
			if time.Now().After(deadline) {
				t.Fatalf("calls still take the connection %s of before the shard was given up", before)
			}
			time.Sleep(time.Millisecond)
		}
	}
	close(stop)
	callers.Wait()
	if now := through(t, stays); now != one {
		t.Errorf("a shard that counted all along has a new connection, %s after %s", now, one)
	}
	if now := through(t, moves); now == two {
		t.Errorf("the connection is that of the beginning, %s", two)
	}
	if err := long.CloseSend(); err != nil || ctx.Err() != nil {
		t.Errorf("the call that was under way: %v", err)
	}
	ended := make(chan error, 1)
	go func() { _, err := long.Recv(); ended <- err }()
	select {
	case err := <-ended:
		t.Errorf("the call that was under way has ended: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	end()
	<-ended
}

// seeing has followers be told of the view that stands.
func (l *leads) seeing() {
	l.mu.Lock()
	defer l.mu.Unlock()
	view, _ := l.view()
	for w := range l.known {
		l.look(w, view)
	}
}

// A cluster that can't be used for a while says nothing of who has which shard.
func TestAClusterThatComesBackIsNotConnectedToAnew(t *testing.T) {
	gw := startGateway(t)
	names, view := eastLed(3, gw.Address)
	conn := mustDial(t, names, shardOfOrders(2))
	before := through(t, conn)
	for range 10 {
		view.lead(0)
		names.leads.Load().seeing()
		view.lead(3)
		names.leads.Load().seeing()
	}
	for range 100 {
		if now := through(t, conn); now != before {
			t.Fatalf("a new connection, %s after %s", now, before)
		}
	}
}

// New connections that can't be made take no call away from the old one.
func TestAShardKeepsItsConnectionWhileItCannotBeConnectedToAnew(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gw := startGatewayOn(t, lis)
	names, view := eastLed(2, gw.Address)
	conn := mustDial(t, names, shardOfOrders(1))
	before := through(t, conn)
	if err := lis.Close(); err != nil { // connections stay
		t.Fatal(err)
	}
	view.lead(1)
	names.leads.Load().seeing()
	view.lead(2)
	for began := time.Now(); time.Since(began) < switchFor+time.Second; {
		if now := through(t, conn); now != before {
			t.Fatalf("a call took %s, after %s", now, before)
		}
		time.Sleep(time.Millisecond)
	}
}

// BenchmarkViewChange is what a change of the view costs that concerns none of 1,000 followed apps.
func BenchmarkViewChange(b *testing.B) {
	view := new(views)
	view.lead(256)
	l := newLeads(view.follow)
	for i := range 1000 {
		l.known[way{catalog.App{Namespace: "default", ID: fmt.Sprintf("app-%d", i)}, "east"}] = &lead{}
	}
	v, _ := view.follow()
	b.ReportAllocs()
	for b.Loop() {
		for w := range l.known {
			l.look(w, v)
		}
	}
}
