package conformance

import (
	"context"
	"runtime"
	"strings"
	"testing"
)

var closeChecks = []check{
	{"Close", "First", "may be closed without Init, as daprd does with components that are never used", "", checkCloseFirst},
	{"Close", "Failed", "may be closed after Init has failed", "", checkCloseFailed},
	{"Close", "Twice", "may be closed twice", "", checkCloseTwice},
	{"Close", "Lookup", "a lookup after Close returns, whatever it says", "", checkLookupAfterClose},
	{"Close", "Goroutines", "no goroutine is left 10 s after Close", "", checkGoroutines},
}

func checkCloseFirst(t *testing.T, w *world) {
	r := w.newResolver()
	bounded(t, w.limit, "Close", func() {
		if err := r.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

func checkCloseFailed(t *testing.T, w *world) {
	if len(w.Invalid) == 0 {
		t.Skip("Setup.Invalid is empty: name configurations that Init must refuse, if there are any")
	}
	for what, configuration := range w.Invalid {
		r, md := w.newResolver(), w.metadata(w.instance(w.app("invalid")))
		md.Configuration = configuration
		bounded(t, w.limit, "Close after "+what, func() {
			defer func() { _ = recover() }() // which the check of Init finds
			_ = r.Init(t.Context(), md)
		})
		bounded(t, w.limit, "Close after "+what, func() {
			if err := r.Close(); err != nil {
				t.Errorf("Close after %s: %v", what, err)
			}
		})
	}
}

// used is a resolver that has found an app, and one that does not run.
func (w *world) used(t *testing.T) (s *subject, app string) {
	t.Helper()
	i := w.instance(w.app("orders"))
	w.register(t, i)
	s = w.start(t)
	s.awaitOnly(w.Within, request(i.AppID), i)
	_, _ = s.ResolveID(t.Context(), request(w.app("nobody")))
	return s, i.AppID
}

func checkCloseTwice(t *testing.T, w *world) {
	s, _ := w.used(t)
	for range 2 {
		bounded(t, w.limit, "Close", func() {
			if err := s.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
}

func checkLookupAfterClose(t *testing.T, w *world) {
	s, app := w.used(t)
	bounded(t, w.limit, "Close", func() { _ = s.close() })
	for _, id := range []string{app, w.app("nobody")} {
		bounded(t, w.limit, "ResolveID", func() { _, _ = s.ResolveID(t.Context(), request(id)) })
	}
}

func checkGoroutines(t *testing.T, w *world) {
	i := w.instance(w.app("orders"))
	w.register(t, i)
	before := goroutines()
	t.Run("use", func(t *testing.T) {
		s := w.start(t)
		s.awaitOnly(w.Within, request(i.AppID), i)
		ctx, cancel := context.WithTimeout(t.Context(), w.limit)
		defer cancel()
		_, _ = s.ResolveID(ctx, request(w.app("nobody")))
	})
	var left []string
	eventually(t, w.limit, func() bool {
		left = left[:0]
		for id, stack := range goroutines() {
			if _, ok := before[id]; !ok {
				left = append(left, stack)
			}
		}
		return len(left) == 0
	}, func() string { return strings.Join(left, "\n\n") })
}

// goroutines are the stacks of all goroutines but this one, by their id.
func goroutines() map[string]string {
	buffer := make([]byte, 1<<20)
	for {
		if n := runtime.Stack(buffer, true); n < len(buffer) {
			buffer = buffer[:n]
			break
		}
		buffer = make([]byte, 2*len(buffer))
	}
	all := map[string]string{}
	for _, stack := range strings.Split(string(buffer), "\n\n")[1:] {
		id, _, _ := strings.Cut(stack, " [")
		all[id] = stack
	}
	return all
}
