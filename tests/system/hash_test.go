package system

import (
	"fmt"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// A user's calls go to one instance, here or in another cluster, from each replica of the caller.
func TestAUserStaysAtOneInstanceOverClusters(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	app := func(id string) catalog.App { return catalog.App{Namespace: "sticky", ID: id} }
	m.apply(t, m.east, export("sticky", "cart", "west"))
	m.apply(t, m.west, selection("sticky", "checkout", "app: cart, hash: {header: X-User}, routes: [{cluster: local}, {cluster: east}]"))
	instances := map[string]*sandbox.Sidecar{}
	for _, name := range []string{"one", "two"} {
		instances["west "+name] = m.sidecar(t, m.west, sandbox.SidecarOptions{App: app("cart"), Instance: name})
		instances["east "+name] = m.sidecar(t, m.east, sandbox.SidecarOptions{App: app("cart"), Instance: name})
	}
	callers := []*sandbox.Sidecar{m.app(t, m.west, "sticky", "checkout"), m.sidecar(t, m.west, sandbox.SidecarOptions{App: app("checkout"), Instance: "second"})}
	const users = 64 // so many that each instance has some
	// An instance that does not answer for a moment, on a busy machine, has its users elsewhere meanwhile.
	where := func(wanted int, lost string, before map[string]string) (at map[string]string) {
		t.Helper()
		meshtest.Eventually(t, meshtest.Patience, func() error {
			at = map[string]string{}
			used := map[string]bool{}
			for i := range 3 * users {
				user := fmt.Sprint("user-", i%users)
				header := untraced.Clone()
				header.Set("X-User", user)
				reply, err := callers[i/users%len(callers)].Invoke(meshtest.Within(t, meshtest.Attempt), "cart", "hello", http.Header(header))
				if err != nil {
					return err
				}
				if old, ok := at[user]; ok && old != reply.Instance {
					return fmt.Errorf("%s is at %s, and was at %s", user, reply.Instance, old)
				}
				at[user], used[reply.Instance] = reply.Instance, true
			}
			if len(used) != wanted || used[lost] {
				return fmt.Errorf("users are at %v, want %d instances without %q", used, wanted, lost)
			}
			for user, at := range at {
				if old := before[user]; before != nil && old != lost && at != old {
					return fmt.Errorf("%s moves from %s to %s, though %s was lost", user, old, at, lost)
				}
			}
			return nil
		})
		return at
	}
	// East comes to be ready after west, so that its share grows in steps; so does that of a cluster
	// which a caller lost for a second. No step takes as long as steady.
	const steady = 5 * time.Second
	before, since := where(4, "", nil), time.Now()
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if at := where(4, "", nil); !maps.Equal(at, before) {
			before, since = at, time.Now()
		}
		if past := time.Since(since); past < steady {
			return fmt.Errorf("users are where they were %s ago", past)
		}
		return nil
	})
	lost := before["user-0"]
	if err := instances[lost].Kill(); err != nil {
		t.Fatal(err)
	}
	where(3, lost, before)
	d, err := m.explain(t, m.west, "sticky/checkout", "cart")
	if err != nil || len(d.Notes) == 0 || d.Notes[0] != "calls with the same x-user go to the same instance" {
		t.Errorf("isthmus explain: %v, %v", d.Notes, err)
	}
}
