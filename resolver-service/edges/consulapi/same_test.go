package consulapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// step is one request of the suite that both answer.
type step struct {
	app, method, path, body string
	await                   string // asked again until the body has it: what checks find out takes a while
}

const registration = `{"ID":"checkout-127.0.0.1-3500","Name":"checkout","Address":"127.0.0.1","Port":8080,"Meta":{"DAPR_PORT":"50002"},"Tags":["b","a"],
 "Checks":[{"Name":"Dapr Health Status","CheckID":"daprHealth:1","Interval":"15s","HTTP":"HEALTH"},{"TTL":"1h","Notes":"n"}]}`

// steps are told to a real Consul agent and to Isthmus, one after the other.
func steps() []step {
	all := []step{
		{"checkout", "PUT", "/v1/agent/service/register", registration, ""},
		{"checkout", "GET", "/v1/health/service/checkout", "", "Output: fine"},
		{"checkout", "PUT", "/v1/agent/check/update/service:checkout-127.0.0.1-3500:2", `{"Status":"passing","Output":"well"}`, ""},
		{"checkout", "GET", "/v1/health/service/checkout?passing", "", "well"},
		{"orders", "PUT", "/v1/agent/service/register", `{"Name":"orders","Address":"127.0.0.1","Port":9,"Check":{"TTL":"1h","Status":"passing"},"Weights":{"Passing":3,"Warning":2}}`, ""},
		{"checkout", "GET", "/v1/health/service/orders?passing", "", `"Service":"orders"`},
	}
	for _, app := range []string{"checkout", "anonymous", "stranger", "orders"} {
		all = append(all, reads(app)...)
	}
	return append(append(all, mistakes()...), changes()...)
}

// reads are what can be read, by whoever asks.
func reads(app string) (all []step) {
	for _, path := range []string{
		"/v1/health/service/checkout", "/v1/health/service/checkout?passing", "/v1/health/service/checkout?passing=false", "/v1/health/service/checkout?passing=x",
		"/v1/health/service/checkout?passing=1&cached", "/v1/health/service/checkout?stale", "/v1/health/service/checkout?consistent",
		"/v1/health/service/checkout?tag=a", "/v1/health/service/checkout?tag=a&tag=b", "/v1/health/service/checkout?tag=A", "/v1/health/service/checkout?tag=c",
		"/v1/health/service/checkout?near=_agent", "/v1/health/service/checkout?dc=west",
		"/v1/health/service/nobody", "/v1/health/service/", "/v1/health/service/orders", "/v1/health/service/orders?passing",
		"/v1/health/service/NOBODY", // by another case Consul finds one that is there: Isthmus does not, since Dapr does not
		"/v1/health/checks/checkout", "/v1/health/checks/orders", "/v1/health/checks/", "/v1/health/checks/nobody",
		"/v1/health/state/any", "/v1/health/state/passing", "/v1/health/state/critical", "/v1/health/state/bogus", "/v1/health/state/",
		"/v1/catalog/services", "/v1/catalog/service/checkout", "/v1/catalog/service/checkout?tag=a", "/v1/catalog/service/nobody", "/v1/catalog/service/",
		"/v1/catalog/nodes", "/v1/catalog/datacenters", "/v1/agent/services",
	} {
		all = append(all, step{app, "GET", path, "", ""})
	}
	for path, filters := range map[string][]string{
		"/v1/health/service/checkout": {
			`Service.Meta.DAPR_PORT == "50002"`, `Service.Tags contains "a" and not (Service.Port == 1)`, `"a" in Service.Tags`, `Node.Datacenter != west`,
			`Checks.Status == passing`, `Service.ID matches "^check"`, `foo == 1`, `)(`, `Service.Port == abc`, `Service`, `Service.Meta contains DAPR_PORT`,
			`Service.Weights.Passing == 1`, `Service.Tags is empty`, `Service.Meta is not empty`,
		},
		"/v1/health/state/any": {
			`ServiceName=="checkout"`, `ServiceName=="checkout" or ServiceName=="orders"`, `ServiceName==""`, `ServiceName=="" or ServiceName=="checkout"`,
			`ServiceName=="CHECKOUT"`, `ServiceName=="checkout" or ServiceName=="CHECKOUT"`, `ServiceName=="checkout" or ServiceName=="checkout.shop"`, `Status == "passing"`,
			`Type == "ttl"`, `ServiceName=="checkout" and Status=="critical"`, `nope == 1`,
		},
		"/v1/catalog/service/checkout": {`ServiceMeta.DAPR_PORT == "50002"`, `ServicePort == 8080`, `ServiceTags is empty`, `Node == "isthmus-west"`, `nope == 1`},
		"/v1/agent/services":           {`Service == "checkout"`, `Meta.DAPR_PORT == "50002"`, `nope == 1`},
	} {
		for _, filter := range filters {
			all = append(all, step{app, "GET", path + "?filter=" + escape(filter), "", ""})
		}
	}
	return all
}

func escape(s string) string {
	return strings.NewReplacer(" ", "+", `"`, "%22", "^", "%5E", ")", "%29", "(", "%28").Replace(s)
}

// mistakes are requests that are refused.
func mistakes() (all []step) {
	for _, path := range []string{"index=a", "index=-1", "wait=a", "dc=nowhere", "ns=foo", "partition=foo"} {
		all = append(all, step{"checkout", "GET", "/v1/health/service/checkout?" + path, "", ""}, step{"checkout", "GET", "/v1/catalog/services?" + path, "", ""})
	}
	for _, body := range []string{
		"", "{", "[]", "{}", "null", "1", `{"Name":""}`, `{"Name":"checkout","Foo":1}`, `{"Name":"checkout","Port":"x"}`, `{"Name":"checkout","Address":"0.0.0.0"}`,
		`{"Name":"checkout","Address":"::"}`, `{"Name":"checkout","Check":{"HTTP":"http://127.0.0.1"}}`, `{"Name":"checkout","Check":{"TTL":"x"}}`,
		`{"Name":"checkout","Check":{"TTL":"1s","Interval":"1s"}}`, `{"Name":"checkout","Check":{"TTL":"1s","Status":"x"}}`, `{"Name":"checkout","Check":{"Notes":"x"}}`,
		`{"Name":"checkout","Check":{"Args":["ls"],"Interval":"1s"}}`, `{"Name":"checkout","Meta":{"a b":"c"}}`, `{"Name":"checkout","Meta":{"":"c"}}`,
		`{"Name":"checkout","Meta":{"consul-x":"c"}}`, `{"Name":"checkout","Weights":{"Passing":0,"Warning":1}}`, `{"Name":"checkout","Weights":{"Passing":1,"Warning":-1}}`,
		`{"Name":"checkout","Weights":{"Passing":1,"Warning":65536}}`, `{"Name":"checkout","Namespace":"x"}`, `{"Name":"checkout","Check":{"Foo":1}}`,
		`{"Name":"orders"}`, `{"Name":"nobody"}`, `{"Name":"checkout","Check":{"TTL":"1s","FailuresBeforeWarning":2}}`, `{"Name":"checkout"`,
		`{"Name":"checkout","Meta":{"k":"` + strings.Repeat("v", 513) + `"}}`,
	} {
		all = append(all, step{"checkout", "PUT", "/v1/agent/service/register", body, ""})
	}
	for _, app := range []string{"stranger", "anonymous"} {
		all = append(all,
			step{app, "PUT", "/v1/agent/service/register", `{"Name":"checkout"}`, ""}, step{app, "PUT", "/v1/agent/service/deregister/none", "", ""},
			step{app, "PUT", "/v1/agent/check/update/none", `{"Status":"passing"}`, ""}, step{app, "GET", "/v1/agent/self", "", ""},
		)
	}
	return append(all, []step{
		{"checkout", "POST", "/v1/agent/service/register", "{}", ""}, {"checkout", "GET", "/v1/agent/service/register", "", ""},
		{"checkout", "DELETE", "/v1/health/service/x", "", ""}, {"checkout", "PUT", "/v1/agent/self", "", ""}, {"checkout", "PUT", "/v1/catalog/services", "", ""},
		{"checkout", "GET", "/v1/nothing", "", ""}, {"checkout", "GET", "/nothing", "", ""}, {"checkout", "PUT", "/v1/agent/service/deregister/none", "", ""},
		{"checkout", "PUT", "/v1/agent/check/update/daprHealth:1", `{"Status":"passing"}`, ""},
		{"checkout", "PUT", "/v1/agent/check/update/none", `{"Status":"passing"}`, ""}, {"checkout", "PUT", "/v1/agent/check/update/none", `{"Status":"x"}`, ""},
		{"checkout", "PUT", "/v1/agent/check/update/none", `{`, ""}, {"checkout", "PUT", "/v1/agent/check/update/none", `{"Foo":1}`, ""},
	}...)
}

// changes are what can be done, with what is to be seen after each.
func changes() (all []step) {
	const ttl = "/v1/agent/check/update/service:checkout-127.0.0.1-3500:2"
	do := func(path, body, await string) {
		all = append(all, step{"checkout", "PUT", path, body, ""}, step{"checkout", "GET", "/v1/health/service/checkout", "", await},
			step{"checkout", "GET", "/v1/health/service/checkout?passing", "", ""}, step{"checkout", "GET", "/v1/health/checks/checkout", "", ""},
			step{"checkout", "GET", "/v1/catalog/service/checkout", "", ""}, step{"checkout", "GET", "/v1/catalog/services", "", ""})
	}
	const register = "/v1/agent/service/register?replace-existing-checks"
	do(ttl, `{"Status":"warning","Output":"careful"}`, "careful")
	do(ttl, `{"Status":"critical"}`, `"critical"`)
	do(ttl, `{"Status":"passing","Output":"again"}`, "again")
	do(register, strings.Replace(registration, `"Tags":["b","a"],`, `"Tags":["new"],`, 1), "new")
	do(register, strings.Replace(registration, `{"TTL":"1h","Notes":"n"}`, `{"CheckID":"tcp","TCP":"ADDRESS","Interval":"1s","Timeout":"2s"}`, 1), "Success")
	do(register, `{"ID":"two","Name":"checkout","Port":1234,"TaggedAddresses":{"lan":{"Address":"127.0.0.1","Port":5}},"EnableTagOverride":true}`, "two")
	do(register, `{"ID":"checkout-127.0.0.1-3500","Name":"checkout","Address":"127.0.0.1","Port":1,"Check":{"CheckID":"only","TTL":"1h"}}`, "only")
	do(register, `{"Name":"checkout","Address":"fd00::1","Port":1,"Check":null,"Checks":null,"Meta":null,"Tags":null,"Weights":null,"Connect":null,"Proxy":null}`, "fd00")
	do("/v1/agent/service/deregister/two", "", "")
	do("/v1/agent/service/deregister/checkout", "", "")
	do("/v1/agent/service/deregister/checkout-127.0.0.1-3500", "", "")
	return all
}

// TestClientsReadTheSame tells a Consul agent and Isthmus the same, and compares what clients
// read in the answers.
func TestClientsReadTheSame(t *testing.T) {
	theirs, us := consul(t), &ours(t).agent
	health := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { fmt.Fprint(w, "fine") }))
	defer health.Close()
	for n, s := range steps() {
		s.body = strings.NewReplacer("HEALTH", health.URL+"/v1.0/healthz?appid=checkout", "ADDRESS", health.Listener.Addr().String()).Replace(s.body)
		want, got := s.ask(t, theirs), s.ask(t, us)
		if s.differs(want, got) {
			continue
		}
		a, b := s.outcome(want), s.outcome(got)
		// Consul's cache may be behind what Consul has been told; nothing of ours may.
		for deadline := time.Now().Add(10 * time.Second); a != b && strings.Contains(s.path, "&cached") && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			want = s.ask(t, theirs)
			a = s.outcome(want)
		}
		if a != b {
			t.Errorf("step %d: %s asks %s %s %.300s\n(- consul, + isthmus)\n%s", n, s.app, s.method, s.path, s.body, difference(a, b))
		}
		if (want.header.Get("X-Consul-Index") != "") != (got.header.Get("X-Consul-Index") != "") && want.code == http.StatusOK {
			t.Errorf("step %d: %s has an index in one answer only", n, s.path)
		}
	}
}

// differs tells whether Isthmus answers in its own way, as docs/reference/consul-api.md says.
func (s step) differs(want, got response) bool {
	switch {
	case s.app == "checkout" && strings.HasPrefix(s.path, "/v1/agent/services"): // Consul's agent shows others' services too
		return got.code == want.code && (got.code != 200 || !strings.Contains(got.body, `"orders"`))
	case s.app == "stranger": // an unknown token is refused before anything else
		return got.code == http.StatusForbidden && (want.code != http.StatusOK || s.path == "/v1/catalog/datacenters")
	case s.app == "anonymous" && strings.Contains(s.path, "filter="): // no filter is read for who sees nothing
		return want.code == http.StatusInternalServerError && got.code == http.StatusOK && len(got.body) == 2
	}
	return false
}

func (s step) ask(t *testing.T, a *agent) (r response) {
	t.Helper()
	if s.await == "" {
		return a.do(t, s.app, s.method, s.path, s.body)
	}
	serverstest.Await(t, a.name+" answers "+s.path+" with "+s.await, func() bool {
		r = a.do(t, s.app, s.method, s.path, s.body)
		return strings.Contains(r.body, s.await)
	})
	return r
}

// outcome is what a client learns: the value that it reads, or that the request was refused,
// and whether for want of a right.
func (s step) outcome(r response) string {
	switch {
	case r.code == http.StatusForbidden:
		return "forbidden"
	case r.code != http.StatusOK:
		return "refused"
	case s.method == http.MethodPut:
		return "done"
	}
	var into any
	switch path, _, _ := strings.Cut(s.path, "?"); {
	case strings.HasPrefix(path, "/v1/health/service/"):
		into = &[]*api.ServiceEntry{}
	case strings.HasPrefix(path, "/v1/health/"):
		into = &api.HealthChecks{}
	case strings.HasPrefix(path, "/v1/catalog/service/"):
		into = &[]*api.CatalogService{}
	case path == "/v1/catalog/nodes":
		into = &[]*api.Node{}
	case path == "/v1/agent/services":
		into = &map[string]*api.AgentService{}
	default:
		into = new(any)
	}
	if err := json.Unmarshal([]byte(r.body), into); err != nil {
		return err.Error() + ": " + r.body
	}
	text, _ := json.Marshal(into)
	var value any
	_ = json.Unmarshal(text, &value)
	text, _ = json.Marshal(own("", value))
	var out bytes.Buffer
	_ = json.Indent(&out, text, "\t\t", " ")
	return out.String()
}

// difference shows the lines that only one has.
func difference(a, b string) string {
	var out []string
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for len(as) > 0 || len(bs) > 0 {
		switch {
		case len(as) > 0 && len(bs) > 0 && as[0] == bs[0]:
			as, bs = as[1:], bs[1:]
		case len(as) > 0 && (len(bs) == 0 || !slices.Contains(bs, as[0])):
			out, as = append(out, "\t\t- "+strings.TrimSpace(as[0])), as[1:]
		default:
			out, bs = append(out, "\t\t+ "+strings.TrimSpace(bs[0])), bs[1:]
		}
	}
	return strings.Join(out, "\n")
}

// own is a value without what each has its own way: IDs of nodes, indexes, the order of tags
// and checks, what there is of Consul's mesh, and dates in outputs.
func own(key string, value any) any {
	switch v := value.(type) {
	case map[string]any:
		_, isNode := v["Node"]
		_, hasAddress := v["Address"]
		for k := range v {
			switch {
			case slices.Contains([]string{"CreateIndex", "ModifyIndex", "Proxy", "Connect", "ServiceProxy"}, k),
				k == "Datacenter" && !isNode, k == "ID" && isNode && hasAddress:
				delete(v, k)
			default:
				v[k] = own(k, v[k])
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		for i := range v {
			v[i] = own(key, v[i])
		}
		slices.SortFunc(v, func(a, b any) int {
			x, _ := json.Marshal(a)
			y, _ := json.Marshal(b)
			return bytes.Compare(x, y)
		})
		if len(v) == 0 {
			return nil
		}
	case string:
		if key == "Output" {
			return date.ReplaceAllString(v, "…")
		}
	}
	return value
}

var date = regexp.MustCompile(`Date: [^\n]*`)
