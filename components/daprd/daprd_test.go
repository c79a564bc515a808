package main

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/components/daprd/servicetest"
	"github.com/isthmus-mesh/isthmus/sandbox"
)

var (
	orders   = catalog.App{Namespace: "shop", ID: "orders"}
	checkout = catalog.App{Namespace: "shop", ID: "checkout"}
)

// mesh is one cluster: a resolver service, one sidecar that calls, and sidecars that
// are called.
type mesh struct {
	*sandbox.Sandbox
	t             *testing.T
	configuration string
}

func newMesh(t *testing.T) *mesh {
	t.Helper()
	if _, err := sandbox.Binary("daprd"); err != nil {
		if os.Getenv("ISTHMUS_REQUIRE_BINARIES") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
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

// leaving is for how long a sidecar that is stopped serves on. The two seconds that are the
// component's default are too few where the machine stands still for as long.
const leaving = 10 * time.Second

// instance starts a sidecar of orders with an app behind it.
func (m *mesh) instance(name string) (*sandbox.Daprd, *sandbox.App) {
	m.t.Helper()
	app, err := m.App(sandbox.AppOptions{Cluster: "west", App: orders, Instance: name})
	if err != nil {
		m.t.Fatal(err)
	}
	return m.daprd(sandbox.DaprdOptions{
		Name: name, App: orders, AppAddress: app.Address, Args: []string{"--dapr-block-shutdown-duration", leaving.String()},
	}), app
}

func (m *mesh) daprd(o sandbox.DaprdOptions) *sandbox.Daprd {
	m.t.Helper()
	o.Cluster, o.Configuration = "west", m.configuration
	d, err := m.Sandbox.Daprd(m.within(patience), o)
	if err != nil {
		m.t.Fatal(err)
	}
	return d
}

// patience is how long what should happen may take on a machine that is slow and busy.
const patience = 2 * time.Minute

func (m *mesh) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(m.t.Context(), d)
	m.t.Cleanup(cancel)
	return ctx
}

// closing is how daprd fails a call, now and then, that a second one beside it has spoiled:
// where a call ends with Unavailable, daprd closes the connection, which it shares, and then
// tries that call again, but none of the others that were about to use it. An instance that
// comes back at its address within gRPC's second of patience is where that can be. Nobody but
// daprd can help it, and a call that is made again goes through.
const closing = "the client connection is closing"

// steadily has calls made until the returned function is called. None may fail.
func (m *mesh) steadily(from *sandbox.Daprd) (stop func() (calls int64)) {
	var callers sync.WaitGroup
	var calls atomic.Int64
	ctx, cancel := context.WithCancel(m.t.Context())
	for range 4 {
		callers.Go(func() {
			for ctx.Err() == nil {
				_, err := from.Invoke(m.t.Context(), "orders", "list", nil)
				if err != nil && strings.Contains(err.Error(), closing) {
					m.t.Logf("after %d calls, and made again: %v", calls.Load(), err)
					_, err = from.Invoke(m.t.Context(), "orders", "list", nil)
				}
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

// until waits until the condition holds.
func (m *mesh) until(what string, holds func() bool) {
	m.t.Helper()
	for ctx := m.within(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if ctx.Err() != nil {
			m.t.Fatalf("after %s still not: %s", patience, what)
		}
	}
}

// callsStop tells whether an app is called no more.
func callsStop(app *sandbox.App) bool {
	before := app.Calls()
	time.Sleep(300 * time.Millisecond)
	return app.Calls() == before
}

func TestNoCallFailsWhenAnInstanceStopsOrReloads(t *testing.T) {
	m := newMesh(t)
	stays, staysApp := m.instance("stays")
	goes, goesApp := m.instance("goes")
	caller := m.daprd(sandbox.DaprdOptions{Name: "caller", App: checkout})
	m.until("both instances are called", func() bool {
		if _, err := caller.Invoke(t.Context(), "orders", "list", nil); err != nil {
			t.Log(err) // an instance may be found a moment before it takes calls
		}
		return staysApp.Calls() > 0 && goesApp.Calls() > 0
	})

	stop := m.steadily(caller)
	told := time.Now()
	if err := goes.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	m.until("the instance that stops is called no more", func() bool { return callsStop(goesApp) })
	<-goes.Done()
	if served := time.Since(told); served < leaving {
		t.Errorf("the sidecar ended after %s; want it to serve on for %s", served, leaving)
	}

	if err := goes.Restart(m.within(patience)); err != nil {
		t.Fatal(err)
	}
	before := goesApp.Calls()
	m.until("the instance that came back is called", func() bool { return goesApp.Calls() > before })

	if err := stays.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	m.until("the instance that reloads is called no more", func() bool { return callsStop(staysApp) })
	before = staysApp.Calls()
	m.until("the instance that has reloaded is called again", func() bool { return staysApp.Calls() > before })
	t.Logf("%d calls, none failed", stop())
}

// A daprd with Isthmus loaded is Dapr's for those who name another resolver.
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
	m.until("a call found an instance by multicast", func() bool {
		_, err := caller.Invoke(m.within(patience), "orders", "list", nil)
		if err != nil {
			t.Log(err)
		}
		return err == nil
	})
}
