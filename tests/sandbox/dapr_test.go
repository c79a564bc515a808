package sandbox

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/collector"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// A sandbox is worth something when what it starts talks to each other: two real
// sidecars with certificates of a real Sentry, an app, and one trace over both.
func TestTwoSidecarsCallWithMTLSAndOneTrace(t *testing.T) {
	programstest.Need(t, "daprd", "sentry")
	s, ctx := open(t), within(t, 5*patience) // for all that is started
	authority, err := NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	sentry, err := s.Sentry(ctx, SentryOptions{Cluster: "west", Authority: authority})
	if err != nil {
		t.Fatal(err)
	}
	traces, err := s.Traces()
	if err != nil {
		t.Fatal(err)
	}
	orders := catalog.App{Namespace: "shop", ID: "orders"}
	app, err := s.App(AppOptions{Cluster: "west", App: orders})
	if err != nil {
		t.Fatal(err)
	}
	config := `apiVersion: dapr.io/v1alpha1
kind: Configuration
metadata: {name: sandbox}
spec:
  nameResolution: {component: mdns, version: v1}
  tracing: {samplingRate: "1", otel: {endpointAddress: "` + traces.Endpoint() + `", isSecure: false, protocol: grpc}}
`
	if _, err := s.Daprd(ctx, DaprdOptions{Cluster: "west", App: orders, AppAddress: app.Address, Configuration: config, Sentry: sentry}); err != nil {
		t.Fatal(err)
	}
	caller, err := s.Daprd(ctx, DaprdOptions{
		Cluster: "west", App: catalog.App{Namespace: "shop", ID: "checkout"}, Configuration: config, Sentry: sentry,
	})
	if err != nil {
		t.Fatal(err)
	}

	var reply *Reply
	for { // the answer by multicast may be later than daprd waits for it
		reply, err = caller.Invoke(ctx, "orders", "list", http.Header{"Traceparent": {traceparent}})
		if err == nil {
			break
		}
		if ctx.Err() != nil || app.Calls() > 0 {
			t.Fatal(err)
		}
	}
	if reply.App != "orders" || reply.Namespace != "shop" || reply.Cluster != "west" || reply.Path != "/list" || reply.Call != 1 || app.Calls() != 1 {
		t.Errorf("reply %+v after %d calls, want the first call of orders in shop, west", reply, app.Calls())
	}
	if id := strings.Split(traceparent, "-")[1]; !strings.Contains(reply.Header["Traceparent"], id) {
		t.Errorf("traceparent %q reached the app, want trace %s", reply.Header["Traceparent"], id)
	}
	_, err = traces.Wait(ctx, strings.Split(traceparent, "-")[1], func(spans []collector.Span) bool {
		services := map[string]bool{}
		for _, span := range spans {
			services[span.Resource["service.name"]+" in "+span.Resource["k8s.cluster.name"]] = true
		}
		return services["checkout in west"] && services["orders in west"]
	})
	if err != nil {
		t.Error(err)
	}

	var failed *InvokeError
	if _, err := caller.Invoke(ctx, "nobody", "list", nil); !errors.As(err, &failed) {
		t.Errorf("call to an app that is not there: %v, want an InvokeError", err)
	}
}
