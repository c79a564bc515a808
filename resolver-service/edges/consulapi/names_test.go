package consulapi

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/catalog"
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
		d := &api.AgentServiceRegistration{ID: "orders-1", Name: "orders", Address: fmt.Sprint("10.0.0.", n+1), Port: 50002, Checks: api.AgentServiceChecks{
			{CheckID: "alive", TTL: "1h", Status: status},
		}}
		if err := i.server.registry.register(t.Context(), app, d, netip.MustParseAddr(d.Address)); err != nil {
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
		"health/checks/orders.finance":                              {200, `"ServiceName":"orders.finance"`},
		"health/service/orders.finance":                             {200, `"ServiceName":"orders.finance"`},
		"health/state/any?filter=ServiceName==%22orders.finance%22": {200, `"ServiceName":"orders.finance"`},
		"health/state/critical":                                     {200, `"ServiceName":"orders.finance"`},
		"catalog/service/orders.finance":                            {200, `"ServiceName":"orders.finance"`},
		"health/service/Orders.Finance":                             {200, "[]"}, // another name
		"health/service/orders.shop":                                {200, `"Service":"orders"`},
		"catalog/services":                                          {200, `"orders.finance":[]`},
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

// TestNamesThatDifferByCaseAreOfTwoApps, each with an instance of its own.
func TestNamesThatDifferByCaseAreOfTwoApps(t *testing.T) {
	upper, lower := shop("MyBackEnd"), shop("mybackend")
	i := ours(t, selection("checkout", catalog.Endpoint{App: upper}, catalog.Endpoint{App: lower}), selection("orders"))
	for n, app := range []catalog.App{upper, lower} {
		d := &api.AgentServiceRegistration{ID: app.ID, Name: app.ID, Address: fmt.Sprint("10.0.0.", n+1), Port: 50002, Checks: api.AgentServiceChecks{{CheckID: app.ID, TTL: "1h", Status: passing}}}
		if err := i.server.registry.register(t.Context(), app, d, netip.MustParseAddr(d.Address)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"MyBackEnd": "10.0.0.1", "mybackend": "10.0.0.2", "MYBACKEND": ""} {
		r := i.do(t, "checkout", "GET", "/v1/health/service/"+name, "")
		if r.code != 200 || strings.Contains(r.body, "10.0.0.1") != (want == "10.0.0.1") || strings.Contains(r.body, "10.0.0.2") != (want == "10.0.0.2") {
			t.Errorf("%s: %d %s, want the instance %s alone", name, r.code, r.body, want)
		}
	}
}

// TestACallerSeesWhatItsCallsAreLedTo: an app whose calls go to another cluster only has nothing
// here that its caller may see; and an agent shows a caller what it has registered itself.
func TestACallerSeesWhatItsCallsAreLedTo(t *testing.T) {
	invoices := catalog.App{Namespace: "finance", ID: "invoices"}
	i := neighbours(t, catalog.Endpoint{App: invoices, Routes: []catalog.RouteSpec{{Cluster: "east", Weight: 1}}})
	for _, app := range []catalog.App{invoices, {Namespace: "finance", ID: "hidden"}} {
		d := &api.AgentServiceRegistration{ID: app.ID, Name: app.ID, Address: "10.0.0.9", Port: 50002, Check: &api.AgentServiceCheck{TTL: "1h"}}
		if err := i.server.registry.register(t.Context(), app, d, netip.MustParseAddr(d.Address)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"agent/services", "health/checks/invoices.finance", "health/state/any", "health/service/invoices.finance", "catalog/services", "catalog/service/invoices.finance"} {
		if r := i.do(t, "checkout", "GET", "/v1/"+path, ""); r.code != 200 || strings.Contains(r.body, `"invoices`) || strings.Contains(r.body, "10.0.0.9") || strings.Contains(r.body, "hidden") {
			t.Errorf("%s: %d %s", path, r.code, r.body)
		}
	}
	for app, want := range map[string]int{"checkout": 0, "orders": 1} {
		if services, err := i.client(t, app).Agent().Services(); err != nil || len(services) != want {
			t.Errorf("%s has registered %v %v, want %d", app, services, err, want)
		}
	}
}
