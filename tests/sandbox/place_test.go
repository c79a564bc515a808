package sandbox

import (
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// entered is a place that counts what is done in it.
type entered struct{ times atomic.Int64 }

func (e *entered) Do(f func() error) error {
	e.times.Add(1)
	return f()
}

// Namespaces of the kernel are tried in tests/faults/network.
func TestWhatASandboxOpensAndStartsIsInItsPlace(t *testing.T) {
	place := &entered{}
	s, err := NewIn(place, t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	step := func(what string, least, most int64) {
		t.Helper()
		if got := place.times.Swap(0); got < least || got > most {
			t.Errorf("%s was in the place %d times, want %d to %d", what, got, least, most)
		}
	}
	a, err := s.App(AppOptions{App: catalog.App{Namespace: "shop", ID: "orders"}})
	if err != nil {
		t.Fatal(err)
	}
	step("what an app listens at", 1, 1)
	d := &Daprd{HTTP: a.Address, client: s.client}
	for range 2 {
		if _, err := d.Invoke(within(t, patience), "orders", "hello", nil); err != nil {
			t.Fatal(err)
		}
	}
	step("the connection of two calls, or two where the machine was busy in between", 1, 2)
	if n := a.Begun("v1.0/invoke/orders/method/hello").Count; n != 2 || a.Begun("other").Count != 0 {
		t.Errorf("%d calls of the method, want 2, and none of others", n)
	}
	c := helper(t, "HELPER_EXIT=0")
	c.LogDir = s.Dir()
	p, err := s.run(within(t, patience), c)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	step("a process", 1, 1)
}
