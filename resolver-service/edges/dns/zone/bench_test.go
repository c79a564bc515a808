package zone

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// often are queries that are asked all the time.
func often() map[string]asking {
	subnet := withSubnet("10.0.0.9/32")
	return map[string]asking{
		"local":          {from: "10.0.0.9", name: "orders.shop.isthmus.internal.", typ: "A"},
		"local EDNS":     {from: "10.0.0.9", name: "orders.shop.isthmus.internal.", typ: "A", edns: true},
		"one instance":   {from: "10.0.0.9", name: "cart.shop.isthmus.internal.", typ: "A"},
		"in cluster":     {from: "10.0.0.9", name: "orders.shop.west.isthmus.internal.", typ: "A"},
		"gateway":        {from: "10.0.0.9", name: "ledger.finance.isthmus.internal.", typ: "A"},
		"gateway name":   {from: "10.0.0.9", name: "ledger.finance.east.isthmus.internal.", typ: "A"},
		"stranger":       {from: "10.9.9.9", name: "ledger.finance.east.isthmus.internal.", typ: "A"},
		"no data":        {from: "10.0.0.9", name: "ledger.finance.isthmus.internal.", typ: "AAAA", edns: true},
		"denied":         {from: "10.0.0.9", name: "secret.shop.isthmus.internal.", typ: "A"},
		"denied EDNS":    {from: "10.0.0.9", name: "secret.shop.isthmus.internal.", typ: "A", edns: true},
		"not found EDNS": {from: "10.0.0.8", name: "nothing.shop.isthmus.internal.", typ: "A", edns: true},
		"unknown EDNS":   {from: "10.9.9.9", name: "orders.shop.isthmus.internal.", typ: "A", edns: true},
		"odd name EDNS":  {from: "10.9.9.9", name: `a.\000.b.c.d.isthmus.internal.`, typ: "A", edns: true},
		"outside EDNS":   {from: "10.0.0.9", name: "example.com.", typ: "A", edns: true},
		"stale":          {from: "10.0.0.9", name: "served.shop.isthmus.internal.", typ: "A", edns: true},
		"Kubernetes":     {from: "10.0.0.9", name: "orders-dapr.shop.svc.cluster.local.", typ: "A"},
		"app's gateway":  {from: "10.0.0.9", name: "stock-dapr.shop.svc.cluster.local.", typ: "A"},
		"by server name": {from: "10.0.0.9", name: "ledger-dapr.finance.svc.cluster.local.", typ: "A", edns: true},
		"subnet":         {from: "10.53.0.1", name: "orders.shop.isthmus.internal.", typ: "A", shape: subnet},
		"SRV":            {from: "10.0.0.9", name: "_dapr._tcp.orders.shop.isthmus.internal.", typ: "SRV"},
		"HTTPS":          {from: "10.0.0.9", name: "orders.shop.isthmus.internal.", typ: "HTTPS"},
		"PTR":            {from: "10.0.0.9", name: "1.0.0.10.in-addr.arpa.", typ: "PTR"},
		"SOA":            {from: "10.0.0.9", name: "isthmus.internal.", typ: "SOA"},
		"NS":             {from: "10.0.0.9", name: "isthmus.internal.", typ: "NS"},
		"cookie": {from: "10.0.0.9", name: "orders.shop.isthmus.internal.", typ: "A", shape: func(m *dns.Msg) {
			m.SetEdns0(1232, false)
			m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0102030405060708"})
		}},
	}
}

func forwarders(c *Config) { c.Forwarders = []netip.Prefix{netip.MustParsePrefix("10.53.0.0/16")} }

func TestWhatIsAskedAllTheTimeAllocatesNothing(t *testing.T) {
	w := shop(t, forwarders)
	out := make([]byte, 0, 65535)
	for what, a := range often() {
		q := query(a, must(a.message().Pack()))
		if response, _ := w.Answer(q, out); len(response) == 0 {
			t.Errorf("%s: no answer", what)
		}
		if n := testing.AllocsPerRun(100, func() { w.Answer(q, out) }); n != 0 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
}

func BenchmarkAnswer(b *testing.B) {
	w := shop(b, forwarders)
	for what, a := range often() {
		q := query(a, must(a.message().Pack()))
		b.Run(what, func(b *testing.B) {
			out := make([]byte, 0, 65535)
			b.ReportAllocs()
			for b.Loop() {
				w.Answer(q, out)
			}
		})
	}
}

func BenchmarkAnswerInParallel(b *testing.B) {
	w := shop(b, forwarders)
	a := often()["one instance"]
	packet := must(a.message().Pack())
	b.RunParallel(func(pb *testing.PB) {
		q, out := query(a, packet), make([]byte, 0, 65535)
		for pb.Next() {
			w.Answer(q, out)
		}
	})
}

// BenchmarkKept tells what the zone keeps of each app once somebody has asked for it.
func BenchmarkKept(b *testing.B) {
	const apps = 50_000
	w := newWorld(b, west)
	c := topology.InstanceChange{Source: "test", Full: true}
	for i := range apps {
		c.Put = append(c.Put, catalog.Instance{
			ID: "1", App: catalog.App{Namespace: "shop", ID: "app-" + strconv.Itoa(i)},
			Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 50002),
		})
	}
	w.apply(topology.Change{Instances: []topology.InstanceChange{c}}, full())
	view, _ := w.view(app("shop/checkout"))
	for b.Loop() {
		before := heap()
		for _, e := range view.Entries.All() {
			if w.keep(e.Plan) == nil {
				b.Fatal("nothing is kept")
			}
		}
		b.ReportMetric(float64(heap()-before)/apps, "B/app")
	}
	runtime.KeepAlive(view)
}

// BenchmarkNames measures from an instance's change until an answer shows it, by the number of names, and
// what so many cost: the start, memory, and answers to one name after the other.
func BenchmarkNames(b *testing.B) {
	for names := 1000; names <= 1_000_000; names *= 10 {
		b.Run(strconv.Itoa(names), func(b *testing.B) { benchmarkNames(b, names) })
	}
}

func benchmarkNames(b *testing.B, names int) {
	address := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 50002)
	}
	instance := func(i int) catalog.Instance {
		return catalog.Instance{ID: "1", App: catalog.App{Namespace: "shop", ID: fmt.Sprintf("app-%07d", i)}, Address: address(i)}
	}
	before := heap()
	w := newWorld(b, west)
	c := topology.InstanceChange{Source: "test"}
	for i := range names {
		c.Put = append(c.Put, instance(i))
	}
	begin := time.Now()
	w.apply(topology.Change{Instances: []topology.InstanceChange{c}}, full())
	figures := map[string]float64{"ms-to-ready": float64(time.Since(begin).Microseconds()) / 1e3}
	c.Put = nil
	out, packet := make([]byte, 0, 65535), make([]byte, 0, 512)
	shows := func(i int) bool { // the i-th app's answer ends with its address
		packet = append(packet[:0], 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 11)
		packet = append(fmt.Appendf(packet, "app-%07d", i), "\x04shop\x07isthmus\x08internal\x00\x00\x01\x00\x01"...)
		m, _ := w.Answer(query(asking{as: "shop/checkout"}, packet), out)
		a := address(i).Addr().As4()
		return len(m) > 16 && m[7] == 1 && string(m[len(m)-4:]) == string(a[:])
	}
	for _, turn := range []string{"ns-an-answer", "ns-again"} {
		begin := time.Now()
		for i := range names {
			if !shows(i) {
				b.Fatalf("app %d has no address", i)
			}
		}
		figures[turn] = float64(time.Since(begin).Nanoseconds()) / float64(names)
	}
	figures["B/name"] = float64(heap()-before) / float64(names)
	var took []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		i := len(took) / 2 * 37 % names
		put := instance(i)
		put.Draining = len(took)%2 == 0
		begin := time.Now()
		w.apply(topology.Change{Instances: []topology.InstanceChange{{Source: "test", Put: []catalog.Instance{put}}}})
		if shows(i) == put.Draining {
			b.Fatalf("change %d of app %d does not show in its answer", len(took), i)
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	figures["change-p50-µs"] = float64(took[len(took)/2].Nanoseconds()) / 1e3
	figures["p99-µs"] = float64(took[len(took)*99/100].Nanoseconds()) / 1e3
	for name, value := range figures {
		b.ReportMetric(value, name)
	}
}

func heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
