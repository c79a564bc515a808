package main

import (
	"encoding/json"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// restartableApp is an app that tests stop and start, and whose health they set.
type restartableApp struct {
	t       *testing.T
	name    string
	address string
	healthz atomic.Int64 // status of its health endpoint
	calls   atomic.Int64
	server  *http.Server
}

func (m *mesh) startRestartable(name string, args ...string) *restartableApp {
	m.t.Helper()
	a := &restartableApp{t: m.t, name: name, address: "127.0.0.1:0"}
	a.healthz.Store(http.StatusNoContent)
	a.start()
	m.t.Cleanup(a.stop)
	m.daprd(sandbox.DaprdOptions{Name: name, App: orders, AppAddress: a.address, Args: args})
	return a
}

func (a *restartableApp) start() {
	a.t.Helper()
	lis, err := net.Listen("tcp", a.address)
	if err != nil {
		a.t.Fatal(err)
	}
	a.address = lis.Addr().String()
	a.server = &http.Server{Handler: a}
	go func() { _ = a.server.Serve(lis) }()
}

func (a *restartableApp) stop() { _ = a.server.Close() }

func (a *restartableApp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/healthz":
		w.WriteHeader(int(a.healthz.Load()))
	case "/list":
		a.calls.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(sandbox.Reply{Instance: a.name})
	default:
		http.NotFound(w, r)
	}
}

// callResults counts calls and failures.
type callResults struct {
	mu              sync.Mutex
	calls, failed   int
	lastFailure     time.Time // when that call began
	succeededInARow int       // since then
}

func (l *callResults) add(begun time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	l.succeededInARow++
	if err != nil {
		l.failed++
		l.succeededInARow = 0
		if begun.After(l.lastFailure) {
			l.lastFailure = begun
		}
	}
}

func (l *callResults) successes() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.succeededInARow
}

func TestCallsLeaveAnInstanceWhoseAppCantTakeThem(t *testing.T) {
	for what, test := range map[string]struct {
		args      []string
		ill, well func(*restartableApp)
	}{
		"the app dies": {nil, (*restartableApp).stop, (*restartableApp).start},
		"its health check fails": {
			[]string{"--enable-app-health-check", "--app-health-probe-interval", "1", "--app-health-threshold", "2"},
			func(a *restartableApp) { a.healthz.Store(http.StatusInternalServerError) },
			func(a *restartableApp) { a.healthz.Store(http.StatusNoContent) },
		},
	} {
		t.Run(what, func(t *testing.T) {
			m := newMesh(t)
			stays, ails := m.startRestartable("stays", test.args...), m.startRestartable("ails", test.args...)
			caller := m.daprd(sandbox.DaprdOptions{Name: "caller", App: checkout})
			m.waitUntil("both instances are called", func() bool {
				if _, err := caller.Invoke(t.Context(), "orders", "list", nil); err != nil {
					t.Log(err)
				}
				return stays.calls.Load() > 0 && ails.calls.Load() > 0
			})
			var l callResults
			var callers sync.WaitGroup
			defer callers.Wait()
			stop := make(chan struct{})
			defer close(stop)
			callers.Go(func() {
				for tick := time.NewTicker(10 * time.Millisecond); ; {
					select {
					case <-stop:
						return
					case <-tick.C:
					}
					callers.Go(func() {
						begun := time.Now()
						_, err := caller.Invoke(t.Context(), "orders", "list", nil)
						l.add(begun, err)
					})
				}
			})
			m.waitUntil("calls go well", func() bool { return l.successes() > 50 })

			began := time.Now()
			test.ill(ails)
			m.waitUntil("the instance is called no more", func() bool { return callsStop(ails.calls.Load) })
			m.waitUntil("calls go well again", func() bool { return l.successes() > 200 })
			l.mu.Lock()
			t.Logf("%d of %d calls failed; the last of them began %s after it", l.failed, l.calls, l.lastFailure.Sub(began).Round(time.Millisecond))
			failed := l.failed
			l.mu.Unlock()

			before := ails.calls.Load()
			test.well(ails)
			m.waitUntil("the instance is called again", func() bool { return ails.calls.Load() > before+20 })
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.failed > failed {
				t.Errorf("%d more calls failed when the app came back", l.failed-failed)
			}
		})
	}
}
