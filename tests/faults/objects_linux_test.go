package faults

import (
	"fmt"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// What the clusters say of each other.
const rampUp = 8 * time.Second

// staleAfter is longer where limits are not held exactly: where a machine is busy, two
// seconds can go by in which nobody renews a lease.
func staleAfter() time.Duration {
	if *exact {
		return 2 * time.Second
	}
	return 6 * time.Second
}

func clusterObject(c *cluster, staleAfter time.Duration) string {
	addresses := make([]string, len(c.gateways))
	for i, g := range c.gateways {
		addresses[i] = fmt.Sprintf("%s:%d", g, gatewayPort)
	}
	return meshtest.ClusterThatLapses(staleAfter, c.name, addresses...) + fmt.Sprintf("  rampUp: %s\n", rampUp)
}

// export lets every app of the namespace in every other cluster call an app.
func export(id string) string {
	return fmt.Sprintf(`apiVersion: isthmus.dev/v1alpha1
kind: AppExport
metadata: {namespace: %[1]s, name: %[2]s}
spec:
  allow:
  - {cluster: "*", namespace: %[1]s}
`, namespace, id)
}

// selection lets an app call others. Each is an app-id, a colon, and the clusters in
// their order of preference: "orders: east north".
func selection(id string, endpoints ...string) string {
	var text strings.Builder
	fmt.Fprintf(&text, `apiVersion: isthmus.dev/v1alpha1
kind: AppEndpoints
metadata: {namespace: %s, name: %s}
spec:
  endpoints:
`, namespace, id)
	for _, e := range endpoints {
		callee, clusters, _ := strings.Cut(e, ": ")
		fmt.Fprintf(&text, "  - app: %s\n    routes:\n", callee)
		for priority, c := range strings.Fields(clusters) {
			fmt.Fprintf(&text, "    - {cluster: %s, priority: %d}\n", c, priority)
		}
	}
	return text.String()
}
