package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// A batch has at most so many objects, and so many bytes of JSON if it has several.
const (
	mostObjects = 1000
	mostBytes   = 4 << 20
)

// abreast is how many writes run at a time in a store that takes one object at once.
const abreast = 8

// mostFailures is after how many objects in a row that a target did not take there is no
// point in going on.
const mostFailures = 100

// writer makes the writes of a plan, in batches that the target can take. A store need
// not say how large these are: one that is too large is refused whole, and goes as two
// halves.
type writer struct {
	to       configstore.Writer
	worklist *worklist
	progress func(done, of int)

	size int // objects in a batch; shrinks until the target takes it

	mu       sync.Mutex // guards what follows, and the results in the worklist
	done, of int
	inRow    int // failures since the last success
}

// perObject are errors that concern some objects of a batch, and need not concern others.
var perObject = []error{
	configstore.ErrTooLarge, configstore.ErrInvalid, configstore.ErrConflict, configstore.ErrNotFound, configstore.ErrReadOnly,
}

func (w *writer) writeAll(ctx context.Context) error {
	steps := w.worklist.order()
	w.of = len(steps)
	for len(steps) > 0 {
		if w.size == 1 {
			n := min(abreast, len(steps))
			if err := w.writeAbreast(ctx, steps[:n]); err != nil {
				return err
			}
			steps = steps[n:]
			continue
		}
		n := w.batch(steps)
		if err := w.write(ctx, steps[:n]); err != nil {
			return err
		}
		steps = steps[n:]
	}
	return nil
}

// batch is how many of the steps, of one sort, go together.
func (w *writer) batch(steps []*step) int {
	bytes := 0
	for i, s := range steps {
		if s.object != nil {
			bytes += len(api.EncodeJSON(s.object))
		}
		if i > 0 && (i == w.size || bytes > mostBytes || (s.object == nil) != (steps[0].object == nil)) {
			return i
		}
	}
	return len(steps)
}

// writeAbreast writes each step by itself, all at the same time. They are of the same
// kind, or close to each other in the order of kinds.
func (w *writer) writeAbreast(ctx context.Context, steps []*step) error {
	errs := make([]error, len(steps))
	var wait sync.WaitGroup
	for i := range steps {
		wait.Go(func() { errs[i] = w.write(ctx, steps[i:i+1]) })
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// write writes steps together, or in halves if they are too many or some of them can't be
// written. The error is one that concerns all of them.
func (w *writer) write(ctx context.Context, steps []*step) error {
	writes := make([]configstore.Write, len(steps))
	for i, s := range steps {
		writes[i] = s.write()
	}
	_, err := w.to.Write(ctx, writes...)
	switch {
	case err == nil:
		return w.settle(steps, nil)
	case ctx.Err() != nil || errors.Is(err, configstore.ErrDenied) || !slices.ContainsFunc(perObject, func(known error) bool { return errors.Is(err, known) }):
		return fmt.Errorf("write to the target: %w", err)
	case len(steps) == 1:
		return w.settle(steps, err)
	}
	half := len(steps) / 2
	if errors.Is(err, configstore.ErrTooLarge) {
		w.size = min(w.size, max(half, 1))
	}
	if err := w.write(ctx, steps[:half]); err != nil {
		return err
	}
	return w.write(ctx, steps[half:])
}

// settle notes what has become of steps that were written, or of one that failed.
func (w *writer) settle(steps []*step, failed error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inRow++
	for _, s := range steps {
		s.result, s.err = s.means, failed
		if failed != nil {
			s.result = Failed
		}
	}
	if failed == nil {
		w.inRow = 0
	}
	w.done += len(steps)
	if w.progress != nil {
		w.progress(w.done, w.of)
	}
	if w.inRow >= mostFailures {
		return fmt.Errorf("stopped after %d objects in a row that the target did not take: %w", mostFailures, failed)
	}
	return nil
}
