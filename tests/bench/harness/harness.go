// Package harness is what the benchmarks share: the program with its processes, rounds by turns,
// CPU time and memory, tables, and the services, servers and apps that are measured.
//
// A benchmark that can't go on ends at once: [Check] and [Must] panic with their error, and [Try]
// recovers it. What was started ends in reverse order, by [B.Cleanup].
package harness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// failure is an error that a benchmark ends by.
type failure struct{ error }

// Check ends the benchmark if there is an error.
func Check(err error) { fail(err) }

// Must returns a value, and ends the benchmark if there is an error.
func Must[T any](value T, err error) T {
	fail(err)
	return value
}

// Assert ends the benchmark unless something holds.
func Assert(holds bool, format string, args ...any) {
	if !holds {
		fail(fmt.Errorf(format, args...))
	}
}

func fail(err error) {
	if err != nil {
		_, file, line, _ := runtime.Caller(2)
		panic(failure{fmt.Errorf("%s:%d: %w", filepath.Base(file), line, err)})
	}
}

// Try returns the error that ended do.
func Try(do func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
	}()
	do()
	return nil
}

// B is a benchmark, or a part of one. Its context ends with it, or if something fails that it runs
// in the background.
type B struct {
	context.Context
	end      context.CancelCauseFunc
	cleanups []func() error // of the goroutine that has made this
	dir      string
}

// Scope does a part of the benchmark, and then ends what that has started.
func (b *B) Scope(part func(*B)) {
	inner := &B{}
	inner.Context, inner.end = context.WithCancelCause(b.Context)
	err := Try(func() { part(inner) })
	if err != nil && inner.Err() != nil {
		err = fmt.Errorf("%w (%w)", err, context.Cause(inner))
	}
	for _, cleanup := range slices.Backward(inner.cleanups) {
		err = errors.Join(err, cleanup())
	}
	inner.end(nil)
	if inner.dir != "" {
		err = errors.Join(err, os.RemoveAll(inner.dir))
	}
	Check(err)
}

// Cleanup has a function called at the end, before those of earlier calls.
func (b *B) Cleanup(f func() error) { b.cleanups = append(b.cleanups, f) }

// Defer is Cleanup for functions that can't fail.
func (b *B) Defer(f func()) { b.Cleanup(func() error { f(); return nil }) }

// Go runs something in the background until the end, and waits for it then. If it fails before, the
// context ends.
func (b *B) Go(run func(context.Context) error) {
	ctx, stop := context.WithCancel(b)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := Try(func() { Check(run(ctx)) }); err != nil && ctx.Err() == nil {
			b.end(err)
		}
	}()
	b.Defer(func() { stop(); <-done })
}

// Dir is a directory, which every user may read, until the end.
func (b *B) Dir() string {
	if b.dir == "" {
		b.dir = Must(os.MkdirTemp("", "isthmus-bench-"))
		Check(os.Chmod(b.dir, 0o755))
	}
	return b.dir
}

// Path is that of a file in the directory.
func (b *B) Path(name string) string { return filepath.Join(b.Dir(), name) }

// Sandbox is a sandbox in a directory of its own, until the end.
func (b *B) Sandbox() *sandbox.Sandbox {
	s := Must(sandbox.New(Must(os.MkdirTemp(b.Dir(), "sandbox-")), Quiet))
	b.Cleanup(s.Close)
	return s
}

// Patience is how long anything may take that is waited for.
const Patience = time.Minute

// Await calls try, with pauses in between, until it passes every Check.
func (b *B) Await(what string, pause time.Duration, try func()) {
	for began := time.Now(); ; b.Pause(pause) {
		err := Try(try)
		if err == nil {
			return
		}
		Assert(b.Err() == nil && time.Since(began) < Patience, "%s: not within %s: %w", what, Patience, err)
	}
}

// Pause waits for a time.
func (b *B) Pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-b.Done():
		Check(context.Cause(b))
	}
}

// Together does parts at once, and waits for all of them.
func Together(parts ...func()) {
	errs := make([]error, len(parts))
	var group sync.WaitGroup
	for i, part := range parts {
		group.Go(func() { errs[i] = Try(part) })
	}
	group.Wait()
	Check(errors.Join(errs...))
}

// AtOnce shares n out among so many workers, and waits for them.
func AtOnce(workers, n int, work func(n int)) {
	parts := make([]func(), workers)
	for i := range parts {
		parts[i] = func() { work((n + i) / workers) }
	}
	Together(parts...)
}

// Repeat does something n times, by so many workers.
func Repeat(workers, n int, do func()) {
	AtOnce(workers, n, func(n int) {
		for range n {
			do()
		}
	})
}

// Turns measures every subject once a round, in another order each time, so that what else the
// machine does concerns all alike.
func Turns[S any](b *B, rounds int, subjects []S, measure func(S)) {
	told := time.Now()
	for round := range rounds {
		for _, i := range rand.Perm(len(subjects)) {
			Check(b.Err())
			measure(subjects[i])
		}
		if time.Since(told) > 5*time.Second {
			told = time.Now()
			Progress("%d of %d rounds", round+1, rounds)
		}
	}
}
