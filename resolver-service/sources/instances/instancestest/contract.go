package instancestest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
)

func contract() []specification {
	return []specification{
		{"a source has a name and a rank, and keeps them", hasAName},
		{"each Watch begins with the full set", fullEachTime},
		{"an error of emit ends Watch, which returns it", emitFails},
		{"the end of its context ends Watch at once, and nothing is left behind", contextEnds},
		{"by a cut link, Watch ends with its context", cutEnds},
	}
}

func hasAName(t *testing.T, b Backend) {
	s := b.Open(t)
	if other := b.Open(t); s.Name() == "" || s.Name() != other.Name() || s.Rank() != other.Rank() {
		t.Errorf("it is %q of rank %d, and then %q of rank %d", s.Name(), s.Rank(), other.Name(), other.Rank())
	}
}

var errEnough = errors.New("enough")

// firstOf is the first change of a Watch that is then ended by emit.
func firstOf(t *testing.T, s instances.Source) (c instances.Change) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	calls := 0
	err := s.Watch(ctx, func(now instances.Change) error {
		if calls++; calls > 1 {
			t.Error("emit was called again after it had failed")
		}
		c = now
		c.Put = append(c.Put[:0:0], c.Put...) // the slice is the source's
		return errEnough
	})
	if !errors.Is(err, errEnough) {
		t.Errorf("Watch ended with %v, want the error of emit", err)
	}
	return c
}

func fullEachTime(t *testing.T, b Backend) {
	b.Put(t, one(), three())
	s := b.Open(t)
	for range 3 {
		if c := firstOf(t, s); !c.Full || len(c.Put) != 2 {
			t.Errorf("a Watch began with %+v; want the full set of two", c)
		}
	}
	b.Delete(t, one())
	if c := firstOf(t, s); !c.Full || len(c.Put) != 1 || c.Put[0].App != three().App {
		t.Errorf("after one has gone a Watch began with %+v; want the full set of one", c)
	}
}

func emitFails(t *testing.T, b Backend) {
	b.Put(t, one())
	s := b.Open(t)
	firstOf(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	first := make(chan struct{})
	var once sync.Once
	ended := make(chan error, 1)
	go func() {
		ended <- s.Watch(ctx, func(c instances.Change) error {
			once.Do(func() { close(first) })
			if !c.Full {
				return errEnough
			}
			return nil
		})
	}()
	select {
	case <-first:
	case err := <-ended:
		t.Fatalf("Watch ended with %v", err)
	}
	b.Put(t, two())
	if err := <-ended; !errors.Is(err, errEnough) {
		t.Errorf("Watch ended with %v, want the error of emit", err)
	}
}

func contextEnds(t *testing.T, b Backend) {
	b.Put(t, one())
	s := b.Open(t)
	before := []goleak.Option{goleak.IgnoreCurrent()}
	for _, f := range []string{"run", "copy", "read"} { // of the link, until the server hangs up, too
		before = append(before, goleak.IgnoreAnyFunction("github.com/isthmus-mesh/isthmus/tests/sandbox/servers.(*link)."+f))
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan struct{})
	var once sync.Once
	ended := make(chan error, 1)
	go func() {
		ended <- s.Watch(ctx, func(instances.Change) error {
			once.Do(func() { close(first) })
			return nil
		})
	}()
	select {
	case <-first:
	case err := <-ended:
		t.Fatalf("Watch ended with %v", err)
	}
	endsWith(t, cancel, ended)
	left := goleak.Find(before...)
	for end := time.Now().Add(patience); left != nil && time.Now().Before(end); { // a connection's end takes a busy machine a moment
		left = goleak.Find(before...)
	}
	if left != nil {
		t.Errorf("left behind: %v", left)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if err := s.Watch(ctx, func(instances.Change) error { t.Error("it said something"); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended, Watch ended with %v", err)
	}
}

// endsWith cancels a Watch and holds that it ends at once.
func endsWith(t *testing.T, cancel context.CancelFunc, ended <-chan error) {
	t.Helper()
	begin := time.Now()
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Watch ended with %v, want the context's error", err)
		}
	case <-time.After(patience):
		t.Fatalf("Watch had not ended %s after its context", patience)
	}
	if took := time.Since(begin); took > patience/8 {
		t.Errorf("Watch ended %s after its context; want that it waits for no server", took)
	}
}

func cutEnds(t *testing.T, b Backend) {
	orSkip(t, b.Cut != nil, "this source has no link")
	b.Put(t, one())
	s := b.Open(t)
	watch := func() (first chan struct{}, cancel context.CancelFunc, ended chan error) {
		ctx, cancel := context.WithCancel(t.Context())
		first, ended = make(chan struct{}), make(chan error, 1)
		var once sync.Once
		go func() {
			ended <- s.Watch(ctx, func(instances.Change) error {
				once.Do(func() { close(first) })
				return nil
			})
		}()
		return first, cancel, ended
	}
	first, cancel, ended := watch()
	<-first
	defer b.Cut(t)()
	endsWith(t, cancel, ended)
	_, cancel, ended = watch() // which can't begin
	time.Sleep(50 * time.Millisecond)
	endsWith(t, cancel, ended)
}
