package consulapi

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/sandbox/servers/serverstest"
)

var (
	finance = catalog.App{Namespace: "finance", ID: "orders"}
	bank    = catalog.App{Namespace: "bank", ID: "orders"}
)

// neighbours are apps called orders of three namespaces, which checkout may call; each has
// registered the ID orders-1, with a check called alive. Those of finance are critical.
func neighbours(t *testing.T, more ...catalog.Endpoint) *isthmus {
	t.Helper()
	endpoints := append([]catalog.Endpoint{{App: shop("orders")}, {App: finance}, {App: bank}}, more...)
	i := ours(t, selection("checkout", endpoints...), selection("orders"))
	for n, app := range []catalog.App{shop("orders"), finance, bank} {
		status := passing
		if app == finance {
			status = critical
		}
		d := &serviceDefinition{ID: "orders-1", Name: "orders", Address: fmt.Sprint("10.0.0.", n+1), Port: 50002, Checks: []*checkDefinition{
			{CheckID: "alive", checkFields: checkFields{TTL: duration(time.Hour), Status: status}},
		}}
		if err := i.server.registry.register(t.Context(), app, d, netip.MustParseAddr(d.Address), false); err != nil {
			t.Fatal(err)
		}
	}
	return i
}

// TestAServiceOfAnotherNamespaceHasOneName, whatever is asked.
func TestAServiceOfAnotherNamespaceHasOneName(t *testing.T) {
	i := neighbours(t)
	get := func(path string) response { return i.do(t, "checkout", "GET", "/v1/"+path, "") }
	for path, want := range map[string]struct {
		code int
		has  string
	}{
		"agent/health/service/name/orders":                          {200, `"Service":"orders"`},
		"agent/health/service/name/orders.finance":                  {503, `"Service":"orders.finance"`},
		"agent/health/service/name/orders.bank":                     {200, `"ServiceName":"orders.bank"`},
		"agent/services?filter=Service==%22orders.finance%22":       {200, `"Service":"orders.finance"`},
		"agent/checks?filter=ServiceName==%22orders.finance%22":     {200, `"ServiceName":"orders.finance"`},
		"health/checks/orders.finance":                              {200, `"ServiceName":"orders.finance"`},
		"health/service/orders.finance":                             {200, `"ServiceName":"orders.finance"`},
		"health/state/any?filter=ServiceName==%22orders.finance%22": {200, `"ServiceName":"orders.finance"`},
		"health/state/critical":                                     {200, `"ServiceName":"orders.finance"`},
		"health/node/isthmus-west":                                  {200, `"ServiceName":"orders.finance"`},
		"catalog/service/orders.finance":                            {200, `"ServiceName":"orders.finance"`},
		"health/service/Orders.Finance":                             {200, `"Service":"orders.finance"`},
		"health/service/orders.shop":                                {200, `"Service":"orders"`},
		"agent/health/service/name/orders.shop":                     {200, `"Service":"orders"`},
		"catalog/services":                                          {200, `"orders.finance":[]`},
		"catalog/node-services/isthmus-west?filter=Port+!=+0":       {200, `"Service":"orders.finance"`},
		"agent/health/service/name/orders.finance?format=text":      {503, `critical`},
	} {
		if r := get(path); r.code != want.code || !strings.Contains(r.body, want.has) {
			t.Errorf("%s: %d %s, want %d with %s", path, r.code, r.body, want.code, want.has)
		}
	}
	const once, odd = "health/state/any?filter=ServiceName==%22orders.finance%22", "ServiceName==%22ORDERS.finance%22"
	if r := get("health/state/any?filter=" + odd); r.code != 200 || r.body != "[]" {
		t.Errorf("by a name in another case: %d %s, want an empty list", r.code, r.body)
	}
	if one, both := get(once), get(once+"+or+"+odd); both.code != 200 || both.body != one.body {
		t.Errorf("by two spellings of a name: %d %s, want what there is by the one: %s", both.code, both.body, one.body)
	}
}

// TestIDsOfSeveralAppsAreToldApart, always in the same way, and the caller's own stays.
func TestIDsOfSeveralAppsAreToldApart(t *testing.T) {
	i := neighbours(t)
	if r := i.do(t, "checkout", "PUT", "/v1/agent/service/register", `{"ID":"orders-1","Name":"checkout","Port":7,"Check":{"CheckID":"alive","TTL":"1h"}}`); r.code != 200 {
		t.Fatal(r)
	}
	c := i.client(t, "checkout").Agent()
	for range 20 {
		services, err := c.Services()
		if err != nil {
			t.Fatal(err)
		}
		checks, err := c.Checks()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for id, s := range services {
			got = append(got, id+" "+s.ID+" "+s.Service)
		}
		for id, c := range checks {
			got = append(got, id+" "+c.CheckID+" of "+c.ServiceID+" "+c.ServiceName)
		}
		slices.Sort(got)
		const want = "[alive alive of orders-1 checkout alive~orders alive~orders of orders-1~orders orders alive~orders.bank alive~orders.bank of orders-1~orders.bank orders.bank " +
			"alive~orders.finance alive~orders.finance of orders-1~orders.finance orders.finance " +
			"orders-1 orders-1 checkout orders-1~orders orders-1~orders orders orders-1~orders.bank orders-1~orders.bank orders.bank orders-1~orders.finance orders-1~orders.finance orders.finance]"
		if fmt.Sprint(got) != want {
			t.Fatalf("%s\nwant %s", got, want)
		}
	}
	node := i.do(t, "checkout", "GET", "/v1/catalog/node/isthmus-west", "").body
	for _, part := range []string{`"orders-1":{"ID":"orders-1","Service":"checkout"`, `"orders-1~orders.finance":{"ID":"orders-1~orders.finance","Service":"orders.finance"`} {
		if !strings.Contains(node, part) {
			t.Errorf("%s lacks %s", node, part)
		}
	}
}

// TestAHashStandsWhileNothingChanges, also of an ID that several apps have.
func TestAHashStandsWhileNothingChanges(t *testing.T) {
	i := neighbours(t)
	r := i.do(t, "checkout", "GET", "/v1/agent/service/orders-1", "")
	hash := r.header.Get("X-Consul-ContentHash")
	if r.code != 200 || !strings.Contains(r.body, `"Service":"orders.bank"`) { // the first by namespace
		t.Fatalf("%d %s", r.code, r.body)
	}
	for range 20 {
		if again := i.do(t, "checkout", "GET", "/v1/agent/service/orders-1", ""); again.body != r.body {
			t.Fatalf("%s became %s", r.body, again.body)
		}
	}
	told := make(chan string, 1)
	go func() {
		r := i.do(t, "checkout", "GET", "/v1/agent/service/orders-1?wait=50s&hash="+hash, "")
		told <- r.body
	}()
	serverstest.Await(t, "it waits", func() bool { return i.server.metrics.blocked.Load() == 1 })
	register := func(app catalog.App, port int) {
		t.Helper()
		d := &serviceDefinition{ID: "orders-1", Name: "orders", Address: "10.0.0.3", Port: port}
		if err := i.server.registry.register(t.Context(), app, d, netip.MustParseAddr("10.0.0.3"), false); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 20 { // of others, which wake it
		register(finance, 1+n)
	}
	register(bank, 4321)
	if body := <-told; !strings.Contains(body, `"Port":4321`) {
		t.Errorf("answered with nothing changed: %s", body)
	}
}

// TestAnAgentShowsWhatCallsAreLedTo: an app whose calls go to another cluster only has nothing
// here that its caller may see; and who asks is told only of services that it may see.
func TestAnAgentShowsWhatCallsAreLedTo(t *testing.T) {
	invoices := catalog.App{Namespace: "finance", ID: "invoices"}
	i := neighbours(t, catalog.Endpoint{App: invoices, Routes: []catalog.RouteSpec{{Cluster: "east", Weight: 1}}})
	for _, app := range []catalog.App{invoices, {Namespace: "finance", ID: "hidden"}} {
		d := &serviceDefinition{ID: app.ID, Name: app.ID, Address: "10.0.0.9", Port: 50002, Check: &checkDefinition{checkFields: checkFields{TTL: duration(time.Hour)}}}
		if err := i.server.registry.register(t.Context(), app, d, netip.MustParseAddr(d.Address), false); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"agent/services", "agent/checks", "agent/service/invoices", "agent/health/service/id/invoices", "agent/health/service/name/invoices.finance", "health/service/invoices.finance", "catalog/services"} {
		if r := i.do(t, "checkout", "GET", "/v1/"+path, ""); strings.Contains(r.body, `"invoices`) || strings.Contains(r.body, "10.0.0.9") || strings.Contains(r.body, "hidden") {
			t.Errorf("%s: %s", path, r.body)
		}
	}
	for app, want := range map[string]string{"checkout": "3", "orders": "1"} {
		self, err := i.client(t, app).Agent().Self()
		if err != nil {
			t.Fatal(err)
		}
		if got := self["Stats"]["agent"].(map[string]any)["services"]; got != want {
			t.Errorf("%s is told of %v services, want %s", app, got, want)
		}
	}
}
