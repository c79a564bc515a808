package zone

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/hosts"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// firsts counts which address came first in so many answers.
func (w *world) firsts(who, name string, queries int) map[string]int {
	w.t.Helper()
	count := map[string]int{}
	for range queries {
		got := w.ask(asking{as: who, name: name, typ: "A"})
		if len(got.Answer) == 0 {
			w.t.Fatalf("got %v", got)
		}
		count[got.Answer[0].(*dns.A).A.String()]++
	}
	return count
}

func TestRoutesShareByWeight(t *testing.T) {
	w := newWorld(t, west)
	w.apply(
		full(reaches("east", "203.0.113.7:15443"), reaches("north", "203.0.113.8:15443"),
			selects("shop/checkout", calls("shop/orders", via("east", 0, 90), via("north", 0, 10)))),
		says("east", has("shop/orders", 1)), says("north", has("shop/orders", 1)))
	got := w.firsts("shop/checkout", "orders.shop.isthmus.internal.", 1000)
	if n := got["203.0.113.7"]; n < 890 || n > 910 || n+got["203.0.113.8"] != 1000 {
		t.Errorf("got %v, want 900 and 100", got)
	}
	srv := w.ask(asking{as: "shop/checkout", name: "_dapr._tcp.orders.shop.isthmus.internal.", typ: "SRV"})
	weights := map[string]uint16{}
	for _, rr := range srv.Answer {
		weights[rr.(*dns.SRV).Target] = rr.(*dns.SRV).Weight
	}
	if weights["orders.shop.east.isthmus.internal."] != 90 || weights["orders.shop.north.isthmus.internal."] != 10 {
		t.Errorf("got %v", weights)
	}
}

func TestWeightsOfServiceRecordsCountForARouteTogether(t *testing.T) {
	w := newWorld(t, west)
	w.apply(
		full(reaches("east", "203.0.113.7:15443"), selects("shop/checkout", calls("shop/orders", via("local", 2, 1), via("east", 2, 3)))),
		runs("shop/orders", "10.0.0.1:50002", "10.0.0.2:50002"), says("east", has("shop/orders", 1)))
	srv := w.ask(asking{as: "shop/checkout", name: "_dapr._tcp.orders.shop.isthmus.internal.", typ: "SRV"})
	sum := map[bool]int{}
	for _, rr := range srv.Answer {
		r := rr.(*dns.SRV)
		if r.Priority != 2 {
			t.Errorf("got %v", r)
		}
		sum[r.Port == 15443] += int(r.Weight)
	}
	if sum[true] != 3*sum[false] {
		t.Errorf("the gateway has %d, instances %d", sum[true], sum[false])
	}
}

func TestEachAddressComesFirstInItsTurn(t *testing.T) {
	w := newWorld(t, west)
	w.apply(full(reaches("east", "203.0.113.7:1", "203.0.113.8:1", "203.0.113.9:1"), selects("shop/checkout", calls("shop/orders"), calls("shop/far", via("east", 0, 1)))),
		runs("shop/orders", "10.0.0.1:50002", "10.0.0.2:50002", "10.0.0.3:50002"), says("east", has("shop/far", 1)))
	for address, n := range w.firsts("shop/checkout", "orders.shop.isthmus.internal.", 300) {
		if n < 95 || n > 105 {
			t.Errorf("%s came first %d times of 300", address, n)
		}
	}
	if got := w.firsts("shop/checkout", "far.shop.isthmus.internal.", 300); len(got) != 3 {
		t.Errorf("of gateways, these came first: %v", got)
	}
}

// TestTheNextQuerySeesAChange has each change followed by a query at once.
func TestTheNextQuerySeesAChange(t *testing.T) {
	w := newWorld(t, west)
	address := func(name string) string {
		got := w.ask(asking{from: "10.0.0.9", name: name, typ: "A"})
		if len(got.Answer) != 1 {
			return dns.RcodeToString[got.Rcode]
		}
		return got.Answer[0].(*dns.A).A.String()
	}
	w.apply(full(selects("shop/checkout", calls("shop/orders"), calls("shop/far", via("east", 0, 1)))), runs("shop/checkout", "10.0.0.9:50002"))
	for i := range 200 {
		want := fmt.Sprintf("10.1.0.%d", i+1)
		w.apply(runs("shop/orders", want+":50002"))
		if got := address("orders.shop.isthmus.internal."); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
		gateway := fmt.Sprintf("203.0.113.%d", i+1)
		w.apply(put(reaches("east", gateway+":15443")))
		if i == 0 {
			w.apply(says("east", has("shop/far", 1)))
		}
		if got := address("far.shop.isthmus.internal."); got != gateway {
			t.Fatalf("got %s, want %s", got, gateway)
		}
		w.hosts.Store(hosts.Addresses{"gw.example": {netip.MustParseAddr(want)}})
		w.apply(put(reaches("east", "GW.example:15443")))
		if got := address("far.shop.isthmus.internal."); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
	w.apply(topology.Change{Objects: &topology.ObjectChange{Delete: []catalog.Key{{Kind: catalog.KindCluster, Name: "east"}}}})
	if got := w.ask(asking{from: "10.0.0.9", name: "far.shop.east.isthmus.internal.", typ: "A", edns: true}); got.Rcode != dns.RcodeSuccess || len(got.Answer) > 0 {
		t.Errorf("got %v", got)
	}
	w.apply(put(reaches("east", "203.0.113.99:15443")), says("east", has("shop/far", 1)))
	if got := address("far.shop.isthmus.internal."); got != "203.0.113.99" {
		t.Errorf("got %s", got)
	}
	w.apply(put(selects("shop/checkout")))
	if got := address("orders.shop.isthmus.internal."); got != "NXDOMAIN" {
		t.Errorf("got %s", got)
	}
}

// TestViewsChangeUnderQueries is for the race detector: an answer is always one that
// stood at some time.
func TestViewsChangeUnderQueries(t *testing.T) {
	w := newWorld(t, west)
	w.apply(full(reaches("east", "203.0.113.1:1"), selects("shop/checkout", calls("shop/orders"), calls("shop/far", via("east", 0, 1)))),
		runs("shop/checkout", "10.0.0.9:50002"), says("east", has("shop/far", 1)))
	names := []string{
		"orders.shop.isthmus.internal.", "far.shop.isthmus.internal.", "far.shop.east.isthmus.internal.",
		"cart.shop.isthmus.internal.", "_dapr._tcp.far.shop.isthmus.internal.", "isthmus.internal.",
	}
	ctx, stop := context.WithCancel(t.Context())
	var knownCallers sync.WaitGroup
	for n := range 4 {
		knownCallers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				a := asking{from: "10.0.0.9", name: names[i%len(names)], typ: []string{"A", "AAAA", "SRV", "TXT", "HTTPS"}[(i+n)%5], edns: i%2 == 0}
				if i%3 == 0 {
					a.as = fmt.Sprintf("shop/caller-%d", i%50)
				}
				w.ask(a)
			}
		})
	}
	for i := range 300 {
		w.apply(runs("shop/orders", fmt.Sprintf("10.1.0.%d:50002", i%250+1), fmt.Sprintf("10.1.1.%d:50002", i%250+1)),
			put(reaches("east", fmt.Sprintf("203.0.113.%d:1", i%250+1))))
		if i%10 == 0 {
			w.release((*knownCaller).idle)
			w.hosts.Store(hosts.Addresses{})
		}
	}
	stop()
	knownCallers.Wait()
}

// TestRoutesWithoutAnyAddress have something ready behind them, and nobody knows where.
func TestRoutesWithoutAnyAddress(t *testing.T) {
	w := newWorld(t, west)
	w.apply(full(reaches("east", "gw.east.example:15443"), selects("shop/checkout", calls("shop/orders"))), says("east", has("shop/orders", 1)))
	rows := func(want string) []row {
		var all []row
		for _, name := range []string{"orders.shop.isthmus.internal. A", "orders.shop.east.isthmus.internal. AAAA", "_dapr._tcp.orders.shop.isthmus.internal. SRV",
			"_dapr._tcp.orders.shop.east.isthmus.internal. SRV", "orders.shop.isthmus.internal. HTTPS"} {
			all = append(all, row{name + " +", want})
		}
		return all
	}
	w.check("shop/checkout", rows("SERVFAIL\nerror: 22 No Reachable Authority: no address is known of the gateways of east: gw.east.example"))
	w.apply(put(reaches("east")))
	w.check("shop/checkout", rows("SERVFAIL\nerror: 22 No Reachable Authority: the Cluster object east lists no gateway for all apps"))
	w.apply(put(reaches("east", "203.0.113.7:15443")))
	w.check("shop/checkout", []row{{"orders.shop.isthmus.internal. A", "NOERROR aa\norders.shop.isthmus.internal. 5 IN A 203.0.113.7"}})
}

// TestAFamilyIsAnsweredByARouteThatHasIt: A and AAAA are asked for apart, so each may fall on
// a route that has the other alone.
func TestAFamilyIsAnsweredByARouteThatHasIt(t *testing.T) {
	w := newWorld(t, west)
	w.apply(
		full(reaches("six", "[2001:db8::6]:15443"), reaches("lost", "gw.lost.example:15443"), reaches("later", "[2001:db8::7]:15443"),
			selects("shop/checkout", calls("shop/orders", via("local", 0, 1), via("six", 0, 1), via("lost", 0, 1), via("later", 1, 1)),
				calls("shop/carts", via("local", 0, 1), via("later", 1, 1)))),
		runs("shop/orders", "10.0.0.1:50002"), runs("shop/carts", "10.0.0.2:50002"),
		says("six", has("shop/orders", 1)), says("lost", has("shop/orders", 1)), says("later", has("shop/orders", 1), has("shop/carts", 1)))
	for range 20 {
		w.check("shop/checkout", []row{
			{"orders.shop.isthmus.internal. A", "NOERROR aa\norders.shop.isthmus.internal. 5 IN A 10.0.0.1"},
			{"orders.shop.isthmus.internal. AAAA", "NOERROR aa\norders.shop.isthmus.internal. 5 IN AAAA 2001:db8::6"},
			{"carts.shop.isthmus.internal. AAAA", "NOERROR aa\n" + soaLine}, // only where a lookup could lead
		})
		if got := w.ask(asking{as: "shop/checkout", name: "orders.shop.isthmus.internal.", typ: "HTTPS"}); len(got.Answer) != 1 {
			t.Errorf("got %v", got)
		}
	}
}

// TestALongNameHasNoInstances: where those of instances would be longer than a name may
// be, SRV and PTR lead to the app's.
func TestALongNameHasNoInstances(t *testing.T) {
	long := west
	long.Domain = catalog.Domain("a." + strings.Repeat("b", 58) + "." + strings.Repeat("c", 60))
	w := newWorld(t, long)
	callee := strings.Repeat("n", 63) + "/" + strings.Repeat("o", 50)
	w.apply(full(), runs(callee, "[fd00::1]:50002"))
	host := strings.Repeat("o", 50) + "." + strings.Repeat("n", 63) + ".west." + string(long.Domain) + "."
	srv := w.ask(asking{as: callee, name: "_dapr._tcp." + host[:114] + host[119:], typ: "SRV", edns: true})
	if len(srv.Answer) != 1 || srv.Answer[0].(*dns.SRV).Target != host {
		t.Errorf("got %v", srv)
	}
	ptr := w.ask(asking{as: callee, name: "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa.", typ: "PTR"})
	if len(ptr.Answer) != 1 || ptr.Answer[0].(*dns.PTR).Ptr != host {
		t.Errorf("got %v", ptr)
	}
}

func TestWhoAsksNoMoreIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, west)
		w.apply(full(), runs("shop/orders", "10.0.0.1:50002"))
		for i := range 100 {
			w.ask(asking{as: fmt.Sprintf("shop/caller-%d", i), name: "orders.shop.isthmus.internal.", typ: "A"})
		}
		followed := func() int { return w.knownCallers.all.Load().Len() }
		if followed() != 100 {
			t.Fatalf("the views of %d callers are followed", followed())
		}
		for range 4 {
			time.Sleep(idle)
			synctest.Wait()
			w.ask(asking{as: "shop/caller-7", name: "orders.shop.isthmus.internal.", typ: "A"})
		}
		if followed() != 1 {
			t.Errorf("the views of %d callers are followed, and one asks", followed())
		}
	})
}

// TestNothingIsKeptOfWhatNobodyAsksFor: an app costs the zone nothing until then.
func TestNothingIsKeptOfWhatNobodyAsksFor(t *testing.T) {
	w := newWorld(t, west)
	w.apply(full(), runs("shop/orders", "10.0.0.1:50002"), runs("shop/other", "10.0.0.2:50002"))
	w.ask(asking{as: "shop/checkout", name: "orders.shop.isthmus.internal.", typ: "A"})
	view, _ := w.view(app("shop/checkout"))
	var kept []string
	for a, e := range view.Entries.All() {
		if e.Memo(catalog.MemoDNS) != nil {
			kept = append(kept, a.ID)
		}
	}
	if !slices.Equal(kept, []string{"orders"}) {
		t.Errorf("something is kept of %v", kept)
	}
}
