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

	"github.com/isthmus-mesh/isthmus/sandbox/servers/serverstest"
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
		{"checkout", "GET", "/v1/agent/checks", "", `"Status":"passing"`},
		{"checkout", "PUT", "/v1/agent/check/pass/service:checkout-127.0.0.1-3500:2?note=well", "", ""},
		{"orders", "PUT", "/v1/agent/service/register", `{"Name":"orders","Address":"127.0.0.1","Port":9,"Check":{"TTL":"1h","Status":"passing"},"Weights":{"Passing":3,"Warning":2}}`, ""},
		{"checkout", "GET", "/v1/health/service/orders?passing", "", "1h"},
	}
	all = append(all, reads("checkout")...)
	for _, app := range []string{"anonymous", "stranger", "orders"} {
		for _, s := range reads(app) {
			if !strings.HasPrefix(s.path, "/v1/agent/self") {
				all = append(all, s)
			}
		}
	}
	all = append(all, mistakes()...)
	return append(all, changes()...)
}

// reads are what can be read, by whoever asks.
func reads(app string) (all []step) {
	for _, path := range []string{
		"/v1/health/service/checkout", "/v1/health/service/checkout?passing", "/v1/health/service/checkout?passing=false", "/v1/health/service/checkout?passing=x",
		"/v1/health/service/checkout?passing=1&cached", "/v1/health/service/checkout?stale", "/v1/health/service/checkout?consistent",
		"/v1/health/service/checkout?tag=a", "/v1/health/service/checkout?tag=a&tag=b", "/v1/health/service/checkout?tag=A", "/v1/health/service/checkout?tag=c",
		"/v1/health/service/checkout?near=_agent", "/v1/health/service/checkout?dc=west", "/v1/health/service/checkout?node-meta=a:b",
		"/v1/health/service/checkout?pretty",
		"/v1/health/service/nobody", "/v1/health/service/", "/v1/health/service/orders", "/v1/health/service/orders?passing",
		"/v1/health/checks/checkout", "/v1/health/checks/orders", "/v1/health/checks/", "/v1/health/checks/nobody",
		"/v1/health/state/any?node-meta=a:b", "/v1/health/state/any", "/v1/health/state/any?node-meta=a:b", "/v1/health/state/any?node-meta=consul-network-segment:",
		"/v1/health/checks/checkout?node-meta=a:b", "/v1/health/node/isthmus-west?node-meta=a:b", "/v1/health/node/isthmus-west?node-meta=consul-network-segment:",
		"/v1/health/state/passing", "/v1/health/state/critical", "/v1/health/state/bogus", "/v1/health/state/",
		"/v1/health/state/any?filter=ServiceName==%22checkout%22", "/v1/health/state/any?filter=ServiceName==%22checkout%22+or+ServiceName==%22orders%22",
		"/v1/health/state/any?filter=ServiceName==%22%22", "/v1/health/state/any?filter=ServiceName==%22%22+or+ServiceName==%22checkout%22", "/v1/health/state/any?filter=ServiceName==%22CHECKOUT%22",
		"/v1/health/state/any?filter=ServiceName==%22checkout%22+or+ServiceName==%22CHECKOUT%22", "/v1/health/state/any?filter=ServiceName==%22checkout%22+or+ServiceName==%22checkout.shop%22",
		"/v1/health/service/CHECKOUT", "/v1/health/service/Checkout?passing", "/v1/health/checks/CheckOut", "/v1/catalog/service/CHECKOUT", "/v1/health/service/NOBODY",
		"/v1/agent/health/service/name/CHECKOUT", "/v1/agent/health/service/name/CHECKOUT?format=text", "/v1/agent/service/CHECKOUT-127.0.0.1-3500",
		"/v1/health/node/isthmus-west", "/v1/health/node/nobody", "/v1/health/node/",
		"/v1/catalog/services", "/v1/catalog/service/checkout", "/v1/catalog/service/checkout?tag=a", "/v1/catalog/service/nobody", "/v1/catalog/service/",
		"/v1/catalog/nodes", "/v1/catalog/datacenters", "/v1/catalog/node/isthmus-west", "/v1/catalog/node/nobody", "/v1/catalog/node/",
		"/v1/catalog/node-services/isthmus-west",
		"/v1/agent/services", "/v1/agent/service/checkout-127.0.0.1-3500", "/v1/agent/service/nobody", "/v1/agent/checks",
		"/v1/agent/health/service/name/checkout", "/v1/agent/health/service/name/checkout?format=text", "/v1/agent/health/service/name/nobody",
		"/v1/agent/health/service/id/nobody", "/v1/agent/health/service/id/nobody?format=text",
		"/v1/agent/version",
	} {
		all = append(all, step{app, "GET", path, "", ""})
	}
	for _, filter := range []string{
		`Service.Meta.DAPR_PORT == "50002"`, `Service.Tags contains "a" and not (Service.Port == 1)`, `"a" in Service.Tags`, `Node.Datacenter != west`,
		`Checks.Status == passing`, `Service.ID matches "^check"`, `foo == 1`, `)(`, `Service.Port == abc`, `Service`, `Service.Meta contains DAPR_PORT`,
		`Service.Weights.Passing == 1`, `Service.Tags is empty`, `Service.Meta is not empty`, `Service.Proxy.Mode == ""`, strings.Repeat("x", 3),
	} {
		all = append(all, step{app, "GET", "/v1/health/service/checkout?filter=" + escape(filter), "", ""})
	}
	for _, filter := range []string{`ServiceMeta.DAPR_PORT == "50002"`, `ServicePort == 8080`, `ServiceTags is empty`, `Node == "isthmus-west"`, `nope == 1`} {
		all = append(all, step{app, "GET", "/v1/catalog/service/checkout?filter=" + escape(filter), "", ""})
	}
	for _, filter := range []string{`Service == "checkout"`, `Meta.DAPR_PORT == "50002"`, `nope == 1`} {
		all = append(all, step{app, "GET", "/v1/agent/services?filter=" + escape(filter), "", ""})
	}
	for _, filter := range []string{`Status == "passing"`, `Type == "ttl"`, `nope == 1`} {
		all = append(all, step{app, "GET", "/v1/agent/checks?filter=" + escape(filter), "", ""})
	}
	return all
}

func escape(s string) string {
	return strings.NewReplacer(" ", "+", `"`, "%22", "^", "%5E", ")", "%29", "(", "%28").Replace(s)
}

// mistakes are requests that are refused.
func mistakes() (all []step) {
	for _, path := range []string{
		"index=a", "index=-1", "wait=a", "dc=nowhere", "datacenter=nowhere", "stale&consistent", "cached&consistent", "max_stale=x",
		"ns=foo", "partition=foo",
	} {
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
			step{app, "PUT", "/v1/agent/service/register", `{"Name":"checkout"}`, ""},
			step{app, "PUT", "/v1/agent/service/deregister/nobody", "", ""},
			step{app, "PUT", "/v1/agent/check/pass/nobody", "", ""},
			step{app, "GET", "/v1/agent/self", "", ""},
		)
	}
	for _, body := range []string{
		`{"Name":"c","ServiceID":"none","TTL":"1m"}`, `{"Name":"c","TTL":"1m"}`, `{"Name":"c","ServiceID":"checkout-127.0.0.1-3500"}`, `{"ServiceID":"x"}`, "{", `{"Name":"c","Status":"x"}`, `{"Foo":1}`,
	} {
		all = append(all, step{"checkout", "PUT", "/v1/agent/check/register", body, ""})
	}
	return append(all, []step{
		{"checkout", "POST", "/v1/agent/service/register", "{}", ""}, {"checkout", "GET", "/v1/agent/service/register", "", ""},
		{"checkout", "OPTIONS", "/v1/agent/service/register", "", ""}, {"checkout", "DELETE", "/v1/health/service/x", "", ""}, {"checkout", "HEAD", "/v1/health/service/x", "", ""},
		{"checkout", "PUT", "/v1/agent/self", "", ""}, {"checkout", "GET", "/v1/agent/check/pass/x", "", ""}, {"checkout", "PUT", "/v1/catalog/services", "", ""},
		{"checkout", "GET", "/v1/nothing", "", ""}, {"checkout", "GET", "/nothing", "", ""}, {"checkout", "GET", "/", "", ""},
		{"checkout", "GET", "/v1/health/service/a%01b", "", ""}, {"checkout", "GET", "/v1/health/service/x?a=%zz", "", ""},
		{"checkout", "PUT", "/v1/agent/service/deregister/none", "", ""}, {"checkout", "PUT", "/v1/agent/check/deregister/none", "", ""},
		{"checkout", "PUT", "/v1/agent/check/pass/none", "", ""}, {"checkout", "PUT", "/v1/agent/check/pass/daprHealth:1", "", ""},
		{"checkout", "PUT", "/v1/agent/check/update/none", `{"Status":"passing"}`, ""}, {"checkout", "PUT", "/v1/agent/check/update/none", `{"Status":"x"}`, ""},
		{"checkout", "PUT", "/v1/agent/check/update/none", `{`, ""}, {"checkout", "PUT", "/v1/agent/check/update/none", `{"Foo":1}`, ""},
		{"checkout", "PUT", "/v1/agent/service/maintenance/", "", ""}, {"checkout", "PUT", "/v1/agent/service/maintenance/x", "", ""},
		{"checkout", "PUT", "/v1/agent/service/maintenance/x?enable=x", "", ""}, {"checkout", "PUT", "/v1/agent/service/maintenance/x?enable=true", "", ""},
	}...)
}

// changes are what can be done, with what is to be seen after each.
func changes() (all []step) {
	const ttl = "service:checkout-127.0.0.1-3500:2"
	look := func(await string) {
		all = append(all, step{"checkout", "GET", "/v1/health/service/checkout", "", await},
			step{"checkout", "GET", "/v1/health/service/checkout?passing", "", ""}, step{"checkout", "GET", "/v1/agent/health/service/id/checkout-127.0.0.1-3500", "", ""},
			step{"checkout", "GET", "/v1/agent/health/service/name/checkout?format=text", "", ""}, step{"checkout", "GET", "/v1/agent/checks", "", ""},
			step{"checkout", "GET", "/v1/catalog/services", "", ""}, step{"checkout", "GET", "/v1/agent/services", "", ""})
	}
	do := func(path, body, await string) {
		all = append(all, step{"checkout", "PUT", path, body, ""})
		look(await)
	}
	do("/v1/agent/check/warn/"+ttl+"?note=careful", "", "careful")
	do("/v1/agent/check/fail/"+ttl, "", `"critical"`)
	do("/v1/agent/check/update/"+ttl, `{"Status":"passing","Output":"again"}`, "again")
	do("/v1/agent/check/register", `{"Name":"extra","ServiceID":"checkout-127.0.0.1-3500","TTL":"1h","Status":"passing","Notes":"x"}`, "extra")
	do("/v1/agent/check/register", `{"ID":"tcp","Name":"extra","service_id":"checkout-127.0.0.1-3500","TCP":"ADDRESS","Interval":1000000000,"Timeout":"2s"}`, "Success")
	do("/v1/agent/check/deregister/extra", "", "")
	do("/v1/agent/check/deregister/tcp", "", "")
	do("/v1/agent/service/maintenance/checkout-127.0.0.1-3500?enable=true&reason=why", "", "_service_maintenance")
	do("/v1/agent/service/maintenance/checkout-127.0.0.1-3500?enable=true", "", "")
	do("/v1/agent/service/maintenance/checkout-127.0.0.1-3500?enable=false", "", "")
	do("/v1/agent/service/register", strings.Replace(registration, `"Tags":["b","a"],`, `"Tags":["new"],`, 1), "new")
	do("/v1/agent/service/register", `{"ID":"two","Name":"checkout","Port":1234,"tagged_addresses":{"lan":{"Address":"127.0.0.1","Port":5}},"enable_tag_override":true}`, "two")
	do("/v1/agent/service/register?replace-existing-checks", `{"ID":"checkout-127.0.0.1-3500","Name":"checkout","Address":"127.0.0.1","Port":1,"Check":{"CheckID":"only","TTL":"1h"}}`, "only")
	do("/v1/agent/service/register", `{"Name":"checkout","Address":"fd00::1","Port":1,"Check":null,"Checks":null,"Meta":null,"Tags":null,"Weights":null,"Connect":null,"Proxy":null}`, "fd00")
	do("/v1/agent/service/deregister/two", "", "")
	do("/v1/agent/service/deregister/checkout", "", "")
	do("/v1/agent/service/deregister/checkout-127.0.0.1-3500", "", "")
	return all
}

// TestNobodyCanTellThemApart tells both the same, and compares what they answer.
func TestNobodyCanTellThemApart(t *testing.T) {
	theirs, us := consul(t), &ours(t).agent
	health := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { fmt.Fprint(w, "fine") }))
	defer health.Close()
	for n, s := range steps() {
		if differently[s.method+" "+s.path] || differently[s.app+" "+s.method+" "+s.path] {
			continue
		}
		s.body = strings.NewReplacer("HEALTH", health.URL+"/v1.0/healthz?appid=checkout", "ADDRESS", health.Listener.Addr().String()).Replace(s.body)
		want, got := s.ask(t, theirs), s.ask(t, us)
		if s.app == "anonymous" && strings.Contains(s.path, "filter=") && want.code == http.StatusInternalServerError && got.code == http.StatusOK && len(got.body) == 2 {
			continue // no filter is read for who sees nothing
		}
		if diff := want.differs(got); diff != "" {
			t.Errorf("step %d: %s asks %s %s %.300s\n%s", n, s.app, s.method, s.path, s.body, diff)
		}
	}
}

// differently are the requests that Isthmus answers in its own way, which docs/consul.md says.
var differently = map[string]bool{
	// Consul leaves out services whose ID is not their name: its ACL takes one for the other.
	"GET /v1/catalog/node/isthmus-west": true,
	// Consul tells who may not see a service that it is there, and what it is called.
	"anonymous GET /v1/agent/service/checkout-127.0.0.1-3500": true,
	"orders GET /v1/agent/service/checkout-127.0.0.1-3500":    true,
}

func (s step) ask(t *testing.T, a *agent) (r response) {
	t.Helper()
	if s.await == "" {
		return a.do(t, s.app, s.method, s.path, s.body)
	}
	serverstest.Await(t, a.name+" answers "+s.path+" with "+s.await, func() bool {
		r = a.do(t, s.app, s.method, s.path, s.body)
		return strings.Contains(r.body, s.await) || s.await == "1h"
	})
	return r
}

// compared are the headers that say the same.
var compared = []string{"Content-Type", "Allow", "X-Consul-Knownleader", "X-Consul-Lastcontact", "X-Consul-Effective-Consistency", "X-Consul-Default-Acl-Policy", "X-Consul-Reason"}

// present are those that each have in their own way.
var present = []string{"X-Consul-Index", "X-Consul-Contenthash", "X-Consul-Query-Backend"}

// differs is empty where two responses say the same.
func (r response) differs(o response) string {
	var lines []string
	line := func(what string, theirs, ours any) {
		lines = append(lines, fmt.Sprintf("\t%s:\n\t\tconsul  %v\n\t\tisthmus %v", what, theirs, ours))
	}
	if r.code != o.code {
		line("code", r.code, o.code)
	}
	for _, name := range compared {
		if name == "X-Consul-Knownleader" && r.header.Get("X-Cache") != "" {
			continue // Consul's cache does not know it at first
		}
		if a, b := r.header.Get(name), o.header.Get(name); a != b {
			line(name, a, b)
		}
	}
	for _, name := range present {
		if a, b := r.header.Get(name) != "" && r.header.Get(name) != "0", o.header.Get(name) != "" && o.header.Get(name) != "0"; a != b {
			line(name+" is there", a, b)
		}
	}
	if a, b := plain(r.body), plain(o.body); a != b {
		lines = append(lines, "\tbody: (- consul, + isthmus)\n"+difference(a, b))
	}
	return strings.Join(lines, "\n")
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
			if len(bs) == 0 {
				out, as = append(out, "\t\t- "+strings.TrimSpace(as[0])), as[1:]
				continue
			}
			out, bs = append(out, "\t\t+ "+strings.TrimSpace(bs[0])), bs[1:]
		}
	}
	return strings.Join(out, "\n")
}

var (
	accessorID = regexp.MustCompile(`AccessorID '[0-9a-f-]+'`)
	goTypes    = regexp.MustCompile(`json: cannot unmarshal (\w+) into Go (?:value|struct field).*`)
)

// plain is a body without what is each one's own: IDs of nodes and tokens, indexes, and
// names of Go's types. What is in an index of Consul's is only whether there is one.
func plain(body string) string {
	var value any
	if err := json.Unmarshal([]byte(body), &value); err != nil {
		body = accessorID.ReplaceAllString(body, "AccessorID '…'")
		return goTypes.ReplaceAllString(body, "json: cannot unmarshal $1 into Go's")
	}
	text, _ := json.Marshal(own("", value))
	var out bytes.Buffer
	_ = json.Indent(&out, text, "\t\t", " ")
	return out.String()
}

// isTags tells whether a list is one of texts: Consul has a service's tags in any order.
func isTags(list []any) bool {
	return !slices.ContainsFunc(list, func(v any) bool { _, text := v.(string); return !text })
}

func own(key string, value any) any {
	switch v := value.(type) {
	case map[string]any:
		_, isNode := v["Datacenter"]
		_, isService := v["Service"]
		for k := range v {
			if _, kept := v[k].(string); k == "ID" && isNode && !isService && kept {
				v[k] = "…"
				continue
			}
			v[k] = own(k, v[k])
		}
	case []any:
		if key == "Checks" { // which an agent has in any order
			slices.SortFunc(v, func(a, b any) int {
				return strings.Compare(a.(map[string]any)["CheckID"].(string), b.(map[string]any)["CheckID"].(string))
			})
		}
		if isTags(v) {
			slices.SortFunc(v, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		for i := range v {
			v[i] = own(key, v[i])
		}
	case float64:
		if slices.Contains([]string{"CreateIndex", "ModifyIndex"}, key) {
			return v > 0
		}
	case string:
		if key == "ContentHash" {
			return "…"
		}
		if key == "Output" {
			return date.ReplaceAllString(v, "…")
		}
	}
	return value
}

var date = regexp.MustCompile(`Date: [^\n]*`)
