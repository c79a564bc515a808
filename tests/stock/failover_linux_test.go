package stock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// TestFailover kills the last instance of an app here, under steady calls, and says what
// callers see until those go to the other cluster; then it brings the instance back.
func TestFailover(t *testing.T) {
	for _, way := range []struct {
		name     string
		plan     func(t *testing.T) plan
		callee   func(c *cluster) resolution
		caller   func(c *cluster) resolution
		register bool // sidecars do so themselves
	}{
		{"nameformat", func(*testing.T) plan { return plan{} }, anywhere(nameFormat), anywhere(nameFormat), false},
		{"kubernetes", func(*testing.T) plan { return ofKubernetes("net-1") }, anywhere(services), anywhere(services), false},
		{
			"hashicorp.consul", withConsul, func(c *cluster) resolution { return c.throughConsul("orders") },
			func(c *cluster) resolution { return c.throughConsul("checkout") }, true,
		},
	} {
		t.Run(way.name, func(t *testing.T) {
			l := newLab(t, way.plan(t))
			if way.name == "kubernetes" {
				l.share(t)
			}
			l.east.apply(t, export("orders", "west"))
			l.east.known(t, "orders", nameFormat())
			l.west.apply(t, selection("checkout", "app: orders"))
			start := l.west.known
			if way.register {
				start = l.west.pod
			}
			here := start(t, "orders", way.callee(l.west))
			checkout := start(t, "checkout", way.caller(l.west))
			checkout.reaches(t, "orders", l.west)
			failsOver(t, l, here, checkout)
		})
	}
}

// The same with Isthmus in the sidecars, to compare.
func TestFailoverOfTheComponent(t *testing.T) {
	programstest.Need(t, "daprd")
	l := newLab(t, plan{})
	l.east.apply(t, export("orders", "west"))
	l.west.apply(t, selection("checkout", "app: orders"))
	l.east.withIsthmus(t, "orders")
	here, checkout := l.west.withIsthmus(t, "orders"), l.west.withIsthmus(t, "checkout")
	checkout.reaches(t, "orders", l.west)
	failsOver(t, l, here, checkout)
}

// withIsthmus is a sidecar that has the component, at its cluster's loopback.
func (c *cluster) withIsthmus(t *testing.T, id string) *pod {
	t.Helper()
	s, err := c.Sidecar(meshtest.Within(t, meshtest.Patience), sandbox.SidecarOptions{App: catalog.App{Namespace: namespace, ID: id}})
	if err != nil {
		t.Fatal(err)
	}
	return &pod{Daprd: s.Daprd, in: c, behind: s.Behind, place: c.place}
}

func anywhere(r func() resolution) func(*cluster) resolution {
	return func(*cluster) resolution { return r() }
}

// failsOver does so for one way.
func failsOver(t *testing.T, l *lab, here, checkout *pod) {
	t.Helper()
	load := checkout.steadily(t, "orders")
	load.answersFrom(t, l.west)
	killed := time.Now()
	if err := here.Kill(); err != nil {
		t.Fatal(err)
	}
	load.answersFrom(t, l.east)
	over := time.Since(killed)
	if err := here.Restart(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
	calls, failed, longest := load.stop()
	if err := load.first.Load(); err != nil {
		t.Logf("the first that failed: %v", *err)
	}
	t.Logf("calls go to east %s after the last instance in west was killed; of %d calls of %d callers %d failed; the longest time without an answer was %s",
		over.Round(time.Millisecond), calls, callers, failed, longest.Round(time.Millisecond))
	// A connection stays where it is, and new ones come back in steps.
	meshtest.Eventually(t, meshtest.Patience, func() error {
		checkout.restart(t)
		reply, err := checkout.call(meshtest.Within(t, meshtest.Attempt), "orders")
		if err == nil && reply.Cluster != l.west.name {
			err = fmt.Errorf("a new connection leads to %s, want %s", reply.Cluster, l.west.name)
		}
		return err
	})
}

// callers is how many call at the same time, each again 10 ms after its last call.
const callers = 4

// load is steady calls of one app through a sidecar.
type load struct {
	calls, failed atomic.Int64
	longest       atomic.Int64 // ns between two answers to one caller
	from          atomic.Pointer[string]
	began         sync.Map              // the time of the first answer, by cluster
	first         atomic.Pointer[error] // that a call failed with
	stop          func() (calls, failed int64, longest time.Duration)
}

func (p *pod) steadily(t *testing.T, id string) *load {
	l := &load{}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for range callers {
		running.Go(func() {
			for last := time.Now(); ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
				l.calls.Add(1)
				reply, err := p.call(t.Context(), id)
				if err != nil {
					l.failed.Add(1)
					l.first.CompareAndSwap(nil, &err)
					continue
				}
				l.began.LoadOrStore(reply.Cluster, time.Now())
				l.from.Store(&reply.Cluster)
				for silence := int64(time.Since(last)); ; {
					if was := l.longest.Load(); was >= silence || l.longest.CompareAndSwap(was, silence) {
						break
					}
				}
				last = time.Now()
			}
		})
	}
	stop := sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(stop)
	l.stop = func() (calls, failed int64, longest time.Duration) {
		stop()
		return l.calls.Load(), l.failed.Load(), time.Duration(l.longest.Load())
	}
	return l
}

// answersFrom waits until the last answer came from a cluster.
func (l *load) answersFrom(t *testing.T, c *cluster) {
	t.Helper()
	l.from.Store(nil)
	meshtest.Eventually(t, meshtest.Patience, func() error {
		from := l.from.Load()
		if from == nil || *from != c.name {
			return fmt.Errorf("no call of %d is answered from %s; %d failed", l.calls.Load(), c.name, l.failed.Load())
		}
		return nil
	})
}
