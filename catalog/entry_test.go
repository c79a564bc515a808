package catalog

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

var orders = App{"shop", "orders"}

func viewWith(routes ...Route) *View {
	e := NewEntry(orders, Rule{}, routes)
	return &View{Revision: 7, Entries: Table[*Entry]{}.With(Edit[*Entry]{App: orders, Value: e})}
}

func to(cluster string, priority, weight uint32, state RouteState, addresses ...string) Route {
	return Route{RouteSpec: RouteSpec{Cluster: cluster, Priority: priority, Weight: weight}, State: state, Ready: uint32(len(addresses)), Addresses: addresses}
}

func TestWeightsShareOutOnePriority(t *testing.T) {
	v := viewWith(
		to("north", 1, 10, Ready, "n:1"),
		to("east", 1, 90, Ready, "e:1", "e:2", "e:3"),
		to("south", 1, 50, Empty),
		to("far", 2, 1000, Ready, "f:1"),
	)
	count := map[string]int{}
	for range lookups {
		address, err := resolve(v, orders)
		if err != nil {
			t.Fatal(err)
		}
		count[address]++
	}
	for address, share := range map[string]float64{"n:1": .1, "e:1": .3, "e:2": .3, "e:3": .3, "f:1": 0} {
		if got := float64(count[address]) / lookups; math.Abs(got-share) > 0.001 {
			t.Errorf("%s has a share of %.4f, want %.2f", address, got, share)
		}
	}
}

func TestTheFiveRefusals(t *testing.T) {
	open := viewWith()
	open.Open = true
	selected, closed := viewWith(), viewWith()
	selected.Rule, closed.Rule = "AppEndpoints shop/checkout (shop.yaml:3)", ClosedRule
	long := App{"shop", "orders_v2"}
	here := NewEntry(long, Rule{}, []Route{to("west", 0, 1, Empty)})
	withLong := &View{Entries: Table[*Entry]{}.With(Edit[*Entry]{App: long, Value: here})}
	tests := []struct {
		view *View
		app  App
		want error
		says string
	}{
		{viewWith(), App{"shop", "ledger"}, ErrDenied, "denied: the caller's selection does not hold shop/ledger"},
		{selected, App{"shop", "ledger"}, ErrDenied, "does not hold shop/ledger; add it to AppEndpoints shop/checkout"},
		{closed, App{"shop", "ledger"}, ErrDenied, "does not hold shop/ledger; the caller has no AppEndpoints: write one that holds it"},
		{open, App{"shop", "ledger"}, ErrNotFound, "not found: this cluster has no app shop/ledger"},
		{open, long, ErrNotFound, "under this app-id it can't be called from other clusters: app-id \"orders_v2\" has '_' at position 7; Isthmus puts it into DNS names"},
		{withLong, long, ErrUnavailable, "under this app-id it can't be called from other clusters"},
		{viewWith(), orders, ErrUnavailable, "unavailable: no cluster has shop/orders"},
		{viewWith(to("west", 0, 1, Empty), to("east", 1, 1, NotExported)), orders, ErrUnavailable,
			"west (no ready instance of shop/orders), east (does not export shop/orders to the caller: no AppExport there lets it in)"},
		{viewWith(to("west", 0, 1, Empty), to("east", 1, 1, LeaseExpired)), orders, ErrStale, "stale: no route to shop/orders is ready"},
		{viewWith(to("moon", 0, 1, UnknownCluster), to("east", 1, 1, Unheard)), orders, ErrUnavailable, "moon (no Cluster object has this name)"},
	}
	for _, test := range tests {
		_, err := resolve(test.view, test.app)
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("got %v, want %q", err, test.says)
		}
		d := test.view.Explain(test.app)
		if got := d.Err(); !errors.Is(got, test.want) || got.Error() != err.Error() {
			t.Errorf("explained as %q, refused as %q", got, err)
		}
		for _, sentinel := range []error{ErrDenied, ErrNotFound, ErrUnavailable, ErrStale, ErrNotReady} {
			if sentinel != test.want && errors.Is(err, sentinel) {
				t.Errorf("%v is also %v", err, sentinel)
			}
		}
	}
}

func TestAnExplanationNamesEveryRoute(t *testing.T) {
	host := "orders.shop.east.isthmus.internal:15443"
	v := viewWith(
		to("far", 2, 1, Ready, "f:1"),
		to("west", 0, 1, Empty),
		Route{RouteSpec: RouteSpec{Cluster: "east", Priority: 1, Weight: 3}, Gateway: true, Ready: 4, Addresses: []string{host}},
	)
	d := v.Explain(orders)
	if d.Outcome != OK || d.Address != host || d.Gateway+":15443" != host || d.Cluster != "east" || d.Revision != 7 || d.Rule != DefaultRule {
		t.Errorf("decision %+v", d)
	}
	want := []string{
		"west false no ready instance of shop/orders",
		"east true 4 ready",
		"far false 1 ready, but priority 1 comes first",
	}
	for i, r := range d.Routes {
		if got := fmt.Sprintln(r.Cluster, r.Taken, r.Reason); got != want[i]+"\n" {
			t.Errorf("route %d: %q, want %q", i, got, want[i])
		}
	}
}

// TestAMissingNameLeadsToTheOneThatWasMeant, if the view has that: else nothing is told of it.
func TestAMissingNameLeadsToTheOneThatWasMeant(t *testing.T) {
	view := func(filler int, apps ...App) *View {
		v := &View{Open: true}
		edits := make([]Edit[*Entry], 0, filler+len(apps))
		for i := range filler {
			apps = append(apps, App{"many", fmt.Sprint("app-", i)})
		}
		for _, app := range apps {
			edits = append(edits, Edit[*Entry]{App: app, Value: NewEntry(app, Rule{}, []Route{to("west", 0, 1, Ready, "a:1")})})
		}
		v.Entries = NewTable(edits)
		return v
	}
	both := []App{{"shop", "orders"}, {"finance", "orders"}, {"finance", "ledger"}, {"billing", "Ledger"}}
	for _, c := range []struct {
		view      *View
		app, want App
	}{
		{view(0, both...), App{"shop", "Orders"}, App{"shop", "orders"}},
		{view(0, both...), App{"test", "orders"}, App{"finance", "orders"}},
		{view(0, both...), App{"shop", "ledger"}, App{"billing", "Ledger"}},
		{view(0, both...), App{"shop", "cart"}, App{}},
		{view(0), App{"shop", "Orders"}, App{}},
		{view(mostNear, both...), App{"shop", "Orders"}, App{"shop", "orders"}},
	} {
		_, err := resolve(c.view, c.app)
		said := strings.Contains(err.Error(), "did you mean")
		if said != (c.want != App{}) || said && !strings.Contains(err.Error(), "; did you mean "+c.want.String()+"? Names of apps are exact") {
			t.Errorf("%s: %v; want a hint at %v", c.app, err, c.want)
		}
	}
}

// An error of a call goes into a header, and many proxies take headers of 4 KiB in all. The longest
// names are 63 bytes; gRPC may send the text twice, once in base64.
func TestARefusalOfManyRoutesFitsAHeader(t *testing.T) {
	app := App{strings.Repeat("s", 63), strings.Repeat("o", 63)}
	var routes []Route
	for i := range 100 {
		routes = append(routes, to(fmt.Sprintf("%02d%s", i, strings.Repeat("e", 61)), 0, 1, NotExported))
	}
	v := &View{Entries: Table[*Entry]{}.With(Edit[*Entry]{App: app, Value: NewEntry(app, Rule{}, routes)})}
	_, err := resolve(v, app)
	if text := fmt.Sprint(err); len(text) > 3<<10 || !strings.Contains(text, " and 92 more") {
		t.Errorf("%d bytes: %s", len(text), text)
	}
	if d := v.Explain(app); len(d.Routes) != 100 {
		t.Errorf("%d routes are explained; want all", len(d.Routes))
	}
}

func TestARuleNamesItsLine(t *testing.T) {
	s := &AppEndpoints{App: App{"shop", "checkout"}, Endpoints: []Endpoint{{App: orders, Line: 8}, {App: orders, Line: 12}}}
	if got := (Rule{Selection: s, Index: 1}).String(); got != "AppEndpoints shop/checkout, spec.endpoints[1] (line 12)" {
		t.Error(got)
	}
	s.Source.File = "config/checkout.yaml"
	if got := (Rule{Selection: s}).String(); got != "AppEndpoints shop/checkout, spec.endpoints[0] (config/checkout.yaml:8)" {
		t.Error(got)
	}
}

func TestWhatIsLeftToAnotherResolverIsNotUsable(t *testing.T) {
	e := NewEntry(orders, Rule{}, []Route{
		{RouteSpec: RouteSpec{Cluster: "west", Weight: 1}, State: Delegated, Local: true},
		to("east", 1, 1, Ready, "e:1"),
	})
	if address, route := e.Pick(); address != "e:1" || route == nil || route.Cluster != "east" {
		t.Errorf("picked %q, %+v, want that of east", address, route)
	}
}

func TestADampedRouteIsUsedOnlyWhereNothingElseIs(t *testing.T) {
	damped := func() Route { return to("east", 0, 1, Damped, "e:1") }
	const used = "1 ready, damped, used because nothing else is ready"
	for _, test := range []struct {
		what    string
		routes  []Route
		address string
		reason  string // of the route to east
	}{
		{"the only route", []Route{damped()}, "e:1", used},
		{"another is ready", []Route{damped(), to("west", 1, 1, Ready, "w:1")}, "w:1", "1 ready, damped: its lease ran out too often lately"},
		{"another is served though stale", []Route{damped(), to("west", 1, 1, Lapsed, "w:1")}, "w:1", "1 ready, damped: its lease ran out too often lately"},
		{"the other takes no calls", []Route{damped(), to("west", 1, 0, Ready, "w:1")}, "e:1", used},
		{"the others are not ready", []Route{damped(), to("west", 1, 1, Empty), to("north", 0, 1, LeaseExpired)}, "e:1", used},
		{"it takes no calls itself", []Route{to("east", 0, 0, Damped, "e:1")}, "", "weight is 0"},
	} {
		v := viewWith(test.routes...)
		address, err := resolve(v, orders)
		if address != test.address || (err == nil) != (address != "") {
			t.Errorf("%s: %q, %v; want %q", test.what, address, err, test.address)
		}
		for _, r := range v.Explain(orders).Routes {
			if r.Cluster == "east" && r.Reason != test.reason {
				t.Errorf("%s: %q, want %q", test.what, r.Reason, test.reason)
			}
		}
	}
}

func TestALookupAllocatesNothing(t *testing.T) {
	for _, v := range []*View{
		viewWith(to("west", 0, 1, Ready, "w:1")),
		viewWith(to("west", 0, 1, Ready, "w:1", "w:2")),
		viewWith(to("west", 0, 1, Ready, "w:1"), to("east", 0, 2, Ready, "e:1")),
		viewWith(to("west", 0, 1, Ready, "w:1"), to("east", 0, 2, Ready, "e:1", "e:2", "e:3")),
	} {
		if n := testing.AllocsPerRun(1000, func() {
			if _, err := resolve(v, orders); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
}

// resolve is a lookup with the choice of an address.
func resolve(v *View, app App) (string, error) {
	e, err := v.Find(app)
	if err != nil {
		return "", err
	}
	return e.Address(), nil
}
