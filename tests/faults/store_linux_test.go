package faults

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// The selection of cart as it is changed while the services can't see it: orders from
// north only.
const (
	cartKey     = "isthmus/v1alpha1/AppEndpoints/" + namespace + "/cart"
	cartOfNorth = `{"apiVersion":"isthmus.dev/v1alpha1","kind":"AppEndpoints","metadata":{"namespace":"` + namespace + `","name":"cart"},
"spec":{"endpoints":[{"app":"orders","routes":[{"cluster":"north"}]},{"app":"stock","routes":[{"cluster":"local"}]}]}}`
)

// West's etcd is killed, something is written to it where the services don't find it, and it
// starts again where they do. What counts as its return is the first answer to a question
// about its health.
func storeDown(t *testing.T, m *mesh) {
	cart := callers("orders", m.cart)
	x := m.newTrial(t, "store killed, and back with a change", deadline, append(callers("orders", m.checkout, m.billing), cart...), m.toStock())
	x.strike(m.west.etcd.Kill)
	time.Sleep(3 * time.Second)
	writeElsewhere(t, m.west, cartKey, cartOfNorth)
	if err := m.west.etcd.Start(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
	returned := time.Now()
	var seen time.Duration
	meshtest.Eventually(t, meshtest.Patience, func() error {
		for _, made := range of(cart...) {
			if made.err == nil && strings.HasPrefix(made.by, "north ") && made.ended.After(returned) {
				seen = made.ended.Sub(returned)
				return nil
			}
		}
		return fmt.Errorf("calls of cart do not follow the change; the store is back for %s", time.Since(returned))
	})
	f := x.done("lookups go on; changes seen in 1 s", fmt.Sprintf("a call followed the change %s after the store was back", round(seen)))
	x.want(f.failed == 0, "%d calls failed", f.failed)
	x.want(seen < allowed(time.Second)+f.noise(),
		"a call followed the change %s after the store was back; want less than %s and what the machine did, %s", round(seen), allowed(time.Second), round(f.noise()))
	m.west.apply(t, usual("cart"))
}

// writeElsewhere writes to a cluster's etcd, which was killed, at another address, and
// kills it there.
func writeElsewhere(t *testing.T, c *cluster, key, value string) {
	t.Helper()
	binary := programstest.Path(t, "etcdctl")
	elsewhere, err := c.etcd.Elsewhere(meshtest.Within(t, meshtest.Patience))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(meshtest.Within(t, meshtest.Patience), binary, "--endpoints="+elsewhere.Addr(), "put", key, value)
	if _, err := c.output(cmd); err != nil {
		t.Fatal(err)
	}
	if err := elsewhere.Kill(); err != nil {
		t.Fatal(err)
	}
}
