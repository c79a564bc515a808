package transport

import (
	"bytes"
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

// buffers have room for a message each.
var buffers = sync.Pool{New: func() any { return new([wire.MaxSize]byte) }}

// waits are the queries that are being waited for, a bounded number of them. No client has
// more than half of the room, so that none can take it all with names that nobody answers.
type waits struct {
	ctx     context.Context
	timeout time.Duration
	running sync.WaitGroup

	mu       sync.Mutex
	room     int // left
	share    int
	byClient map[netip.Addr]int
}

func newWaits(ctx context.Context, limit int, timeout time.Duration) *waits {
	return &waits{ctx: ctx, timeout: timeout, room: limit, share: (limit + 1) / 2, byClient: make(map[netip.Addr]int)}
}

// enter takes a place for a client, if there is one.
func (w *waits) enter(client netip.Addr) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.room == 0 || w.byClient[client] >= w.share {
		return false
	}
	w.room--
	w.byClient[client]++
	return true
}

func (w *waits) leave(client netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.room++
	if w.byClient[client]--; w.byClient[client] == 0 {
		delete(w.byClient, client)
	}
}

// start waits for a query in a goroutine of its own, with a copy of it, and hands what
// came of it to done, which keeps nothing. What done returns runs when there is room for
// another query again, so that it may take its time. start returns false where too many
// are waited for.
func (w *waits) start(q *Query, h Handler, done func(q *Query, response []byte) (then func())) bool {
	if !w.enter(client(q.From.Addr())) {
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
	defer w.leave(client(q.From.Addr()))
	ctx, cancel := context.WithTimeout(w.ctx, w.timeout)
	defer cancel()
	room := buffers.Get().(*[wire.MaxSize]byte) // of nothing else
	defer buffers.Put(room)
	return done(q, h.Wait(ctx, q, room[:0]))
}

// finish waits until nothing is waited for. No start may follow.
func (w *waits) finish() { w.running.Wait() }
