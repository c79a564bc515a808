package consulapi

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/dapr/components-contrib/nameresolution"
	stock "github.com/dapr/components-contrib/nameresolution/hashicorp/consul"
	"github.com/dapr/kit/logger"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// resolver is Dapr's own component, set up as a sidecar of an app does.
func (a *agent) resolver(t *testing.T, app string, daprPort int, health string, more map[string]any) nameresolution.Resolver {
	t.Helper()
	configuration := map[string]any{"client": map[string]any{"address": a.url, "token": a.tokens[app]}}
	for key, value := range more {
		configuration[key] = value
	}
	host, port, err := net.SplitHostPort(health)
	if err != nil {
		t.Fatal(err)
	}
	httpPort, _ := strconv.Atoi(port)
	r := stock.NewResolver(quiet())
	err = r.Init(t.Context(), nameresolution.Metadata{
		Instance:      nameresolution.Instance{AppID: app, Namespace: "shop", Address: host, DaprInternalPort: daprPort, DaprHTTPPort: httpPort, AppPort: 8080},
		Configuration: configuration,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// sidecar is what the component has Consul ask by default: /v1.0/healthz.
func sidecar(t *testing.T) (address string, sick func(bool)) {
	t.Helper()
	var ill = make(chan bool, 1)
	ill <- false
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		state := <-ill
		ill <- state
		if state || q.URL.Path != "/v1.0/healthz" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, "")
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), func(state bool) { <-ill; ill <- state }
}

// TestTheStockComponent registers and resolves with Dapr's component as it is, with and
// without its cache.
func TestTheStockComponent(t *testing.T) {
	for _, cache := range []bool{false, true} {
		t.Run(fmt.Sprintf("cache=%v", cache), func(t *testing.T) {
			both(t, func(t *testing.T, a *agent) { testStock(t, a, cache) })
		})
	}
}

func testStock(t *testing.T, a *agent, cache bool) {
	address, sick := sidecar(t)
	quick := []any{map[string]any{"name": "Dapr Health Status", "checkID": "daprHealth:orders", "interval": "1s", "http": "http://" + address + "/v1.0/healthz?appid=orders"}}
	orders := a.resolver(t, "orders", 50002, address, map[string]any{"selfRegister": true, "selfDeregister": true, "checks": quick, "tags": []any{"dapr"}})
	checkout := a.resolver(t, "checkout", 50003, address, map[string]any{"useCache": cache})
	defer func() {
		if err := checkout.Close(); err != nil {
			t.Error(err)
		}
	}()
	resolve := func(app string) string {
		got, err := checkout.ResolveID(t.Context(), nameresolution.ResolveRequest{ID: app, Namespace: "shop"})
		if err != nil {
			return err.Error()
		}
		return got
	}
	serverstest.Await(t, "orders is found", func() bool { return resolve("orders") == "127.0.0.1:50002" })
	if got := resolve("nobody"); !strings.Contains(got, "no healthy services found with AppID 'nobody'") {
		t.Errorf("nobody is found: %s", got)
	}
	sick(true)
	serverstest.Await(t, "orders is not well", func() bool { return strings.Contains(resolve("orders"), "no healthy services found") })
	sick(false)
	serverstest.Await(t, "orders is well again", func() bool { return resolve("orders") == "127.0.0.1:50002" })
	if err := orders.Close(); err != nil {
		t.Error(err)
	}
	serverstest.Await(t, "orders is gone", func() bool { return strings.Contains(resolve("orders"), "no healthy services found") })
}

// TestTheStockComponentIsRefused: the errors that its user reads begin with the same words.
func TestTheStockComponentIsRefused(t *testing.T) {
	both(t, func(t *testing.T, a *agent) {
		for name, c := range map[string]struct{ app, token, want string }{
			"another's name":  {"orders", a.tokens["checkout"], "Permission denied"},
			"a stranger":      {"orders", a.tokens["stranger"], "ACL not found"},
			"nobody's client": {"orders", "", "Permission denied"},
		} {
			r := stock.NewResolver(quiet())
			err := r.Init(t.Context(), nameresolution.Metadata{
				Instance:      nameresolution.Instance{AppID: c.app, Namespace: "shop", Address: "127.0.0.1", DaprInternalPort: 1, DaprHTTPPort: 2, AppPort: 3},
				Configuration: map[string]any{"client": map[string]any{"address": a.url, "token": c.token}, "selfRegister": true},
			})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
		}
	})
}

// quiet is a logger of Dapr's that says what is wrong only.
func quiet() logger.Logger {
	l := logger.NewLogger("test")
	l.SetOutputLevel(logger.ErrorLevel)
	return l
}
