package dial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestTheFirstOfTwoGatewaysIsDead(t *testing.T) {
	gw := startGateway(t)
	w := newEastDialer(t, deadAddress(t), gw.Address)
	conn := w.dial(t)
	for range 20 {
		if got := mustCall(t, conn); got != gw.Address {
			t.Fatalf("reached %s, want %s", got, gw.Address)
		}
	}
}

func TestOneOfTwoGatewaysIsLost(t *testing.T) {
	first, second := startGateway(t), startGateway(t)
	w := newEastDialer(t, first.Address, second.Address)
	conn := w.dial(t)
	callUntil(t, conn, first.Address)
	callUntil(t, conn, second.Address)

	first.stop()
	for range 200 {
		if got := callAsDaprd(t, conn); got != second.Address {
			t.Fatalf("reached %s, want %s", got, second.Address)
		}
	}
}

// While the list changes and the gateways stay up, no call may fail, not even to be repeated.
func TestGatewaysChangeUnderSteadyCalls(t *testing.T) {
	a, b := startGateway(t), startGateway(t)
	w := newEastDialer(t, a.Address)
	conn := w.dial(t)
	mustCall(t, conn)

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
				if _, err := call(t, conn); err != nil {
					t.Errorf("call while gateways change: %v", err)
					return
				}
			}
		})
	}
	lists := [][]string{{b.Address}, {a.Address, b.Address}, {a.Address}, {b.Address, a.Address}}
	for i := range 40 {
		w.setEast(lists[i%len(lists)]...)
		time.Sleep(5 * time.Millisecond)
	}
	close(stop)
	callers.Wait()

	for _, gw := range []*gateway{b, a} {
		w.setEast(gw.Address)
		callUntilOnly(t, conn, gw.Address)
	}
}

// zone is a DNS zone in memory that stands for the operating system's resolver.
type zone struct {
	mu    sync.Mutex
	hosts map[string][]string
	holds time.Duration
	asked int
}

func (z *zone) set(host string, ips ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.hosts = map[string][]string{host: ips}
}

func (z *zone) lookup(_ context.Context, _, host string) (all []netip.Addr, holds time.Duration, err error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.asked++
	for _, ip := range z.hosts[host] {
		all = append(all, netip.MustParseAddr(ip))
	}
	if len(all) > 0 {
		return all, z.holds, nil
	}
	return nil, 0, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

func (z *zone) lookups() int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.asked
}

// onPort returns the port of a gateway, for an address with a host name. Tests listen on that port
// at every IP that the name has.
func onPort(t *testing.T, gw *gateway) (port string) {
	t.Helper()
	_, port, err := net.SplitHostPort(gw.Address)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestAGatewayGivenByHostName(t *testing.T) {
	gw := startGateway(t)
	w := newEastDialer(t, "localhost:"+onPort(t, gw))
	if got := mustCall(t, w.dial(t)); got != gw.Address {
		t.Errorf("reached %s, want %s", got, gw.Address)
	}
}

func TestAHostNameIsLookedUpAgainWhenTheConnectionFails(t *testing.T) {
	gw := startGateway(t)
	w := newEastDialer(t, "gw.east.example:"+onPort(t, gw))
	var z zone
	w.hosts.lookup = z.lookup
	z.set("gw.east.example", "127.0.0.9") // nothing listens there
	conn := w.dial(t)
	if _, err := call(t, conn); status.Code(err) != codes.Unavailable {
		t.Fatalf("call to a dead gateway: %v, want Unavailable", err)
	}
	z.set("gw.east.example", "127.0.0.1")
	callUntilRecovered(t, conn, gw.Address)
}

func TestAHostNameIsLookedUpOnceItsAnswerRunsOut(t *testing.T) {
	gw := startGateway(t)
	w := newEastDialer(t, "gw.east.example:"+onPort(t, gw))
	w.hosts.times.interval = time.Hour
	z := zone{holds: 5 * time.Millisecond}
	w.hosts.lookup = z.lookup
	z.set("gw.east.example", "127.0.0.1")
	conn := w.dial(t)
	mustCall(t, conn)
	for before := z.lookups(); z.lookups() < before+3; {
		time.Sleep(time.Millisecond)
	}
	mustCall(t, conn)
	if sni, _ := gw.seen(); len(sni) != 1 {
		t.Errorf("%d connections were made, want the first to last", len(sni))
	}
}

func TestAFailingLookupTakesNothingAway(t *testing.T) {
	gw := startGateway(t)
	w := newEastDialer(t, "gw.east.example:"+onPort(t, gw))
	w.hosts.times.interval = 5 * time.Millisecond
	var z zone
	w.hosts.lookup = z.lookup
	z.set("gw.east.example", "127.0.0.1")
	conn := w.dial(t)
	mustCall(t, conn)

	z.set("other.example", "127.0.0.1")
	for before := z.lookups(); z.lookups() < before+3; {
		time.Sleep(time.Millisecond)
	}
	mustCall(t, conn)

	// A new gateway whose name can't be looked up takes nothing away either.
	w.setEast("lost.example:1")
	for before := z.lookups(); z.lookups() < before+3; {
		time.Sleep(time.Millisecond)
	}
	mustCall(t, conn)
}

func TestTheFirstLookupFails(t *testing.T) {
	gw := startGateway(t)
	w := newEastDialer(t, "gw.east.example:"+onPort(t, gw))
	var z zone
	w.hosts.lookup = z.lookup
	conn := w.dial(t)
	_, err := call(t, conn)
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "gw.east.example") {
		t.Errorf("call: %v, want Unavailable and the gateway's host name", err)
	}
	z.set("gw.east.example", "127.0.0.1")
	callUntilRecovered(t, conn, gw.Address)
}

func TestACloseEndsALookupUnderWay(t *testing.T) {
	w := newEastDialer(t, "gw.east.example:1")
	w.hosts.times.timeout = time.Hour
	asked, ended := make(chan struct{}), make(chan error, 1)
	w.hosts.lookup = func(ctx context.Context, _, _ string) ([]netip.Addr, time.Duration, error) {
		close(asked)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, 0, ctx.Err()
	}
	conn := w.dial(t)
	go func() { _, _ = call(t, conn) }() // the first call makes the connection
	<-asked
	w.Close()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the lookup ended with %v, want %v", err, context.Canceled)
	}
}
