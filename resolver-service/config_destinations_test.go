package resolverservice

import (
	"context"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// anywhere has each sidecar of a test be one of another host.
func anywhere(_ context.Context, claimed netip.Addr) netip.Addr { return claimed }

func (c *Config) elsewhere() {
	if c.source == nil {
		c.source = anywhere
	}
}

// connection has a sidecar of a test be one of this host, as it is.
func connection(context.Context, netip.Addr) netip.Addr { return netip.MustParseAddr("127.0.0.1") }

// registers is how a stream ends that registers an address, or OK while it lives.
func (r *running) registers(app catalog.App, address string) *status.Status {
	r.t.Helper()
	stream, err := v1alpha1.NewResolverClient(r.connect(app)).Watch(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	hello := &v1alpha1.Hello{App: wireApp(app), Instance: &v1alpha1.Instance{Id: address, Address: address}}
	if err := stream.Send(&v1alpha1.WatchRequest{Request: &v1alpha1.WatchRequest_Hello{Hello: hello}}); err != nil {
		r.t.Fatal(err)
	}
	_, err = stream.Recv()
	return status.Convert(err)
}

// TestTheServiceItselfIsNoInstance holds every source to the service's own listeners, and to
// what is no instance of any app.
func TestTheServiceItselfIsNoInstance(t *testing.T) {
	cfg := configOf(t, "west", nil)
	cfg.source, cfg.Development.Loopback = connection, false
	cfg.Listen.Consul, cfg.Consul.Anonymous = "127.0.0.1:0", "shop/orders"
	west := start(t, cfg, nil)
	for _, part := range []string{"resolver", "gateway", "admin", "consul"} {
		own := west.Addr(part).String()
		if st := west.registers(orders, own); st.Code() != codes.InvalidArgument || !strings.Contains(st.Message(), own+" is one that this resolver service itself listens on") {
			t.Errorf("%s by a stream: %v", part, st)
		}
		_, port, _ := strings.Cut(own, ":")
		if code, body := west.consulRegisters(`{"Name": "orders", "Address": "127.0.0.1", "Port": ` + port + `}`); code != http.StatusBadRequest || !strings.Contains(body, "itself listens on") {
			t.Errorf("%s by the Consul API: %d %s", part, code, body)
		}
	}
	if code, body := west.consulRegisters(`{"Name": "orders", "Address": "169.254.169.254", "Port": 80}`); code != http.StatusBadRequest || !strings.Contains(body, "link-local") {
		t.Errorf("a metadata service by the Consul API: %d %s", code, body)
	}
	own := west.Addr("gateway").String()
	west.apply("apiVersion: isthmus.dev/v1alpha1\nkind: AppInstance\nmetadata: {namespace: shop, name: loop}\nspec: {app: orders, address: '" + own + "'}\n")
	west.within("the object is refused by name", func() bool {
		return strings.Contains(west.refusals("static"), own+" is one that this resolver service itself listens on")
	})
	if st := west.registers(orders, "10.0.0.9:50002"); st.Code() != codes.PermissionDenied || !strings.Contains(st.Message(), "comes from 127.0.0.1") {
		t.Errorf("another host's address: %v", st)
	}

	// Loopback is an instance, and not exported.
	west.sidecar(orders, "127.0.0.1:50002")
	west.apply("apiVersion: isthmus.dev/v1alpha1\nkind: AppExport\nmetadata: {namespace: shop, name: orders}\nspec: {allow: [{cluster: east}]}\n")
	table, _ := west.topology.Gateway().Load()
	if b, ok := table.Backends.Get(orders); !ok || len(b.Instances) != 0 {
		t.Errorf("the gateway has %+v", b)
	}
	if got := west.resolve(checkout, orders); got != "ok 127.0.0.1:50002" {
		t.Errorf("a lookup here ends with %s", got)
	}
	if got := west.refusals("exports"); !strings.Contains(got, "AppExport shop/orders not exported: address 127.0.0.1:50002 is loopback") {
		t.Errorf("status says %q of exports", got)
	}
}

// consulRegisters registers a service with the Consul API.
func (r *running) consulRegisters(service string) (code int, body string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPut, "http://"+r.Addr("consul").String()+"/v1/agent/service/register", strings.NewReader(service))
	if err != nil {
		r.t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text)
}

// refusals are what the status says that a source refuses.
func (r *running) refusals(source string) string {
	var all []string
	for _, s := range r.status().GetSources() {
		for _, refused := range s.GetRefused() {
			if s.GetName() == source {
				all = append(all, refused.GetSource()+" "+refused.GetError())
			}
		}
	}
	return strings.Join(all, "\n")
}

// TestADelegateIsConfigured has what a delegate registers be unverified.
func TestADelegateIsConfigured(t *testing.T) {
	cfg := configOf(t, "west", nil)
	cfg.source = connection
	cfg.Instances.Delegates = []Delegate{{Networks: []string{"127.0.0.0/8"}, Apps: []string{"shop/*"}, Addresses: []string{"10.1.0.0/16"}, Most: 1}}
	west := start(t, cfg, nil)
	west.sidecar(orders, "10.1.0.1:50002")
	if got := west.resolve(checkout, orders); got != "ok 10.1.0.1:50002" {
		t.Errorf("a lookup ends with %s", got)
	}
	if st := west.registers(orders, "10.2.0.1:50002"); st.Code() != codes.PermissionDenied {
		t.Errorf("an address outside: %v", st)
	}
	if st := west.registers(catalog.App{Namespace: "finance", ID: "ledger"}, "10.1.0.2:50002"); st.Code() != codes.PermissionDenied {
		t.Errorf("another app: %v", st)
	}
}
