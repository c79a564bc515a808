package traffic

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
)

var (
	checkout = catalog.App{Namespace: "shop", ID: "checkout"}
	orders   = catalog.App{Namespace: "shop", ID: "orders"}
	begin    = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
)

func calls(n uint64, took time.Duration) *v1alpha1.CallTraffic {
	var c traffic.Counter
	for range n {
		c.Add(traffic.OK, took)
	}
	counts := c.Read()
	return counts.Wire()
}

func made(cluster string, m *v1alpha1.CallTraffic) *v1alpha1.CallReport {
	return &v1alpha1.CallReport{Made: []*v1alpha1.MadeCalls{{Callee: wire.App(orders), Cluster: cluster, Traffic: m}}}
}

func guarded(caller catalog.App, cluster string, m *v1alpha1.CallTraffic, refused uint64) *v1alpha1.CallReport {
	return &v1alpha1.CallReport{Calls: []*v1alpha1.CallCount{{Caller: wire.App(caller), Cluster: cluster, Traffic: m, Refused: refused}}}
}

func report(t testing.TB, s *Store, app catalog.App, m *v1alpha1.CallReport, now time.Time) {
	t.Helper()
	if err := s.Report(app, 1, m, now); err != nil {
		t.Fatal(err)
	}
}

// TestNoCallIsLost has calls at random for 30 hours. At any time, each window that is kept has the
// calls of its whole slots.
func TestNoCallIsLost(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	s := New("west", begin)
	type sent struct {
		at time.Time
		n  uint64
	}
	var all []sent
	now := begin
	for now.Before(begin.Add(30 * time.Hour)) {
		now = now.Add(time.Duration(random.ExpFloat64() * float64(40*time.Second)))
		n := 1 + random.Uint64N(20)
		report(t, s, checkout, made("east", calls(n, time.Duration(1+random.IntN(1000))*time.Millisecond)), now)
		all = append(all, sent{now, n})
		if random.IntN(10) > 0 {
			continue
		}
		for _, window := range []time.Duration{10 * time.Second, time.Minute, 15 * time.Minute, time.Hour, Kept} {
			got, from, to := s.Traffic(Query{Window: window, Step: 5 * time.Minute}, now)
			var want uint64
			for i := len(all) - 1; i >= 0 && !all[i].at.Before(from); i-- {
				if all[i].at.Before(to) {
					want += all[i].n
				}
			}
			var calls, steps uint64
			for _, edge := range got {
				calls += edge.Calls()
				for i := range edge.Steps {
					steps += edge.Steps[i].Calls()
				}
			}
			if calls != want || steps != want || to.Sub(from) > window+long || to.Sub(from) < min(window, to.Sub(begin)) {
				t.Fatalf("at %s, the last %s from %s to %s: %d calls, %d by steps, want %d", now, window, from, to, calls, steps, want)
			}
		}
	}
}

// TestWhoTells has the same calls told of by both ends, and others by one alone.
func TestWhoTells(t *testing.T) {
	s := New("west", begin)
	report(t, s, checkout, made("west", calls(10, time.Millisecond)), begin)
	report(t, s, checkout, made("east", calls(5, time.Millisecond)), begin)
	report(t, s, orders, guarded(checkout, "local", calls(10, time.Millisecond), 0), begin)                                   // the same
	report(t, s, orders, guarded(catalog.App{Namespace: "shop", ID: "stock"}, "local", calls(7, time.Millisecond), 2), begin) // by stock daprd
	report(t, s, orders, guarded(checkout, "east", calls(3, time.Millisecond), 0), begin)
	report(t, s, checkout, &v1alpha1.CallReport{RefusedLookups: []*v1alpha1.RefusedLookups{{Outcome: "denied", Count: 2, Callee: wire.App(orders)}}}, begin)
	all, _, _ := s.Traffic(Query{Window: time.Minute}, begin.Add(Short))
	var got []string
	for _, e := range all {
		got = append(got, fmt.Sprintf("%s@%s>%s@%s %d/%d", e.Caller.ID, e.CallerCluster, e.Callee.ID, e.Cluster, e.Good(), e.Calls()))
	}
	if want := "[checkout@west>orders@west 10/10 stock@west>orders@west 7/9 checkout@west>orders@east 5/5 checkout@east>orders@west 3/3 checkout@west>orders@ 0/2]"; fmt.Sprint(got) != want {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// All calls of a time are known from when the last replica began.
func TestWhatIsKnownWhole(t *testing.T) {
	now := begin.Add(48 * time.Hour)
	old, young := New("west", begin), New("west", now.Add(-time.Minute))
	day := Query{Window: Kept}
	if since := Whole(old.Own(day, now)); now.Sub(since) < Kept {
		t.Errorf("a replica that is two days old knows the calls of %s", now.Sub(since))
	}
	if since := Whole(old.Own(day, now), young.Own(day, now)); now.Sub(since) != time.Minute {
		t.Errorf("with one that is a minute old, the calls of %s are known", now.Sub(since))
	}
	if since := Whole(New("west", now).Own(day, now)); !since.Equal(now) {
		t.Errorf("a replica that begins now knows the calls of %s", now.Sub(since))
	}
}

func TestUnderWayEndsWithTheSidecar(t *testing.T) {
	s := New("west", begin)
	for sidecar := range uint64(2) {
		if err := s.Report(checkout, sidecar, &v1alpha1.CallReport{Made: []*v1alpha1.MadeCalls{{Callee: wire.App(orders), Cluster: "east", UnderWay: 3}}}, begin); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []uint64{6, 3, 0} {
		all, _, _ := s.Traffic(Query{Window: time.Minute}, begin.Add(Short))
		if want == 0 && len(all) > 0 || want > 0 && (len(all) != 1 || all[0].UnderWay != want) {
			t.Errorf("%+v, want %d under way", all, want)
		}
		s.Gone(checkout, 2-want/3)
	}
}

// TestMadeUpNamesTakeNoRoom has one app name a thousand callees a second.
func TestMadeUpNamesTakeNoRoom(t *testing.T) {
	s := New("west", begin)
	attacker := catalog.App{Namespace: "bad", ID: "app"}
	for i := range 100 {
		m := &v1alpha1.CallReport{}
		for j := range 100 {
			m.Made = append(m.Made, &v1alpha1.MadeCalls{Callee: wire.App(catalog.App{Namespace: "made", ID: fmt.Sprintf("up-%d-%d", i, j)}), Traffic: calls(1, 0)})
		}
		report(t, s, attacker, m, begin)
	}
	report(t, s, checkout, made("east", calls(5, time.Millisecond)), begin)
	if s.count != maxAppEdges+1 || s.Lost() != 100*100-maxAppEdges {
		t.Errorf("%d edges, %d calls lost", s.count, s.Lost())
	}
	// They are forgotten after a day, for others to have the room.
	report(t, s, attacker, made("east", calls(1, 0)), begin.Add(Kept+time.Hour))
	if s.count != 1 {
		t.Errorf("a day later there are %d edges", s.count)
	}
	for what, m := range map[string]*v1alpha1.CallReport{
		"too many callees": {Made: make([]*v1alpha1.MadeCalls, maxReport+1)},
		"too many callers": {Calls: make([]*v1alpha1.CallCount, maxReport+1)},
		"no cluster":       made("no cluster", nil),
		"too many ends":    made("east", &v1alpha1.CallTraffic{Ends: make([]uint64, traffic.Ends+1)}),
		"too many buckets": made("east", &v1alpha1.CallTraffic{FirstBucket: math.MaxUint32, Buckets: make([]uint64, 2)}),
	} {
		if s.Report(checkout, 1, m, begin) == nil {
			t.Errorf("%s: taken", what)
		}
	}
}

// TestMetricsHaveBothHistograms gathers what two edges and those beyond the bound have counted.
func TestMetricsHaveBothHistograms(t *testing.T) {
	s := New("west", begin)
	now := time.Now()
	report(t, s, checkout, made("east", calls(7, 20*time.Millisecond)), now)
	for i := range maxMetricEdges - maxAppMetricEdges - 1 {
		report(t, s, catalog.App{Namespace: "shop", ID: fmt.Sprint("caller-", i)}, made("east", calls(1, time.Millisecond)), now)
	}
	for i := range maxAppMetricEdges + 5 { // an app that makes up names
		made := &v1alpha1.MadeCalls{Callee: wire.App(catalog.App{Namespace: "made", ID: fmt.Sprint("up-", i)}), Traffic: calls(1, time.Millisecond)}
		report(t, s, catalog.App{Namespace: "bad", ID: "app"}, &v1alpha1.CallReport{Made: []*v1alpha1.MadeCalls{made}}, now)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "isthmus_call_duration_seconds" {
			continue
		}
		if len(f.GetMetric()) != maxMetricEdges+1 {
			t.Errorf("%d edges", len(f.GetMetric()))
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			h := m.GetHistogram()
			switch labels["caller"] {
			case "checkout":
				var below uint64
				for _, b := range h.GetBucket() {
					if b.GetUpperBound() < .015 {
						below = b.GetCumulativeCount()
					}
				}
				if h.GetSampleCount() != 7 || h.GetSchema() != traffic.Schema || len(h.GetPositiveSpan()) != 1 || len(h.GetBucket()) != 15 || below != 0 || h.GetBucket()[5].GetCumulativeCount() != 7 {
					t.Errorf("the histogram is %v", h)
				}
				// Bucket i ends at 2 to the power of i/4 seconds.
				if upper := math.Exp2(float64(h.GetPositiveSpan()[0].GetOffset()) / 4); upper < .02 || upper > .024 {
					t.Errorf("20 ms are in a bucket up to %v s", upper)
				}
			case "other":
				if h.GetSampleCount() != 5 {
					t.Errorf("the others are %v", h)
				}
			}
		}
	}
}

// TestHugeNumbersHarmNobody has a sidecar tell of more calls than there can be, again and again.
func TestHugeNumbersHarmNobody(t *testing.T) {
	s := New("west", begin)
	huge := &v1alpha1.CallTraffic{Micros: math.MaxUint64, Retries: math.MaxUint64}
	for range traffic.Ends {
		huge.Ends = append(huge.Ends, math.MaxUint64)
	}
	for i := range traffic.Buckets {
		huge.Buckets = append(huge.Buckets, math.MaxUint64-uint64(i)<<55)
	}
	now := begin
	for range 100 {
		now = now.Add(long)
		report(t, s, checkout, made("east", huge), now)
		report(t, s, orders, guarded(checkout, "east", huge, math.MaxUint64), now)
		report(t, s, checkout, &v1alpha1.CallReport{RefusedLookups: []*v1alpha1.RefusedLookups{{Outcome: "denied", Count: math.MaxUint64, Callee: wire.App(orders)}}}, now)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s)
	if _, err := registry.Gather(); err != nil {
		t.Error(err)
	}
	all, _, _ := s.Traffic(Query{Window: Kept}, now.Add(Short))
	for i := range all {
		if all[i].Calls() > math.MaxInt64 || all[i].Good() > all[i].Calls() {
			t.Errorf("%d calls, %d good", all[i].Calls(), all[i].Good())
		}
	}
}

// TestHistoryIsNear compares quantiles of a day, whose numbers by latency are rounded, with the exact
// ones.
func TestHistoryIsNear(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	s := New("west", begin)
	var all traffic.Counts
	now := begin
	for range 25 * 12 {
		now = now.Add(long)
		var c traffic.Counter
		for range 1 + random.IntN(5000) {
			c.Add(traffic.OK, time.Duration(math.Exp(random.NormFloat64())*float64(5*time.Millisecond)))
		}
		counts := c.Read()
		report(t, s, checkout, made("east", counts.Wire()), now)
		if now.Sub(begin) > time.Hour {
			all.Add(&counts)
		}
	}
	got, _, _ := s.Traffic(Query{Window: Kept}, now.Add(Short))
	for _, part := range []float64{.5, .95, .99} {
		if got, want := got[0].Quantile(part), all.Quantile(part); math.Abs(float64(got-want)) > .2*float64(want) {
			t.Errorf("quantile %v is %s, exactly %s", part, got, want)
		}
	}
}

// TestMemoryOfADay fills the store for a day, with a call a second of latencies that differ by a factor
// of ten, and adds up what the allocator gives out for an edge.
func TestMemoryOfADay(t *testing.T) {
	const bound = 64 << 20 / 10_000
	random := rand.New(rand.NewPCG(5, 6))
	s := New("west", begin)
	for now := begin; now.Before(begin.Add(25 * time.Hour)); now = now.Add(Short) {
		var c traffic.Counter
		for range 10 {
			c.Add(traffic.OK, time.Duration(math.Exp(random.NormFloat64()*.5)*float64(5*time.Millisecond)))
		}
		counts := c.Read()
		report(t, s, checkout, made("east", counts.Wire()), now)
	}
	var one *history
	for e, r := range s.apps[checkout] {
		one = r
		each := cap(r.short.data) + cap(r.long.data) + int(unsafe.Sizeof(*r)) + 2*int(unsafe.Sizeof(e)) + 64 // the map, and names
		t.Logf("an edge takes %d bytes; ten thousand take %.0f MiB", each, float64(each)*10_000/(1<<20))
		if each > bound {
			t.Errorf("an edge takes %d bytes, want %d at most", each, bound)
		}
	}
	if one == nil || len(one.long.data) < 288*5 {
		t.Fatal("a day is not there")
	}
}

// BenchmarkReports has a thousand sidecars tell of twenty callees each, as every five seconds, with their
// messages read from bytes. It tells the part of a processor, and what the messages take.
func BenchmarkReports(b *testing.B) {
	const sidecars, callees = 1000, 20
	random := rand.New(rand.NewPCG(9, 10))
	s, bytes := New("west", begin), 0
	var messages [sidecars][]byte
	for i := range messages {
		m := &v1alpha1.CallReport{}
		for j := range callees {
			var c traffic.Counter
			for range 50 {
				c.Add(traffic.OK, time.Duration(math.Exp(random.NormFloat64()*.5)*float64(5*time.Millisecond)))
			}
			counts := c.Read()
			m.Made = append(m.Made, &v1alpha1.MadeCalls{Callee: wire.App(catalog.App{Namespace: "shop", ID: fmt.Sprint("callee-", (i+j)%500)}), Cluster: "east", Traffic: counts.Wire()})
		}
		messages[i], _ = proto.Marshal(m)
		bytes += len(messages[i])
	}
	now := begin
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(5 * time.Second)
		for i, message := range messages {
			m := &v1alpha1.CallReport{}
			if err := proto.Unmarshal(message, m); err != nil {
				b.Fatal(err)
			}
			if err := s.Report(catalog.App{Namespace: "shop", ID: fmt.Sprint("caller-", i/2)}, uint64(i), m, now); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/5*100, "%cpu")
	b.ReportMetric(float64(bytes)/5, "bytes/s")
}

// TestExemplarsAreOfBuckets has calls of sampled traces in one bucket and in another, and of ends that
// there are not.
func TestExemplarsAreOfBuckets(t *testing.T) {
	s, now := New("west", begin), time.Now()
	var c traffic.Counter
	var before traffic.Exemplars
	tell := func(id byte, end traffic.End, took time.Duration, at time.Time) {
		c.Add(end, took)
		c.Traced(end, traffic.Exemplar{At: at, TraceID: [16]byte{id}, Took: took})
		counts, newest := c.Read(), c.Exemplars()
		m := counts.Wire()
		if m.Exemplars = newest.Since(&before); len(m.Exemplars) != 1 {
			t.Fatalf("told of %v", m.Exemplars)
		}
		before = newest
		report(t, s, checkout, made("east", m), now)
	}
	tell(1, traffic.OK, 20*time.Millisecond, now.Add(-time.Hour))
	tell(2, traffic.OK, 20*time.Millisecond, now.Add(-time.Minute))
	tell(3, traffic.AppError, 21*time.Millisecond, now.Add(-time.Second))
	tell(4, traffic.Late, time.Minute, now.Add(time.Hour))
	if again := c.Exemplars(); len(again.Since(&before)) > 0 {
		t.Error("told of twice")
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s)
	answer := httptest.NewRecorder()
	req := httptest.NewRequest("GET", "/metrics", nil)
	req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}).ServeHTTP(answer, req)
	var got []string
	for _, m := range regexp.MustCompile(`(?m)^isthmus_call_(duration|results).*(le|result)="([^"]*)".* # \{trace_id="0(.)0{30}"\} (\S+)`).FindAllStringSubmatch(answer.Body.String(), -1) {
		got = append(got, m[3]+" "+m[4]+" "+m[5])
	}
	want := []string{"0.03125 3 0.021", "+Inf 4 60.0", "ok 2 1.0", "late 4 1.0", "app error 3 1.0"}
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("%q, want %q in\n%s", got, want, answer.Body)
	}
	for _, bad := range []*v1alpha1.CallExemplar{{End: traffic.Ends, TraceId: strings.Repeat("1", 32)}, {TraceId: "short"}, {TraceId: strings.Repeat("x", 32)}} {
		if err := s.Report(checkout, 1, made("east", &v1alpha1.CallTraffic{Exemplars: []*v1alpha1.CallExemplar{bad}}), now); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
}
