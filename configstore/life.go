package configstore

import (
	"context"
	"sync"
)

// Life is what a store is open for: Close ends every call that the store is in the middle
// of, and waits for it. The zero Life is not open; see NewLife.
type Life struct {
	open context.Context // ends with Close
	end  context.CancelCauseFunc

	mu    sync.Mutex // keeps calls from beginning while Close begins to wait
	calls sync.WaitGroup
}

// NewLife is that of a store that is open.
func NewLife() *Life {
	l := &Life{}
	l.open, l.end = context.WithCancelCause(context.Background())
	return l
}

// enter begins a call, which ends with leave.
func (l *Life) enter(ctx context.Context) (inside context.Context, leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open.Err() != nil {
		return nil, nil, ErrClosed
	}
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	l.calls.Add(1)
	inside, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.open, func() { cancel(ErrClosed) })
	return inside, func() {
		stop()
		cancel(nil)
		l.calls.Done()
	}, nil
}

// Do is a call of f. The context inside it ends with ctx and with Close, and context.Cause of it is
// then the error of ctx, or ErrClosed. Once either has ended, Do refuses with the same.
func (l *Life) Do(ctx context.Context, f func(context.Context) error) error {
	inside, leave, err := l.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return f(inside)
}

// Watch is a call that delivers changes. It returns an error of deliver as it is, and before any
// other error of run.
func (l *Life) Watch(ctx context.Context, deliver func(Change) error, run func(ctx context.Context, deliver func(Change) error) error) error {
	var delivered error
	err := l.Do(ctx, func(ctx context.Context) error {
		return run(ctx, func(c Change) error {
			delivered = deliver(c)
			return delivered
		})
	})
	if delivered != nil {
		return delivered
	}
	return err
}

// Close ends every call and waits for it. It tells whether it is the first to: then the
// caller has the store's means to itself, to let go of them.
func (l *Life) Close() (first bool) {
	l.mu.Lock()
	first = l.open.Err() == nil
	l.end(ErrClosed)
	l.mu.Unlock()
	l.calls.Wait()
	return first
}
