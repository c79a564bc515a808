package consulapi

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// TestNothingIsWithdrawnByARestart: what is asked before the service has heard of everything
// waits for that, and says nothing else meanwhile; who registers is not held up.
func TestNothingIsWithdrawnByARestart(t *testing.T) {
	i := ours(t, selection("checkout", catalog.Endpoint{App: shop("orders")}), selection("orders"),
		&catalog.Cluster{Name: "east", Gateways: []string{"203.0.113.7:15443"}, StaleAfter: catalog.DefaultStaleAfter})
	settled := make(chan struct{})
	i.server.cfg.Settled = settled
	reads := []string{
		"health/service/orders?passing", "health/service/orders?passing&index=7&wait=9m", "health/checks/orders", "health/state/any?filter=ServiceName==%22orders%22",
		"catalog/services", "catalog/service/orders",
	}
	type answer struct {
		path string
		response
	}
	answers := make(chan answer, len(reads))
	for _, path := range reads {
		go func() {
			r := response{code: http.StatusInternalServerError}
			for r.code == http.StatusInternalServerError && (r.body == "" || r.body == errNoLeader.text) {
				r = i.do(t, "checkout", "GET", "/v1/"+path, "") // again, where it has waited for long
			}
			answers <- answer{path, r}
		}()
	}
	serverstest.Await(t, "all wait", func() bool { return i.server.metrics.blocked.Load() >= int64(len(reads)) })
	for _, s := range []step{
		{"orders", "PUT", "/v1/agent/service/register", `{"Name":"orders","Port":7,"Check":{"TTL":"1h"}}`, ""},
		{"orders", "PUT", "/v1/agent/check/update/service:orders", `{"Status":"critical"}`, ""},
		{"orders", "PUT", "/v1/agent/service/deregister/orders", "", ""},
		{"checkout", "GET", "/v1/agent/self", "", ""},
		{"anonymous", "GET", "/v1/health/service/orders", "", ""},
	} {
		if r := i.do(t, s.app, s.method, s.path, s.body); r.code != 200 {
			t.Errorf("%s %s while it has not settled: %d %s", s.method, s.path, r.code, r.body)
		}
	}
	change := topology.PeerChange{Cluster: "east", Full: true, Lease: topology.Fresh, Put: []topology.PeerExport{
		{App: shop("orders"), Allow: []catalog.Allow{{Cluster: "west"}}, Ready: 1},
	}}
	if _, err := i.topology.Apply(t.Context(), topology.Change{Peers: []topology.PeerChange{change}}); err != nil {
		t.Fatal(err)
	}
	if len(answers) > 0 {
		t.Errorf("answered before it had settled: %+v", <-answers)
	}
	close(settled)
	for range reads {
		if a := <-answers; a.code != 200 || !strings.Contains(a.body, "orders") {
			t.Errorf("after it has settled %s is answered %d %s", a.path, a.code, a.body)
		}
	}
}

// TestWhatIsThereIsNotHeldBack until the service has settled, from who asks without blocking;
// what is not there may be still to come.
func TestWhatIsThereIsNotHeldBack(t *testing.T) {
	i := ours(t, selection("checkout", catalog.Endpoint{App: shop("orders")}), selection("orders"),
		&catalog.Cluster{Name: "east", Gateways: []string{"203.0.113.7:15443"}, StaleAfter: catalog.DefaultStaleAfter})
	settled := make(chan struct{})
	i.server.cfg.Settled = settled
	const service = "/v1/health/service/orders"
	waiting := map[string]chan response{}
	waits := func(when string, queries ...string) {
		t.Helper()
		for _, query := range queries {
			done := make(chan response, 1)
			waiting[when+service+query] = done
			go func() {
				r := response{}
				for r.code == 0 || r.code == http.StatusInternalServerError && r.body == errNoLeader.text {
					r = i.do(t, "checkout", "GET", service+query, "") // again, where it has waited for long
				}
				done <- r
			}()
		}
		serverstest.Await(t, when+", all wait", func() bool { return i.server.metrics.blocked.Load() >= int64(len(waiting)) })
		for path, done := range waiting {
			if len(done) > 0 {
				t.Errorf("%s is answered before it has settled: %+v", path, <-done)
			}
		}
	}
	other := []string{"?tag=b", "?filter=Service.Port==8", "?passing&filter=Service.ID==x"} // than what is there
	none := map[string]bool{}
	for _, query := range other {
		none["passing: "+service+query] = true
	}
	blocking := []string{"?index=7&wait=9m", "?passing&index=7&wait=9m"}
	waits("with nothing: ", append(blocking, "", "?passing")...)
	if r := i.do(t, "orders", "PUT", "/v1/agent/service/register", `{"Name":"orders","Port":7,"Tags":["a"],"Check":{"TTL":"1h"}}`); r.code != 200 {
		t.Fatal(r)
	}
	waits("critical: ", "", "?passing", "?tag=a")
	if r := i.do(t, "orders", "PUT", "/v1/agent/check/update/service:orders", `{"Status":"passing"}`); r.code != 200 {
		t.Fatal(r)
	}
	for _, query := range []string{"", "?passing", "?passing&tag=a", "?filter=Service.Port==7", "?index=0", "?passing&wait=9m"} {
		r := i.do(t, "checkout", "GET", service+query, "")
		if r.code != 200 || !strings.Contains(r.body, `"Port":7`) || r.header.Get("X-Consul-Index") == "" {
			t.Errorf("%s of what is there: %d %s", query, r.code, r.body)
		}
	}
	waits("passing: ", append(blocking, other...)...)
	close(settled)
	for path, done := range waiting {
		r := <-done
		if r.code != 200 || none[path] != (r.body == "[]") || !none[path] && !strings.Contains(r.body, `"Port":7`) {
			t.Errorf("after it has settled %s is answered %d %s", path, r.code, r.body)
		}
	}
}

// TestWhoHasWaitedForLongIsToldThatThereIsNoLeader, in the words that clients of Consul know.
func TestWhoHasWaitedForLongIsToldThatThereIsNoLeader(t *testing.T) {
	i := ours(t)
	i.server.cfg.Settled = make(chan struct{})
	for _, path := range []string{"health/service/orders?index=1&wait=1ms", "health/service/orders"} {
		began := time.Now()
		r := i.do(t, "checkout", "GET", "/v1/"+path, "")
		if r.code != 500 || r.body != "No cluster leader" {
			t.Errorf("%s: %d %s", path, r.code, r.body)
		}
		if !strings.Contains(path, "wait") && time.Since(began) < holdTime {
			t.Errorf("%s: after %s", path, time.Since(began))
		}
	}
}
