package system

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// mDNS names a killed instance for a minute more, and takes a second or two to say that there
// is none. No call is to wait for either.
func TestWithoutAServiceADeadLocalInstanceIsLeft(t *testing.T) {
	m := sharedMesh(t)
	// mDNS knows no namespaces, and reaches whoever else runs on this network.
	orders := catalog.App{Namespace: "lost", ID: fmt.Sprintf("lost-orders-%d", os.Getpid())}
	m.apply(t, m.east, export("lost", orders.ID, "west"), export("lost", "invoices", "west"))
	m.app(t, m.east, "lost", orders.ID)
	m.app(t, m.east, "lost", "invoices")
	dir := t.TempDir()
	write(t, dir, "east.yaml", meshtest.Cluster("east", m.east.Gateway))
	write(t, dir, "checkout.yaml", selection("lost", "checkout", "app: "+orders.ID, "app: invoices"))
	local := m.sidecar(t, m.west, sandbox.SidecarOptions{App: orders, Instance: "one", Component: alone(dir)})
	checkout := m.sidecar(t, m.west, sandbox.SidecarOptions{App: catalog.App{Namespace: "lost", ID: "checkout"}, Component: alone(dir)})
	answers(t, checkout, orders.ID, "west")
	answers(t, checkout, "invoices", "east")

	t.Run("no call waits for what is not here", func(t *testing.T) {
		const calls = 20
		start := time.Now()
		for range calls {
			if _, err := checkout.Invoke(meshtest.Within(t, meshtest.Patience), "invoices", "hello", untraced); err != nil {
				t.Error(err)
			}
		}
		each := time.Since(start) / calls
		t.Logf("%s a call", each.Round(10*time.Microsecond))
		if each > 500*time.Millisecond {
			t.Errorf("a call takes %s; want none to wait for mDNS, which takes 1 s to find nothing", each)
		}
	})

	l := startLoad(t, "the local instance is killed", calling(checkout, orders.ID))
	l.onlyFrom("west one")
	l.anew()
	killed := time.Now()
	if err := local.Kill(); err != nil {
		t.Fatal(err)
	}
	l.answersFrom("east")
	first, lost := l.firstAfter(killed), l.failures()
	t.Logf("after the kill %d calls failed; the first call that was answered began after %s", lost, first.Round(time.Millisecond))
	if first > 20*time.Second {
		t.Errorf("the first call that was answered began %s after the kill; mDNS names the instance for 60 s, and nobody is to wait for that", first)
	}
	if err := local.Restart(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
	l.onlyFrom("west one")
	l.noneFailedSince("east")
}
