package dns

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/faults/network"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
)

// patience is how long is waited for what should happen at all.
const patience = time.Minute

// TestWhatIsNotKnownYetIsAFailure: a service that has not read its store says so. Others
// would keep for seconds that an app is not there.
func TestWhatIsNotKnownYetIsAFailure(t *testing.T) {
	needs(t, "isthmus", "dig", "etcd")
	l := &lab{Network: network.New(1), dir: t.TempDir()}
	t.Cleanup(func() {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	})
	var err error
	if l.callers, err = l.Place(checkout, follower, sharing, relay, stranger); err != nil {
		t.Fatal(err)
	}
	if l.west, err = newCluster(l, "west", 1); err != nil {
		t.Fatal(err)
	}
	etcd, err := servers.StartEtcd(meshtest.Within(t, patience), t.TempDir(), servers.EtcdOptions{Place: l.west.place})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := etcd.Kill(); err != nil {
			t.Error(err)
		}
	})
	ctx := meshtest.Within(t, 3*patience)
	l.west.Cluster, err = l.west.box.Cluster(ctx, sandbox.ClusterOptions{
		Name: "west", Gateway: "0.0.0.0:" + gatewayPort, Listen: map[string]any{"dns": "0.0.0.0:" + port},
		Store: map[string]any{"etcd": map[string]any{"endpoints": []string{etcd.URL()}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.west.apply(ctx, strings.Join([]string{instance("checkout-1", "shop/checkout", "10.77.3.11:50001"), instance("orders-1", "shop/orders", "10.77.1.101:50002")}, "---\n")); err != nil {
		t.Fatal(err)
	}
	answers := func() error {
		r, err := l.ask(ctx, checkout, "dig", "orders.shop."+zone, "A")
		if err == nil && data(r.Answer) != "10.77.1.101" {
			err = fmt.Errorf("%s", r.Text)
		}
		return err
	}
	meshtest.Eventually(t, patience, answers)

	if err := etcd.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := answers(); err != nil {
		t.Errorf("a store that goes away takes nothing along: %v", err)
	}
	if err := l.west.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := l.west.Process.Start(); err != nil {
		t.Fatal(err)
	}
	meshtest.Eventually(t, patience, func() error { _, err := l.ask(ctx, checkout, "dig", "+time=1", zone, "SOA"); return err })
	for _, from := range []netip.Addr{checkout, stranger} {
		for _, name := range []string{"orders.shop.", "nowhere.shop.", "orders.shop.west.", "orders.shop.east.", "_dapr._tcp.orders.shop.", "shop.", ""} {
			l.dig(t, from, name+zone, "A").check(t, want{status: "SERVFAIL", answer: "-", ede: "14"})
		}
	}
	l.dig(t, checkout, "example.com", "A").check(t, want{status: "REFUSED", ede: "20"})
	l.dig(t, checkout, "version.bind", "TXT", "CH").check(t, want{status: "NOERROR"})

	if err := etcd.Start(ctx); err != nil {
		t.Fatal(err)
	}
	meshtest.Eventually(t, patience, answers)
}

// TestStale: what is served although its cluster has not been heard from is marked, and held
// for as short as what is not there. What is withdrawn is empty, with the reason.
func TestStale(t *testing.T) {
	needs(t, "isthmus", "dig")
	l, err := newLab(t.Context(), t.TempDir())
	t.Cleanup(func() {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx := meshtest.Within(t, 3*patience)
	serial := soa(t, l.dig(t, stranger, zone, "SOA").Answer).Serial
	began := uint32(time.Now().Unix())
	if err := l.west.apply(ctx, `apiVersion: isthmus.dev/v1alpha1
kind: AppEndpoints
metadata: {namespace: shop, name: checkout}
spec:
  endpoints:
  - {app: stock, routes: [{cluster: east}], whenStale: serve}
  - {app: orders, routes: [{cluster: east}]}
`); err != nil {
		t.Fatal(err)
	}
	// By RFC 1982; the serial is when the last change was, so changes within a second share one.
	next := soa(t, l.dig(t, stranger, zone, "SOA").Answer).Serial
	if int32(next-serial) < 0 || int32(next-began) < 0 || int32(uint32(time.Now().Unix())-next) < 0 {
		t.Errorf("after a change at %d or later the serial is %d, before it was %d", began, next, serial)
	}
	const gateways = "10.77.2.11, 10.77.2.12"
	for _, name := range []string{"stock.shop.", "orders.shop."} {
		l.says(t, ctx, name, "A", func(r *reply) bool { return data(r.Answer) == gateways && r.EDE == "" })
	}
	if err := l.east.Kill(); err != nil { // and its gateway, so that the lease ends at once
		t.Fatal(err)
	}
	for _, name := range []string{"stock.shop.", "stock.shop.east.", "_dapr._tcp.stock.shop."} {
		kind := "A"
		if strings.HasPrefix(name, "_") {
			kind = "SRV"
		}
		r := l.says(t, ctx, name, kind, func(r *reply) bool { return strings.HasPrefix(r.EDE, "3 ") })
		r.check(t, want{status: "NOERROR", ede: "3 "})
		if len(r.Answer) == 0 {
			t.Errorf("nothing is served:\n%s", r.Text)
		}
		for _, rr := range r.Answer {
			if rr.Header().Ttl > 5 {
				t.Errorf("%v is stale and held for longer than 5 s", rr)
			}
		}
	}
	for _, name := range []string{"orders.shop.", "orders.shop.east."} {
		r := l.says(t, ctx, name, "A", func(r *reply) bool { return len(r.Answer) == 0 })
		r.check(t, want{status: "NOERROR", answer: "-", ede: "0 "})
		if !strings.Contains(r.EDE, "east") {
			t.Errorf("the reason does not name the cluster: %s", r.EDE)
		}
		s := soa(t, r.Authority)
		if s.Minttl > 5 {
			t.Errorf("%v", s)
		}
	}
	// A life of the service that begins after this one has no smaller serials.
	last := soa(t, l.dig(t, stranger, zone, "SOA").Answer).Serial
	if err := l.west.Service.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := l.west.Service.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	meshtest.Eventually(t, patience, func() error {
		r, err := l.ask(ctx, stranger, "dig", zone, "SOA")
		if err == nil && len(r.Answer) == 0 {
			err = fmt.Errorf("%s", r.Text)
		}
		if err == nil {
			next = soa(t, r.Answer).Serial
		}
		return err
	})
	if int32(next-last) < 0 {
		t.Errorf("after a restart the serial is %d, before it was %d", next, last)
	}
}

// says asks as checkout until the answer is what it is to be.
func (l *lab) says(t *testing.T, ctx context.Context, name, kind string, is func(*reply) bool) (r *reply) {
	t.Helper()
	meshtest.Eventually(t, patience, func() (err error) {
		if r, err = l.ask(ctx, checkout, "dig", name+zone, kind); err == nil && !is(r) {
			err = fmt.Errorf("%s", r.Text)
		}
		return err
	})
	return r
}
