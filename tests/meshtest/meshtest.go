// Package meshtest is what tests of whole systems share: how they wait, and the objects
// that they write.
package meshtest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Eventually tries until it goes well, and fails the test with the last error.
func Eventually(t *testing.T, limit time.Duration, try func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatalf("not within %s: %v", limit, err)
}

// Within is the test's context for so long.
func Within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// Cluster is a Cluster with these gateways, in YAML to which more of its spec may be added.
func Cluster(name string, gateways ...string) string {
	addresses := make([]string, len(gateways))
	for i, g := range gateways {
		addresses[i] = fmt.Sprintf("{address: %q}", g)
	}
	return fmt.Sprintf(`apiVersion: isthmus.dev/v1alpha1
kind: Cluster
metadata: {name: %s}
spec:
  gateways: [%s]
`, name, strings.Join(addresses, ", "))
}
