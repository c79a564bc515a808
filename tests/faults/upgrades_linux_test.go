package faults

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/stalls"
)

// releases are trees with programs of releases in bin. "make test-upgrades" names them; nothing else does.
var releases = flag.String("releases", "", "trees of releases, built, with commas between; TestUpgrades tries today's programs with each")

// programs are those of a release; where one has no path it is today's, or the one that runs.
type programs struct{ isthmus, daprd string }

// TestUpgrades has the parts of a release before meet today's, under calls: no call fails, and a change
// of an export goes through.
func TestUpgrades(t *testing.T) {
	if *releases == "" {
		t.Skip("runs by hand: make test-upgrades")
	}
	now := programs{}
	for _, err := range []error{find("isthmus", &now.isthmus), find("daprd", &now.daprd)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tree := range strings.Split(*releases, ",") {
		before := programs{filepath.Join(tree, "bin/isthmus"), filepath.Join(tree, "bin/daprd")}
		of := filepath.Base(tree)
		for _, pair := range []struct {
			name       string
			west, east plan
		}{
			{"sidecars of " + of + " and services of today", plan{sidecar: before.daprd}, plan{sidecar: before.daprd}},
			{"sidecars of today and services of " + of, plan{service: before.isthmus}, plan{service: before.isthmus}},
			{"gateways of " + of + " and services of today", plan{replicas: 2, gateway: before.isthmus}, plan{replicas: 2, gateway: before.isthmus}},
			{"gateways of today and services of " + of, plan{replicas: 2, service: before.isthmus, gateway: now.isthmus}, plan{replicas: 2, service: before.isthmus, gateway: now.isthmus}},
			{"the callers' cluster of " + of, plan{service: before.isthmus, sidecar: before.daprd}, plan{}},
			{"the callees' cluster of " + of, plan{}, plan{service: before.isthmus, sidecar: before.daprd}},
		} {
			try(t, pair.name, pair.west, pair.east)
		}
		old := plan{sidecar: before.daprd}
		try(t, "sidecars of "+of+" then of today and back", old, old, programs{daprd: now.daprd}, programs{daprd: before.daprd})
		old.service = before.isthmus
		try(t, "all of "+of+" then of today and back", old, old, now, before)
		for _, store := range []string{"embedded", "file", "etcd", "consul", "redis", "postgres", "kubernetes"} {
			both := plan{service: before.isthmus, store: store}
			if stores[store].shared {
				both.replicas = 2
			}
			name := fmt.Sprintf("store %s of %s then of today and back", store, of)
			try(t, name, both, plan{service: before.isthmus}, programs{isthmus: now.isthmus}, programs{isthmus: before.isthmus})
		}
	}
}

// try has them meet, some times at most if the machine stands still each time.
func try(t *testing.T, name string, west, east plan, then ...programs) {
	again := true
	for n := 0; again && n < tries; n++ {
		again = false
		t.Run(name, func(t *testing.T) { again = meet(t, name, west, east, then) })
	}
	if again && !t.Failed() {
		t.Errorf("%s: the machine stood still each of %d times", name, tries)
	}
}

func find(name string, path *string) (err error) {
	*path, err = sandbox.Binary(name)
	return err
}

// meets is how long programs of two releases have calls before anything changes.
const meets = 5 * time.Second

// meet has apps of west and east call each other. Services are then replaced by those of other programs, one
// after the other, and then two sidecars: a caller's and a callee's. With each program the store has the same
// objects, and a change goes through.
//
// What is wrong counts unless the machine stood still: then meet says that it is to be tried again.
func meet(t *testing.T, name string, west, east plan, then []programs) (again bool) {
	watch, begun := stalls.Begin(t), time.Now()
	west.name, east.name = "west", "east"
	l := newLab(t, west, east)
	l.west.apply(t, selection("checkout", "orders: east", "stock: local"), selection("cart", "orders: east"), export("stock"))
	l.east.apply(t, exportedTo("checkout"), selection("orders", "stock: west"))
	l.run(t, has{l.west, "checkout", 1}, has{l.west, "cart", 1}, has{l.west, "stock", 1}, has{l.east, "orders", 2})
	checkout, cart, orders := l.west.sidecars["checkout 1"], l.west.sidecars["cart 1"], l.east.sidecars["orders 1"]
	for s, to := range map[*sandbox.Sidecar][2]string{checkout: {"orders", "east"}, orders: {"stock", "west"}} {
		meshtest.Eventually(t, meshtest.Patience, func() error { return answeredFrom(t, s, to[0], to[1]) })
	}
	time.Sleep(time.Until(l.ramps))
	x := l.newTrial(t, name, 2*deadline, append(callers("orders", checkout), callers("stock", orders)...), callers("stock", checkout))
	x.strike(func() error { return nil })
	time.Sleep(meets)
	slowest := l.exchange(t, cart)
	ends := 0 // of gateways and callees
	for _, next := range then {
		was := l.objects(t)
		for _, c := range l.clusters() {
			for _, s := range c.services {
				if next.isthmus == "" {
					continue
				}
				ends++
				s.Use(next.isthmus)
				if err := c.renew(t, s); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, s := range []*sandbox.Sidecar{cart, l.east.sidecars["orders 2"]} {
			if next.daprd == "" {
				continue
			}
			ends++
			s.Use(next.daprd)
			if err := errors.Join(s.Stop(meshtest.Within(t, meshtest.Patience)), s.Restart(meshtest.Within(t, meshtest.Patience))); err != nil {
				t.Fatal(err)
			}
		}
		if is := l.objects(t); is != was {
			t.Errorf("%s: the objects were\n%s\nand are\n%s", name, was, is)
		}
		slowest = max(slowest, l.exchange(t, cart))
	}
	f := x.done("0 by HTTP; by gRPC those that gateways cut off when they end", fmt.Sprintf("a change was in force after %s at most", round(slowest)))
	x.drained(ends)
	x.want(f.calls > 0 && f.failed <= f.calls/100, "%d of %d calls failed", f.failed, f.calls)
	if still := max(f.still, watch.Longest(begun)); len(x.wrongs) > 0 && still > decisive/2 {
		t.Logf("once more, since the machine stood still for %s: %s", round(still), strings.Join(x.wrongs, "; "))
		x.void = true
		return true
	}
	for _, wrong := range x.wrongs {
		t.Error(wrong)
	}
	return false
}

// renew starts a service again: beside itself if it is its cluster's only one, as an upgrade does.
func (c *cluster) renew(t *testing.T, s *sandbox.Service) error {
	if len(c.services) == 1 {
		return s.Replace(meshtest.Within(t, meshtest.Patience))
	}
	return errors.Join(s.Stop(meshtest.Within(t, meshtest.Patience)), s.Restart(meshtest.Within(t, meshtest.Patience)))
}

// exportedTo lets some apps of west call orders.
func exportedTo(apps ...string) string {
	text := strings.Split(export("orders"), "  - ")[0]
	for _, id := range apps {
		text += fmt.Sprintf("  - {cluster: west, namespace: %s, app: %s}\n", namespace, id)
	}
	return text
}

// exchange exports orders to cart, too, and takes that back, and says how long either took at most until cart's calls followed.
func (l *lab) exchange(t *testing.T, cart *sandbox.Sidecar) (slowest time.Duration) {
	t.Helper()
	for _, change := range []struct {
		apps     []string
		answered bool
	}{{[]string{"checkout", "cart"}, true}, {[]string{"checkout"}, false}} {
		l.east.apply(t, exportedTo(change.apps...))
		acked := time.Now()
		meshtest.Eventually(t, meshtest.Patience, func() error {
			if err := answeredFrom(t, cart, "orders", "east"); (err == nil) != change.answered {
				return fmt.Errorf("exported to %v for %s; a call of cart: %v", change.apps, time.Since(acked), err)
			}
			return nil
		})
		slowest = max(slowest, time.Since(acked))
	}
	return slowest
}

// objects are those of all stores.
func (l *lab) objects(t *testing.T) string {
	t.Helper()
	var all []string
	for _, c := range l.clusters() {
		for _, kind := range []string{"AppEndpoints", "AppExport", "Cluster"} {
			text, err := c.isthmus(meshtest.Within(t, meshtest.Patience), "", "get", kind, "-o", "yaml")
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, text)
		}
	}
	return strings.Join(all, "")
}
