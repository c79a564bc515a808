package transport

import (
	"bytes"
	"context"
	"sync"
	"time"
)

// buffers have room for a message each.
var buffers = sync.Pool{New: func() any { return new([maxMessage]byte) }}

// waits are the queries that are being waited for, a bounded number of them.
type waits struct {
	ctx     context.Context
	timeout time.Duration
	slots   chan struct{}
	running sync.WaitGroup
}

func newWaits(ctx context.Context, limit int, timeout time.Duration) *waits {
	return &waits{ctx: ctx, timeout: timeout, slots: make(chan struct{}, limit)}
}

// start waits for a query in a goroutine of its own, with a copy of it, and hands what
// came of it to done, which keeps nothing. What done returns runs when there is room for
// another query again, so that it may take its time. start returns false where too many
// are waited for.
func (w *waits) start(q *Query, h Handler, done func(q *Query, response []byte) (then func())) bool {
	select {
	case w.slots <- struct{}{}:
	default:
		return false
	}
	mine := *q
	mine.Packet = bytes.Clone(q.Packet)
	w.running.Go(func() {
		if then := w.wait(&mine, h, done); then != nil {
			then()
		}
	})
	return true
}

func (w *waits) wait(q *Query, h Handler, done func(*Query, []byte) func()) func() {
	defer func() { <-w.slots }()
	ctx, cancel := context.WithTimeout(w.ctx, w.timeout)
	defer cancel()
	room := buffers.Get().(*[maxMessage]byte) // of nothing else
	defer buffers.Put(room)
	return done(q, h.Wait(ctx, q, room[:0]))
}

// finish waits until nothing is waited for. No start may follow.
func (w *waits) finish() { w.running.Wait() }
