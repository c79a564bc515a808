package keeper_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/resolver-service"
	"github.com/isthmus-mesh/isthmus/resolver-service/policies/keeper"
)

// slice and pod are what Kubernetes and Dapr's injector make of an app.
func slice(id, address string) map[string]any {
	return map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
		"metadata":  map[string]any{"name": id + "-dapr-x", "namespace": "shop", "labels": map[string]string{"kubernetes.io/service-name": id + "-dapr", "dapr.io/enabled": "true"}},
		"ports":     []any{map[string]any{"name": "dapr-internal", "port": 50002, "protocol": "TCP"}},
		"endpoints": []any{map[string]any{"addresses": []string{address}, "targetRef": map[string]any{"kind": "Pod", "name": id}, "conditions": map[string]bool{"ready": true}}},
	}
}

func pod(id string, annotations map[string]string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": id, "namespace": "shop", "labels": map[string]string{"dapr.io/sidecar-injected": "true", "dapr.io/app-id": id}, "annotations": annotations},
		"spec":     map[string]any{"serviceAccountName": id, "containers": []any{map[string]any{"name": "app", "image": "example.invalid/app"}}},
	}
}

func put(t *testing.T, objects ...map[string]any) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := keeper.Shared.Run(string(text), "apply", "-f", "-"); err != nil {
		t.Fatal(err, out)
	}
}

// TestAnAnnotationBecomesAPolicy has a whole service, which learns of apps and of their calls from
// pods alone.
func TestAnAnnotationBecomesAPolicy(t *testing.T) {
	keeper.Fresh(t)
	for _, role := range []string{"isthmus-instances", "isthmus-instances-pods"} {
		if err := keeper.Shared.Kubectl("create", "clusterrolebinding", role, "--clusterrole="+role, "--user=service"); err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig := keeper.Shared.Kubeconfig(t, "service")
	cfg, err := resolverservice.Parse("isthmus.yaml", fmt.Appendf(nil, `
cluster: west
dataDir: %s
listen: {resolver: "127.0.0.1:0"}
identity: {insecure: true}
defaultSelection: none
declared: {annotations: true}
instances: {kubernetes: {kubeconfig: %s, serviceAccounts: true}}
policies: {kubernetes: {kubeconfig: %s, kinds: [network, istio]}}
`, t.TempDir(), kubeconfig, kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	s := resolverservice.New(cfg, slog.New(slog.DiscardHandler))
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	const istio = "authorizationpolicies.security.istio.io"
	put(t, slice("orders", "10.0.0.1"), pod("orders", nil), slice("checkout", "10.0.0.2"), pod("checkout", map[string]string{"isthmus.dev/calls": "orders"}), slice("web", "10.0.0.3"), pod("web", nil))
	holds := func(plural string, yes, no string) bool {
		spec := keeper.Has(t, plural, "isthmus-orders")
		return strings.Contains(spec, yes) && !strings.Contains(spec, no)
	}
	keeper.Within(t, "a policy that lets in checkout", func() bool {
		return holds("networkpolicies", `"checkout"`, "web") && holds(istio, "cluster.local/ns/shop/sa/checkout", "web")
	})
	put(t, pod("checkout", nil), pod("web", map[string]string{"isthmus.dev/calls": "orders"}))
	keeper.Within(t, "a policy that lets in web", func() bool {
		return holds("networkpolicies", `"web"`, "checkout") && holds(istio, "cluster.local/ns/shop/sa/web", "checkout")
	})
}
