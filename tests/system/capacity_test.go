package system

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// An app has thirty instances in the caller's cluster, of which none is ready, and then one. It takes
// what one carries, and the other cluster the rest.
func TestOneInstanceOfThirtyTakesWhatItCarries(t *testing.T) {
	t.Parallel()
	m := ownMesh(t, meshOptions{})
	m.apply(t, m.east, meshtest.Export("shop", "orders", "west"))
	objects := []string{meshtest.Selection("shop", "checkout", "app: orders, routes: [{cluster: local, minReady: 50%}, {cluster: east, priority: 1}]")}
	for i := range 29 {
		port, err := sandbox.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, fmt.Sprintf(`apiVersion: isthmus.dev/v1alpha1
kind: AppInstance
metadata: {namespace: shop, name: orders-%d}
spec: {app: orders, address: "%s", check: {tcp: {}}}
`, i, net.JoinHostPort("127.0.0.1", strconv.Itoa(port))))
	}
	m.apply(t, m.west, objects...)
	m.sidecar(t, m.east, sandbox.SidecarOptions{App: catalog.App{Namespace: "shop", ID: "orders"}})
	checkout := m.app(t, m.west, "shop", "checkout")
	answers(t, checkout, "orders", "east")

	var mu sync.Mutex
	took := map[string][]time.Duration{} // by who answered
	plain := calling(checkout, "orders")
	l := startLoad(t, "one instance of thirty comes", func(ctx context.Context) (string, error) {
		began := time.Now()
		by, err := plain(ctx)
		mu.Lock()
		defer mu.Unlock()
		took[by] = append(took[by], time.Since(began))
		return by, err
	})
	l.answersFrom("east")
	m.sidecar(t, m.west, sandbox.SidecarOptions{App: catalog.App{Namespace: "shop", ID: "orders"}, AtOnce: 1})
	meshtest.Eventually(t, meshtest.Patience, func() error {
		d, err := m.explain(t, m.west, "shop/checkout", "orders")
		if err != nil {
			return err
		}
		if r := d.Routes[0]; r.Ready != 1 || r.Ramp != 0 || !strings.Contains(r.Reason, "carries 7 % of its share, since minReady is 50%") {
			return fmt.Errorf("the first route is %+v", r)
		}
		return nil
	})
	// Calls that take much longer than before, as on a busy machine, make it less for a while.
	meshtest.Eventually(t, meshtest.Patience, func() error {
		before, beforeEast := l.answeredBy("west"), l.answeredBy("east")
		l.answersFrom("west")
		near, far := float64(l.answeredBy("west")-before), float64(l.answeredBy("east")-beforeEast)
		if share := near / (near + far); share < 1./15-0.02 || share > 1./15+0.02 {
			return fmt.Errorf("west has %.1f %% of the calls, want a fifteenth", 100*share)
		}
		return nil
	})
	l.noneFailed()
	for by, all := range took {
		slices.Sort(all)
		t.Logf("%s: %d calls, p50 %s, p99 %s", by, len(all), all[len(all)/2].Round(time.Millisecond), all[len(all)*99/100].Round(time.Millisecond))
	}
}
