package main

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/components/daprd/servicetest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

var (
	orders   = catalog.App{Namespace: "shop", ID: "orders"}
	checkout = catalog.App{Namespace: "shop", ID: "checkout"}
)

// mesh is one cluster: a resolver service, a sidecar that calls, and sidecars that it calls.
type mesh struct {
	*sandbox.Sandbox
	t             *testing.T
	configuration string
}

func newMesh(t *testing.T) *mesh {
	t.Helper()
	programstest.Need(t, "daprd")
	s, err := sandbox.New(t.TempDir(), slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	m := &mesh{Sandbox: s, t: t, configuration: `apiVersion: dapr.io/v1alpha1
kind: Configuration
metadata: {name: isthmus}
spec:
  nameResolution:
    component: isthmus
    version: v1
    configuration:
      resolver: "` + servicetest.Start(t) + `"
      cluster: west
      identity: {insecure: true}
      resolveTimeout: 5s
`}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// blockShutdown is how long a stopping sidecar continues to serve. The component's default of two
// seconds is too short for a machine that may pause for as long.
const blockShutdown = 10 * time.Second

// instance starts a sidecar of orders with an app behind it.
func (m *mesh) instance(name string) (*sandbox.Daprd, *sandbox.App) {
	m.t.Helper()
	app, err := m.App(sandbox.AppOptions{Cluster: "west", App: orders, Instance: name})
	if err != nil {
		m.t.Fatal(err)
	}
	return m.daprd(sandbox.DaprdOptions{
		Name: name, App: orders, AppAddress: app.Address, Args: []string{"--dapr-block-shutdown-duration", blockShutdown.String()},
	}), app
}

func (m *mesh) daprd(o sandbox.DaprdOptions) *sandbox.Daprd {
	m.t.Helper()
	o.Cluster, o.Configuration = "west", m.configuration
	d, err := m.Sandbox.Daprd(m.within(waitLimit), o)
	if err != nil {
		m.t.Fatal(err)
	}
	return d
}

// waitLimit is how long tests wait on a slow and busy machine.
const waitLimit = 2 * time.Minute

func (m *mesh) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(m.t.Context(), d)
	m.t.Cleanup(cancel)
	return ctx
}

// callSteadily makes calls until the returned function is called. None may fail.
func (m *mesh) callSteadily(from *sandbox.Daprd) (stop func() (calls int64)) {
	var callers sync.WaitGroup
	var calls atomic.Int64
	ctx, cancel := context.WithCancel(m.t.Context())
	for range 4 {
		callers.Go(func() {
			for ctx.Err() == nil {
				_, err := from.Invoke(m.t.Context(), "orders", "list", nil)
				if err != nil {
					m.t.Errorf("after %d calls: %v", calls.Load(), err)
					return
				}
				calls.Add(1)
				time.Sleep(time.Millisecond)
			}
		})
	}
	return func() int64 { cancel(); callers.Wait(); return calls.Load() }
}

// waitUntil waits until the condition holds.
func (m *mesh) waitUntil(what string, holds func() bool) {
	m.t.Helper()
	for ctx := m.within(waitLimit); !holds(); time.Sleep(10 * time.Millisecond) {
		if ctx.Err() != nil {
			m.t.Fatalf("not within %s: %s", waitLimit, what)
		}
	}
}

// callsStop reports whether calls have stopped.
func callsStop(calls func() int64) bool {
	before := calls()
	time.Sleep(300 * time.Millisecond)
	return calls() == before
}

func TestNoCallFailsWhenAnInstanceStopsOrReloads(t *testing.T) {
	m := newMesh(t)
	stays, staysApp := m.instance("stays")
	goes, goesApp := m.instance("goes")
	caller := m.daprd(sandbox.DaprdOptions{Name: "caller", App: checkout})
	m.waitUntil("both instances are called", func() bool {
		if _, err := caller.Invoke(t.Context(), "orders", "list", nil); err != nil {
			t.Log(err) // a lookup may return an instance a moment before it takes calls
		}
		return staysApp.Calls() > 0 && goesApp.Calls() > 0
	})

	stop := m.callSteadily(caller)
	told := time.Now()
	if err := goes.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	m.waitUntil("the instance that stops is called no more", func() bool { return callsStop(goesApp.Calls) })
	<-goes.Done()
	if served := time.Since(told); served < blockShutdown {
		t.Errorf("the sidecar ended after %s; want it to serve on for %s", served, blockShutdown)
	}

	if err := goes.Restart(m.within(waitLimit)); err != nil {
		t.Fatal(err)
	}
	before := goesApp.Calls()
	m.waitUntil("the instance that came back is called", func() bool { return goesApp.Calls() > before })

	if err := stays.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	m.waitUntil("the instance that reloads is called no more", func() bool { return callsStop(staysApp.Calls) })
	before = staysApp.Calls()
	m.waitUntil("the instance that has reloaded is called again", func() bool { return staysApp.Calls() > before })
	t.Logf("%d calls, none failed", stop())
}

// Without the component in its Configuration, daprd with Isthmus works as Dapr's own.
func TestOtherResolversAreDaprsOwn(t *testing.T) {
	m := newMesh(t)
	m.configuration = `apiVersion: dapr.io/v1alpha1
kind: Configuration
metadata: {name: stock}
spec:
  nameResolution: {component: mdns, version: v1}
`
	m.instance("orders")
	caller := m.daprd(sandbox.DaprdOptions{Name: "caller", App: checkout})
	m.waitUntil("a call found an instance by multicast", func() bool {
		_, err := caller.Invoke(m.within(waitLimit), "orders", "list", nil)
		if err != nil {
			t.Log(err)
		}
		return err == nil
	})
}
