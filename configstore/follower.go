package configstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/live"
)

// Status is how a Follower stands to its store.
type Status struct {
	Synced  bool      // the full set has been in; it stays true
	Objects int       // that stand
	Version Version   // of the last change
	Heard   time.Time // when the store last said something
	Refused []Refusal

	// Err is why the store can't be watched just now, and Since when that began. Err is
	// nil while all is well. What stands goes on standing.
	Err   error
	Since time.Time
}

// Follower keeps a store watched: it goes on where it was after a failure, and never
// takes a failure for an empty set.
type Follower struct {
	store  Store
	apply  func(Change) error
	log    *slog.Logger
	set    Set
	status live.Value[Status]
}

// NewFollower makes a Follower that hands changes to apply. The first Change is Full. Those after
// it are not, and hold only differences, also when the store had to be read anew. apply is called
// on the goroutine of Run and must not keep the slices. An error from it ends Run.
func NewFollower(store Store, apply func(Change) error, log *slog.Logger) *Follower {
	return &Follower{store: store, apply: apply, log: log}
}

// Status is the follower's state: to be read, awaited and followed.
func (f *Follower) Status() *live.Value[Status] { return &f.status }

// errApply tells an error of apply from one of the store.
type errApply struct{ error }

func (e errApply) Unwrap() error { return e.error }

// Run watches the store until the context ends, the store is closed or apply fails,
// and returns the reason.
func (f *Follower) Run(ctx context.Context) error {
	var backoff Backoff
	for {
		var heard time.Time // when the first change came
		err := f.store.Watch(ctx, f.current().Version, func(c Change) error {
			if heard.IsZero() {
				heard = time.Now()
			}
			return f.take(c)
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var applyErr errApply
		if errors.As(err, &applyErr) {
			return applyErr.error
		}
		if errors.Is(err, ErrClosed) {
			return err
		}
		f.fail(err)
		if !backoff.Wait(ctx, err, heard) {
			return ctx.Err()
		}
	}
}

func (f *Follower) current() Status {
	status, _ := f.status.Load()
	return status
}

// take hands a change on, then says so: who reads the status after a change finds the
// change applied.
func (f *Follower) take(c Change) error {
	was := f.current()
	if !was.Synced && !c.Full {
		return fmt.Errorf("the store's first change is not the full set, at version %q; this is a fault in the store's code", c.Version)
	}
	net := f.set.Apply(c)
	net.Full = !was.Synced
	if net.Full || len(net.Objects) > 0 || len(net.Deleted) > 0 || !slices.EqualFunc(was.Refused, c.Refused, sameRefusal) {
		if err := f.apply(net); err != nil {
			return errApply{fmt.Errorf("apply version %q of the store: %w", c.Version, err)}
		}
	}
	f.status.Store(Status{Synced: true, Objects: f.set.Len(), Version: c.Version, Heard: time.Now(), Refused: c.Refused})
	f.tell(was, c, net)
	return nil
}

func sameRefusal(a, b Refusal) bool { return a.Key == b.Key && a.Where == b.Where }

// tell logs what an operator should know of, once.
func (f *Follower) tell(was Status, c, net Change) {
	if was.Err != nil {
		f.log.Info("config store is back", "away", time.Since(was.Since).Round(time.Millisecond), "objects", f.set.Len())
	}
	known := make(map[string]bool, len(was.Refused))
	for _, r := range was.Refused {
		known[r.Where+"\x00"+r.Err.Error()] = true
	}
	for _, r := range c.Refused {
		if !known[r.Where+"\x00"+r.Err.Error()] {
			f.log.Warn("object refused; the rest stand, and so does the last good one of the same name", "object", r.name(), "err", r.Err)
		}
	}
	f.log.Debug("config changed", "revision", string(c.Version), "put", len(net.Objects), "deleted", len(net.Deleted))
}

func (f *Follower) fail(err error) {
	status := f.current()
	if status.Err == nil {
		status.Since = time.Now()
		f.log.Warn("config store can't be watched; what stands goes on standing", "revision", string(status.Version), "objects", status.Objects, "err", err)
	}
	status.Err = err
	f.status.Store(status)
}
