package consulapi

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/sandbox/servers/serverstest"
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
		"health/node/gateway-east", "catalog/services", "catalog/service/orders", "catalog/node/gateway-east", "catalog/node-services/gateway-east",
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
	if r := i.do(t, "checkout", "GET", "/v1/status/leader", ""); r.code != 200 || r.body != `""` {
		t.Errorf("a leader: %d %s", r.code, r.body)
	}
	for _, s := range []step{
		{"orders", "PUT", "/v1/agent/service/register", `{"Name":"orders","Port":7,"Check":{"TTL":"1h"}}`, ""},
		{"orders", "PUT", "/v1/agent/check/fail/service:orders", "", ""},
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

// TestWhoHasWaitedForLongIsToldThatThereIsNoLeader, in the words that clients of Consul know.
func TestWhoHasWaitedForLongIsToldThatThereIsNoLeader(t *testing.T) {
	i := ours(t)
	i.server.cfg.Settled = make(chan struct{})
	for _, path := range []string{"health/service/orders?index=1&wait=1ms", "agent/service/orders?hash=x&wait=1ms", "health/service/orders"} {
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
