package system

import (
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// Apps whose ids no DNS name can have call and are called within their cluster, as with Dapr's own
// resolvers. Other clusters are told why they can't call them.
func TestAppIDsThatDNSCantCarry(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	const namespace = "names"
	ids := []string{"Orders", "orders_v2", strings.Repeat("long-", 12) + "app"}
	m.app(t, m.west, namespace, "orders") // is another one
	for _, id := range ids {
		m.app(t, m.west, namespace, id)
	}
	for _, caller := range []string{"checkout", "Check_Out"} {
		here := m.app(t, m.west, namespace, caller)
		for _, id := range append(ids, "orders") {
			answers(t, here, id, "west")
		}
	}
	m.apply(t, m.west, selection(namespace, "selects", "app: orders_v2, routes: [{cluster: local}]"))
	selects := m.app(t, m.west, namespace, "selects")
	answers(t, selects, "orders_v2", "west")

	away := m.app(t, m.east, namespace, "checkout")
	for _, id := range ids {
		_, err := away.Invoke(meshtest.Within(t, meshtest.Patience), id, "hello", untraced)
		if want := "under this app-id it can't be called from other clusters: app-id \"" + id; err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), `\`, ""), want) {
			t.Errorf("%s from another cluster: %v, want %q", id, err, want)
		}
	}
}
