package system

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// onceOnly is the policy of docs/reference/sidecar.md, for the app "orders".
const onceOnly = `apiVersion: dapr.io/v1alpha1
kind: Resiliency
metadata: {name: once}
spec:
  policies:
    retries:
      never: {policy: constant, maxRetries: 0}
  targets:
    apps:
      orders: {retry: never}
`

// TestHowOftenACallRuns kills the callee's sidecar while the call is with its app, and counts how
// often the apps were called.
func TestHowOftenACallRuns(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "once.yaml"), []byte(onceOnly), 0o600); err != nil {
		t.Fatal(err)
	}
	never, policy := map[string]any{"retryCutOff": false}, []string{"--resources-path", dir}
	for _, c := range []struct {
		what string
		o    sandbox.SidecarOptions
		want int
	}{
		{"by default", sandbox.SidecarOptions{}, 2},
		{"with retryCutOff: false, daprd repeats", sandbox.SidecarOptions{Component: never}, 2},
		{"with a policy, Isthmus repeats", sandbox.SidecarOptions{Args: policy}, 2},
		{"with both", sandbox.SidecarOptions{Component: never, Args: policy}, 1},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			namespace := fmt.Sprintf("once-%t-%t", c.o.Component != nil, c.o.Args != nil)
			m.apply(t, m.west, selection(namespace, "checkout", "app: orders"))
			var orders []*sandbox.Sidecar
			for _, instance := range []string{"one", "two"} {
				orders = append(orders, m.sidecar(t, m.west, sandbox.SidecarOptions{App: catalog.App{Namespace: namespace, ID: "orders"}, Instance: instance}))
			}
			c.o.App = catalog.App{Namespace: namespace, ID: "checkout"}
			checkout := m.sidecar(t, m.west, c.o)
			ctx := meshtest.Within(t, meshtest.Patience)
			meshtest.Eventually(t, meshtest.Patience, func() error {
				_, err := checkout.Invoke(ctx, "orders", "hello", untraced)
				if err == nil && (orders[0].Behind.Calls() == 0 || orders[1].Behind.Calls() == 0) {
					err = fmt.Errorf("one instance has no calls")
				}
				return err
			})
			for _, o := range orders {
				o.Behind.Slow(10 * time.Second) // until the kill
			}
			done := make(chan error, 1)
			go func() {
				_, err := checkout.Invoke(ctx, "orders", "pay", untraced)
				done <- err
			}()
			runs := func() int { return orders[0].Behind.Begun("pay").Count + orders[1].Behind.Begun("pay").Count }
			meshtest.Eventually(t, meshtest.Patience, func() error {
				if runs() == 0 {
					return fmt.Errorf("the call has not come")
				}
				return nil
			})
			runner := orders[0]
			if orders[1].Behind.Begun("pay").Count > 0 {
				runner = orders[1]
			}
			for _, o := range orders {
				o.Behind.Slow(0)
			}
			if err := runner.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := <-done; (err == nil) != (c.want > 1) || runs() != c.want {
				t.Errorf("the call ran %d times and ended with %v; want %d runs", runs(), err, c.want)
			}
		})
	}
}
