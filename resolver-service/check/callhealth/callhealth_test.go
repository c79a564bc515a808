package callhealth_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
	"github.com/isthmus-mesh/isthmus/resolver-service/check/callhealth"
)

var (
	checkout = catalog.App{Namespace: "shop", ID: "checkout"}
	cart     = catalog.App{Namespace: "shop", ID: "cart"}
	orders   = catalog.App{Namespace: "shop", ID: "orders"}
)

// world is a cluster west in which lookups end as decide says.
type world struct {
	*callhealth.Health
	now    time.Time
	decide catalog.Decision
}

func newWorld() *world {
	w := &world{now: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC), decide: catalog.Decision{Outcome: catalog.NotFound, Reason: "this cluster has no app shop/orders"}}
	w.Health = callhealth.New(callhealth.Config{
		Cluster: "west", Decide: func(catalog.App, catalog.App) catalog.Decision { return w.decide },
		Change: func(_ time.Time, keys []catalog.Key) string {
			if slices.Contains(keys, catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: "shop", Name: "checkout"}) {
				return "AppEndpoints shop/checkout was deleted at 11:59:58Z"
			}
			return ""
		},
	})
	return w
}

func (w *world) reports(t *testing.T, app catalog.App, m *v1alpha1.CallReport) {
	t.Helper()
	if err := w.Report(app, m, w.now); err != nil {
		t.Fatal(err)
	}
}

// faults are lines of what is wrong, the worst first.
func (w *world) faults() (all []string) {
	for _, f := range w.Faults(w.now) {
		all = append(all, fmt.Sprintf("%s %s %s>%s: %s", f.GetLevel(), f.GetCheck(), f.GetCaller().GetId(), f.GetCallee().GetId(), f.GetWhat()))
	}
	return all
}

func refused(callee catalog.App, outcome string, n uint64) *v1alpha1.CallReport {
	return &v1alpha1.CallReport{RefusedLookups: []*v1alpha1.RefusedLookups{{Outcome: outcome, Count: n, Callee: wire.App(callee)}}}
}

// ended is calls that ended well, failed, or were given up.
func ended(fine, failed, slow uint64) *v1alpha1.CallTraffic {
	var c traffic.Counts
	c.Ends[traffic.OK], c.Ends[traffic.CutOff], c.Ends[traffic.GivenUp] = fine, failed, slow
	return c.Wire()
}

func made(m *v1alpha1.MadeCalls) *v1alpha1.CallReport {
	m.Callee = wire.App(orders)
	return &v1alpha1.CallReport{Made: []*v1alpha1.MadeCalls{m}}
}

func guarded(cluster string, refused, letIn uint64) *v1alpha1.CallReport {
	return &v1alpha1.CallReport{Calls: []*v1alpha1.CallCount{{Caller: wire.App(checkout), Domain: "public", Cluster: cluster, Refused: refused, LetIn: letIn}}}
}

func passedOnCalls(refused, relayed uint64) *v1alpha1.CallReport {
	m := guarded("local", refused, 0)
	m.Calls[0].Relayed = relayed
	return m
}

// TestWhatReportsShow has a row for each way in which calls fail, with what is said of it.
func TestWhatReportsShow(t *testing.T) {
	const change = "; before it: AppEndpoints shop/checkout was deleted at 11:59:58Z"
	for what, test := range map[string]struct {
		by     catalog.App
		report *v1alpha1.CallReport
		want   string // empty: nothing is wrong
	}{
		"lookups are refused": {checkout, refused(orders, "not found", 306),
			"fail calls-refused checkout>orders: 306 calls were refused in the last minute, for 1s: not found: this cluster has no app shop/orders" + change},
		"a guard refuses a caller here": {orders, guarded("local", 3, 0),
			"fail calls-refused checkout>orders: 3 calls were refused in the last minute, for 1s: denied: nothing lets this caller in" + change},
		"a guard passes no call on": {orders, passedOnCalls(4, 4),
			"fail calls-refused checkout>orders: 4 calls were refused in the last minute, for 1s: denied: the call is for another app, which this app's sidecar was to pass it on to" + change},
		"a guard passes no call on, and lets in no other": {orders, passedOnCalls(4, 3),
			"fail calls-refused checkout>orders: 4 calls were refused in the last minute, for 1s: denied: nothing lets this caller in" + change},
		"a guard refuses some of a caller elsewhere": {orders, guarded("east", 1, 9),
			"warn calls-refused checkout>orders: 1 of 10 calls from cluster east were refused in the last minute, for 1s: denied: nothing lets this caller in" + change},
		"calls fail": {checkout, made(&v1alpha1.MadeCalls{Cluster: "east", Code: "Unavailable", Traffic: ended(0, 5, 0)}),
			"fail calls-failed checkout>orders: 5 calls to cluster east failed in the last minute, for 1s: Unavailable: the way to the callee, or its sidecar, ends connections or refuses them" + change},
		"nothing is connected": {checkout, made(&v1alpha1.MadeCalls{Code: "Unavailable", Why: "none of its endpoints is connected: x509: unknown authority", Traffic: ended(0, 1, 0)}),
			"fail calls-failed checkout>orders: 1 call failed in the last minute, for 1s: Unavailable: none of its endpoints is connected: x509: unknown authority" + change},
		"an app answers with errors": {checkout, made(&v1alpha1.MadeCalls{Cluster: "west", Code: "HTTP 500", Traffic: ended(0, 5, 0)}),
			"fail calls-failed checkout>orders: 5 calls to cluster west failed in the last minute, for 1s: HTTP 500: the callee's app answers with server errors" + change},
		"some calls fail": {checkout, made(&v1alpha1.MadeCalls{Cluster: "west", Code: "Unknown", Traffic: ended(50, 1, 0)}),
			"warn calls-failed checkout>orders: 1 of 51 calls to cluster west failed in the last minute, for 1s: Unknown: the callee's app fails" + change},
		"hardly any call finds nothing connected": {checkout, &v1alpha1.CallReport{Made: []*v1alpha1.MadeCalls{
			{Callee: wire.App(orders), Code: "DeadlineExceeded", Traffic: ended(0, 1, 0)}, {Callee: wire.App(orders), Cluster: "west", Traffic: ended(100, 0, 0)}, {Callee: wire.App(orders), Cluster: "east", Traffic: ended(100, 0, 0)},
		}}, ""},
		"hardly any call fails": {checkout, made(&v1alpha1.MadeCalls{Cluster: "west", Code: "Unknown", Traffic: ended(500, 1, 0)}), ""},
		"the callee hangs": {checkout, made(&v1alpha1.MadeCalls{Cluster: "west", Waiting: 4}),
			"fail app-health >orders: it is slow or hangs, for 1s: 4 calls wait for an answer in the last minute; calls of shop/checkout"},
		"the callee is slow elsewhere": {checkout, made(&v1alpha1.MadeCalls{Cluster: "east", Traffic: ended(8, 0, 2)}),
			"warn app-health >orders: it is slow or hangs in cluster east, for 1s: 2 of 10 calls took too long or were given up without an answer in the last minute; calls of shop/checkout"},
		"all is well":             {checkout, made(&v1alpha1.MadeCalls{Cluster: "east", Traffic: ended(8, 0, 0)}), ""},
		"a guard lets callers in": {orders, guarded("east", 0, 9), ""},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld()
			w.reports(t, test.by, test.report)
			if got := strings.Join(w.faults(), "\n"); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// TestWhenAFaultEnds has calls fail, and what comes after.
func TestWhenAFaultEnds(t *testing.T) {
	failing := made(&v1alpha1.MadeCalls{Cluster: "west", Code: "Unavailable", Traffic: ended(0, 5, 0)})
	well := made(&v1alpha1.MadeCalls{Cluster: "west", Traffic: ended(5, 0, 0)})
	for what, test := range map[string]struct {
		before   *v1alpha1.CallReport
		then     *v1alpha1.CallReport // each 5 s
		decide   catalog.Outcome
		ended    time.Duration // after the last failure at the latest
		standing time.Duration // until when at least
	}{
		"calls are answered":                            {failing, well, catalog.OK, 15 * time.Second, 10 * time.Second},
		"nothing was connected, and calls are answered": {made(&v1alpha1.MadeCalls{Code: "DeadlineExceeded", Traffic: ended(0, 5, 0)}), well, catalog.OK, 15 * time.Second, 10 * time.Second},
		"nobody calls any more":                         {failing, nil, catalog.OK, 65 * time.Second, 55 * time.Second},
		"calls go on failing":                           {failing, failing, catalog.OK, 0, time.Hour},
		"lookups would be answered":                     {refused(orders, "not found", 3), nil, catalog.OK, 15 * time.Second, 10 * time.Second},
		"lookups would be refused, nobody asks":         {refused(orders, "not found", 3), nil, catalog.NotFound, 65 * time.Second, 55 * time.Second},
		"a hanging app answers":                         {made(&v1alpha1.MadeCalls{Cluster: "west", Waiting: 3}), well, catalog.OK, 15 * time.Second, 0},
		"the sidecar of a hanging app's caller is gone": {made(&v1alpha1.MadeCalls{Cluster: "west", Waiting: 3}), nil, catalog.OK, 15 * time.Second, 10 * time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld()
			w.decide.Outcome = test.decide
			w.reports(t, checkout, test.before)
			began := w.now
			for after := time.Duration(0); after < 3*time.Minute; after += 5 * time.Second {
				switch stands := len(w.faults()) > 0; {
				case stands && test.ended > 0 && after >= test.ended:
					t.Fatalf("it stands after %s", after)
				case !stands && after <= test.standing:
					t.Fatalf("it is gone after %s", after)
				}
				if test.standing == time.Hour {
					if f := w.Faults(w.now)[0]; f.GetSinceUnixMs() != began.UnixMilli() {
						t.Fatalf("since %s", time.UnixMilli(f.GetSinceUnixMs()))
					}
				}
				w.now = w.now.Add(5 * time.Second)
				if test.then != nil {
					w.reports(t, checkout, test.then)
				}
			}
		})
	}
}

// TestASecondFaultHasAnOwnBegin has lookups refused, mended, and refused again within the minute.
func TestASecondFaultHasAnOwnBegin(t *testing.T) {
	w := newWorld()
	w.reports(t, checkout, refused(orders, "not found", 300))
	w.decide.Outcome = catalog.OK
	w.now = w.now.Add(20 * time.Second)
	if got := w.faults(); len(got) > 0 {
		t.Errorf("mended: %q", got)
	}
	w.decide.Outcome = catalog.NotFound
	again := w.now
	w.reports(t, checkout, refused(orders, "not found", 1))
	w.now = w.now.Add(5 * time.Second)
	w.reports(t, checkout, refused(orders, "not found", 1))
	if f := w.Faults(w.now); len(f) != 1 || f[0].GetSinceUnixMs() != again.UnixMilli() || f[0].GetCalls() != 2 {
		t.Errorf("refused again: %v", f)
	}
	w.reports(t, checkout, refused(orders, "unavailable", 1))
	if f := w.Faults(w.now); len(f) != 1 || f[0].GetSinceUnixMs() != w.now.UnixMilli() || f[0].GetCalls() != 1 {
		t.Errorf("refused for another reason: %v", f)
	}
}

// TestSlowOnesAreSummedUp has two callers of one callee.
func TestSlowOnesAreSummedUp(t *testing.T) {
	w := newWorld()
	w.reports(t, checkout, made(&v1alpha1.MadeCalls{Cluster: "west", Traffic: ended(0, 0, 3)}))
	w.reports(t, cart, made(&v1alpha1.MadeCalls{Cluster: "west", Waiting: 2}))
	want := []string{"fail app-health >orders: it is slow or hangs, for 1s: 2 calls wait for an answer, and 3 calls took too long or were given up in the last minute; calls of shop/checkout, shop/cart"}
	if got := w.faults(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Calls that fail since a moment ago fail, however many were fine in the minute before.
func TestAMinuteOfGoodCallsHidesNoFault(t *testing.T) {
	for _, c := range []struct {
		what string
		bad  *v1alpha1.MadeCalls
		want string
	}{
		{"failed", &v1alpha1.MadeCalls{Code: "Unavailable", Traffic: ended(0, 20, 0)}, "fail calls-failed"},
		{"slow", &v1alpha1.MadeCalls{Traffic: ended(0, 0, 20)}, "fail app-health"},
		{"waiting", &v1alpha1.MadeCalls{Waiting: 20}, "fail app-health"},
	} {
		w := newWorld()
		fine := &v1alpha1.MadeCalls{Callee: wire.App(orders), Cluster: "east", Code: "Unavailable", Traffic: ended(1000, 11, 0)}
		w.reports(t, checkout, made(fine))
		c.bad.Callee, c.bad.Cluster = wire.App(orders), "east"
		for range 4 {
			w.now = w.now.Add(5 * time.Second)
			w.reports(t, checkout, made(c.bad))
		}
		if got := w.faults(); !slices.ContainsFunc(got, func(f string) bool { return strings.HasPrefix(f, c.want) }) {
			t.Errorf("%s: %q, want %s", c.what, got, c.want)
		}
	}
}

// TestMadeUpNamesTakeNoRoom has one app name thousands of callees and clusters, and another one fail.
func TestMadeUpNamesTakeNoRoom(t *testing.T) {
	w := newWorld()
	for i := range 200 {
		m := &v1alpha1.CallReport{}
		for j := range 100 {
			name := catalog.App{Namespace: "made", ID: fmt.Sprintf("up-%d-%d", i, j)}
			m.RefusedLookups = append(m.RefusedLookups, &v1alpha1.RefusedLookups{Outcome: "not found", Count: 1000, Callee: wire.App(name)})
			m.Made = append(m.Made, &v1alpha1.MadeCalls{Callee: wire.App(name), Cluster: fmt.Sprintf("c-%d-%d", i, j), Code: "Unavailable", Traffic: ended(0, 1000, 1000)})
		}
		w.reports(t, cart, m)
		if w.now = w.now.Add(5 * time.Second); i%10 == 0 {
			w.Faults(w.now)
		}
	}
	w.reports(t, checkout, refused(orders, "not found", 1))
	all := w.Faults(w.now)
	if len(all) > 100 {
		t.Errorf("%d faults", len(all))
	}
	if mine := callhealth.Between(all, checkout, orders); len(mine) != 1 || mine[0].GetCalls() != 1 {
		t.Errorf("of %d faults, those of the other app are %v", len(all), mine)
	}
	for what, m := range map[string]*v1alpha1.CallReport{
		"too many lookups":           {RefusedLookups: make([]*v1alpha1.RefusedLookups, 101)},
		"too many calls":             {Made: make([]*v1alpha1.MadeCalls, 101)},
		"ends that there are not":    {Made: []*v1alpha1.MadeCalls{{Callee: wire.App(orders), Traffic: &v1alpha1.CallTraffic{Ends: make([]uint64, 100)}}}},
		"buckets that there are not": {Made: []*v1alpha1.MadeCalls{{Callee: wire.App(orders), Traffic: &v1alpha1.CallTraffic{FirstBucket: 1 << 31, Buckets: []uint64{1}}}}},
		"a callee that is no app":    {Made: []*v1alpha1.MadeCalls{{Callee: &v1alpha1.App{Namespace: "a b"}}}},
		"a cluster that is none":     {Made: []*v1alpha1.MadeCalls{{Callee: wire.App(orders), Cluster: "no cluster"}}},
	} {
		if err := w.Report(cart, m, w.now); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
}
