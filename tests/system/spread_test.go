package system

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// Calls of one caller spread over the instances of an app in another cluster, whose
// gateway passes connections on and sees no calls. An instance that dies takes nothing
// away from the others.
func TestCallsOfOneCallerSpreadOverRemoteInstances(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	m.apply(t, m.east, export("spread", "orders", "west"))
	m.apply(t, m.west, selection("spread", "checkout", "app: orders, routes: [{cluster: east}]"))
	instances := map[string]*sandbox.Sidecar{}
	for _, name := range []string{"one", "two", "three", "four", "five"} {
		instances["east "+name] = m.sidecar(t, m.east, sandbox.SidecarOptions{App: catalog.App{Namespace: "spread", ID: "orders"}, Instance: name})
	}
	checkout := m.app(t, m.west, "spread", "checkout")
	m.hasReady(t, m.west, "spread/checkout", "orders", 5)
	allAnswer(t, checkout, 5)

	spread(t, checkout, 2000, 5)

	before := map[string][]string{}
	for name, s := range instances {
		before[name] = connections(t, s)
	}
	l := startLoad(t, "one of five remote instances is killed", calling(checkout, "orders"))
	l.answersFrom("east three")
	if err := instances["east three"].Kill(); err != nil {
		t.Fatal(err)
	}
	m.isLedTo(t, m.west, checkout, "spread/checkout", "orders", 4)
	l.answersFrom("east one")
	l.end()
	l.fewFailed()
	delete(instances, "east three")
	for name, s := range instances {
		now := connections(t, s)
		for _, c := range before[name] {
			if !slices.Contains(now, c) {
				t.Errorf("%s has lost the connection from %s, which had nothing to do with the instance that was killed", name, c)
			}
		}
		t.Logf("%s: %d connections before, %d after", name, len(before[name]), len(now))
	}
	spread(t, checkout, 2000, 4)
}

// An instance that crashed once has its share of the calls of those who called all along:
// the name of its shard led elsewhere meanwhile, and connections outlast that.
func TestAnInstanceThatComesBackHasItsShare(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	m.apply(t, m.east, export("again", "orders", "west"))
	m.apply(t, m.west, selection("again", "checkout", "app: orders, routes: [{cluster: east}]"))
	start := func(name string) *sandbox.Sidecar {
		return m.sidecar(t, m.east, sandbox.SidecarOptions{App: catalog.App{Namespace: "again", ID: "orders"}, Instance: name})
	}
	instances := map[string]*sandbox.Sidecar{}
	for _, name := range []string{"one", "two", "three", "four", "five"} {
		instances[name] = start(name)
	}
	checkout := m.app(t, m.west, "again", "checkout")
	m.hasReady(t, m.west, "again/checkout", "orders", 5)
	allAnswer(t, checkout, 5)

	for _, name := range []string{"two", "five"} {
		if err := instances[name].Kill(); err != nil {
			t.Fatal(err)
		}
		m.isLedTo(t, m.west, checkout, "again/checkout", "orders", 4)
		spread(t, checkout, 400, 4) // so that the connections lead to those that are left
		l := startLoad(t, name+" of five remote instances comes back", calling(checkout, "orders"))
		instances[name] = start(name)
		l.answersFrom("east " + name)
		l.end()
		if n := l.failures(); n > 0 {
			t.Errorf("%d calls failed: %v", n, l.failed[0])
		}
		spread(t, checkout, 1000, 5)
	}
}

// hasReady waits until a cluster's service knows so many ready instances on a caller's
// first route to an app.
func (m *mesh) hasReady(t *testing.T, c *sandbox.Cluster, caller, app string, instances int) {
	t.Helper()
	meshtest.Eventually(t, meshtest.Patience, func() error {
		d, err := m.explain(t, c, caller, app)
		if err == nil && (len(d.Routes) == 0 || d.Routes[0].Ready != instances) {
			err = fmt.Errorf("%s is led to %+v for %s, want %d instances", caller, d, app, instances)
		}
		return err
	})
}

// isLedTo is hasReady for the caller itself, which is told a little later: its lookups go by
// the view that its service has by then.
func (m *mesh) isLedTo(t *testing.T, c *sandbox.Cluster, from *sandbox.Sidecar, caller, app string, instances int) {
	t.Helper()
	m.hasReady(t, c, caller, app, instances)
	d, err := m.explain(t, c, caller, app)
	if err != nil {
		t.Fatal(err)
	}
	trace, traceparent := newTrace(true)
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if _, err := from.Invoke(meshtest.Within(t, meshtest.Attempt), app, "hello", http.Header{"Traceparent": {traceparent}}); err != nil {
			return err
		}
		newest := uint64(0)
		for _, s := range m.lookupSpans(trace, caller) { // those that have been sent
			newest = max(newest, s.revision)
		}
		if newest < d.Revision {
			return fmt.Errorf("%s looks %s up in revision %d, and its service has %d", caller, app, newest, d.Revision)
		}
		return nil
	})
}

// allAnswer calls until so many instances have answered: the caller is connected to all.
func allAnswer(t *testing.T, from *sandbox.Sidecar, instances int) {
	t.Helper()
	by := map[string]bool{}
	meshtest.Eventually(t, meshtest.Patience, func() error {
		reply, err := from.Invoke(meshtest.Within(t, callTimeout), "orders", "hello", untraced)
		if err != nil {
			return err
		}
		if by[reply.Instance] = true; len(by) < instances {
			return fmt.Errorf("%d of %d instances have answered: %v", len(by), instances, slices.Sorted(maps.Keys(by)))
		}
		return nil
	})
}

// spread makes calls until they spread: no instance has over 1.3 times its share. One that was slow a
// moment ago, on a busy machine, has few. None fails.
func spread(t *testing.T, from *sandbox.Sidecar, calls, instances int) {
	t.Helper()
	meshtest.Eventually(t, meshtest.Patience/4, func() error { return spreads(t, from, calls, instances) })
}

func spreads(t *testing.T, from *sandbox.Sidecar, calls, instances int) error {
	t.Helper()
	var (
		mu      sync.Mutex
		by      = map[string]int{}
		callers sync.WaitGroup
	)
	for range steadyCallers {
		callers.Go(func() {
			for range calls / steadyCallers {
				ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
				reply, err := from.Invoke(ctx, "orders", "hello", untraced)
				cancel()
				if err != nil {
					t.Errorf("call: %v", err)
					return
				}
				mu.Lock()
				by[reply.Instance]++
				mu.Unlock()
			}
		})
	}
	if callers.Wait(); t.Failed() {
		t.FailNow()
	}
	text := ""
	for _, name := range slices.Sorted(maps.Keys(by)) {
		text += fmt.Sprintf(", %d by %s", by[name], name)
		if share := float64(calls) / float64(instances); float64(by[name]) > 1.3*share {
			return fmt.Errorf("%s answered %d of %d calls, over 1.3 times its share of %g", name, by[name], calls, share)
		}
	}
	t.Logf("%d calls to %d instances%s", calls, instances, text)
	if len(by) != instances {
		return fmt.Errorf("%d instances answered, want %d", len(by), instances)
	}
	return nil
}

// connections lists who is connected to a sidecar's internal server, by port: what the
// kernel says of it. On systems without /proc there is nothing to compare.
func connections(t *testing.T, s *sandbox.Sidecar) (from []string) {
	t.Helper()
	_, port, err := net.SplitHostPort(s.Internal)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	local := fmt.Sprintf(":%04X", n)
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			const established = "01"
			if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[1], local) && f[3] == established {
				from = append(from, f[2])
			}
		}
	}
	return from
}
