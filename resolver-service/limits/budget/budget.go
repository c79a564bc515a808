// Package budget shares a number of bytes among clients. No client gets more than its share, and
// all together get no more than the total.
package budget

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Budget is a number of bytes. It is safe for concurrent use.
type Budget struct {
	all   *semaphore.Weighted
	share int64

	mu sync.Mutex
	of map[string]*account
}

// account is the share of one client, while it is in use.
type account struct {
	share *semaphore.Weighted
	users int
}

// New makes a budget. share is the most that one client gets.
func New(total, share int64) *Budget {
	return &Budget{all: semaphore.NewWeighted(total), share: share, of: map[string]*account{}}
}

// Acquire takes n bytes for a client. Until ctx ends it waits for others to return theirs, in the
// order of the calls. It takes at most the share. release returns the bytes; further calls do
// nothing.
func (b *Budget) Acquire(ctx context.Context, client string, n int64) (release func(), err error) {
	n = min(n, b.share)
	a := b.enter(client)
	if err := a.share.Acquire(ctx, n); err != nil {
		b.leave(client, a)
		return nil, err
	}
	if err := b.all.Acquire(ctx, n); err != nil {
		a.share.Release(n)
		b.leave(client, a)
		return nil, err
	}
	return b.releaseOf(client, a, n), nil
}

// TryAcquire is Acquire without waiting.
func (b *Budget) TryAcquire(client string, n int64) (release func(), ok bool) {
	n = min(n, b.share)
	a := b.enter(client)
	if !a.share.TryAcquire(n) {
		b.leave(client, a)
		return nil, false
	}
	if !b.all.TryAcquire(n) {
		a.share.Release(n)
		b.leave(client, a)
		return nil, false
	}
	return b.releaseOf(client, a, n), true
}

func (b *Budget) releaseOf(client string, a *account, n int64) func() {
	return sync.OnceFunc(func() {
		b.all.Release(n)
		a.share.Release(n)
		b.leave(client, a)
	})
}

func (b *Budget) enter(client string) *account {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.of[client]
	if a == nil {
		a = &account{share: semaphore.NewWeighted(b.share)}
		b.of[client] = a
	}
	a.users++
	return a
}

func (b *Budget) leave(client string, a *account) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.users--; a.users == 0 {
		delete(b.of, client)
	}
}
