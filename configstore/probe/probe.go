// Package probe tries a config store out without changing anything, and reports in steps: for the
// mistakes that people make when they set one up, such as a wrong port, a wrong token or
// credentials that do not suffice.
package probe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/configstore"
)

// Step is one thing that was tried.
type Step struct {
	Name  string
	Err   error         // nil: it went well, or was not tried
	Tried bool          // false: there was no way or no use; What says why
	Took  time.Duration // 0 where it was not tried
	What  string        // what was found
}

// Result is the report of one step.
type Result struct {
	Steps   []Step
	Refused []configstore.Refusal // what the store holds and can't be used
}

// Good tells whether all that was tried went well, and nothing is refused.
func (r *Result) Good() bool {
	for _, s := range r.Steps {
		if s.Err != nil {
			return false
		}
	}
	return len(r.Refused) == 0
}

// Run tries out a store that was opened for a scope. No step takes longer than most. A
// reader of one app neither lists nor writes, so its credentials are asked for neither.
func Run(ctx context.Context, store configstore.ReadWriter, scope configstore.Scope, most time.Duration) *Result {
	r := &Result{}
	prober, _ := store.(configstore.Prober)
	if prober != nil {
		r.try(ctx, "server", most, prober.Server)
	}
	if scope.All() {
		r.try(ctx, "read", most, func(ctx context.Context) (string, error) { return r.read(ctx, store) })
	}
	r.try(ctx, "watch", most, func(ctx context.Context) (string, error) { return r.watch(ctx, store) })
	switch {
	case !scope.All():
	case prober == nil:
		r.skip("write", "this kind of store can't tell without writing")
	default:
		r.try(ctx, "write", most, func(ctx context.Context) (string, error) {
			return "allowed; nothing was written", prober.MayWrite(ctx)
		})
	}
	if lacker, ok := store.(configstore.Lacker); ok && scope.All() {
		r.try(ctx, "settings", most, func(ctx context.Context) (string, error) {
			lacks, err := lacker.Lacks(ctx)
			if len(lacks) > 0 {
				err = errors.Join(err, errors.New(strings.Join(lacks, "; ")))
			}
			return "the server lacks nothing that is known", err
		})
	}
	return r
}

func (r *Result) skip(name, why string) { r.Steps = append(r.Steps, Step{Name: name, What: why}) }

// try makes a step, unless one before it has found nobody there.
func (r *Result) try(ctx context.Context, name string, most time.Duration, step func(context.Context) (string, error)) {
	for _, s := range r.Steps {
		if s.Err != nil && !answered(s.Err) {
			r.skip(name, s.Name+" failed")
			return
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("nothing was heard within %s; see that the address is right and nothing drops packets on the way", most))
	defer cancel()
	begin := time.Now()
	what, err := step(ctx)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	s := Step{Name: name, Err: err, Tried: true, Took: time.Since(begin)}
	if err == nil {
		s.What = what
	}
	r.Steps = append(r.Steps, s)
}

// answered tells whether an error is an answer of the store: then another step may go
// better.
func answered(err error) bool {
	return errors.Is(err, configstore.ErrDenied) || errors.Is(err, configstore.ErrReadOnly)
}

func (r *Result) read(ctx context.Context, store configstore.Reader) (string, error) {
	stored, refused, err := store.List(ctx)
	if err != nil {
		return "", err
	}
	r.Refused = refused
	return counts(len(stored), len(refused)), nil
}

var errSeen = errors.New("the first change was seen")

func (r *Result) watch(ctx context.Context, store configstore.Store) (what string, err error) {
	err = store.Watch(ctx, "", func(c configstore.Change) error {
		what = counts(len(c.Objects), len(c.Refused))
		r.Refused = c.Refused
		return errSeen
	})
	if errors.Is(err, errSeen) {
		err = nil
	}
	return what, err
}

func counts(objects, refused int) string {
	if objects == 1 {
		return fmt.Sprintf("1 object, %d refused", refused)
	}
	return fmt.Sprintf("%d objects, %d refused", objects, refused)
}
