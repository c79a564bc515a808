package main

import (
	"encoding/json"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/sandbox"
)

// mortal is an app that can die and come back, and say how it is.
type mortal struct {
	t       *testing.T
	name    string
	address string
	healthz atomic.Int64 // what its health endpoint answers
	calls   atomic.Int64
	server  *http.Server
}

func (m *mesh) mortal(name string, args ...string) *mortal {
	m.t.Helper()
	a := &mortal{t: m.t, name: name, address: "127.0.0.1:0"}
	a.healthz.Store(http.StatusNoContent)
	a.live()
	m.t.Cleanup(a.die)
	m.daprd(sandbox.DaprdOptions{Name: name, App: orders, AppAddress: a.address, Args: args})
	return a
}

func (a *mortal) live() {
	a.t.Helper()
	lis, err := net.Listen("tcp", a.address)
	if err != nil {
		a.t.Fatal(err)
	}
	a.address = lis.Addr().String()
	a.server = &http.Server{Handler: a}
	go func() { _ = a.server.Serve(lis) }()
}

func (a *mortal) die() { _ = a.server.Close() }

func (a *mortal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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

// lost is what calls at a steady pace have lost.
type lost struct {
	mu            sync.Mutex
	calls, failed int
	last          time.Time // when the last call that failed began
	good          int       // in a row, since
}

func (l *lost) note(begun time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	l.good++
	if err != nil {
		l.failed++
		l.good = 0
		if begun.After(l.last) {
			l.last = begun
		}
	}
}

func (l *lost) goodInARow() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.good
}

func TestCallsLeaveAnInstanceWhoseAppCantTakeThem(t *testing.T) {
	for what, test := range map[string]struct {
		args      []string
		ill, well func(*mortal)
	}{
		"the app dies": {nil, (*mortal).die, (*mortal).live},
		"its health check fails": {
			[]string{"--enable-app-health-check", "--app-health-probe-interval", "1", "--app-health-threshold", "2"},
			func(a *mortal) { a.healthz.Store(http.StatusInternalServerError) },
			func(a *mortal) { a.healthz.Store(http.StatusNoContent) },
		},
	} {
		t.Run(what, func(t *testing.T) {
			m := newMesh(t)
			stays, ails := m.mortal("stays", test.args...), m.mortal("ails", test.args...)
			caller := m.daprd(sandbox.DaprdOptions{Name: "caller", App: checkout})
			m.until("both instances are called", func() bool {
				if _, err := caller.Invoke(t.Context(), "orders", "list", nil); err != nil {
					t.Log(err)
				}
				return stays.calls.Load() > 0 && ails.calls.Load() > 0
			})
			var l lost
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
						l.note(begun, err)
					})
				}
			})
			m.until("calls go well", func() bool { return l.goodInARow() > 50 })

			began := time.Now()
			test.ill(ails)
			time.Sleep(time.Second) // it takes one, until it is known
			m.until("calls go well again", func() bool { return l.goodInARow() > 200 })
			l.mu.Lock()
			t.Logf("%d of %d calls failed; the last of them began %s after it", l.failed, l.calls, l.last.Sub(began).Round(time.Millisecond))
			failed := l.failed
			l.mu.Unlock()
			m.until("the instance is called no more", func() bool {
				before := ails.calls.Load()
				time.Sleep(300 * time.Millisecond)
				return ails.calls.Load() == before
			})

			before := ails.calls.Load()
			test.well(ails)
			m.until("the instance is called again", func() bool { return ails.calls.Load() > before+20 })
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.failed > failed {
				t.Errorf("%d more calls failed when the app came back", l.failed-failed)
			}
		})
	}
}
