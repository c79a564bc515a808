package gateway

import (
	"container/list"
	"net"
	"sync"
)

// hellos are the connections that have yet to name an app. There is a limit to
// them, and the oldest gives way to the newest: a good client needs one round trip,
// so whoever has been here longest is the likeliest to be holding a place on purpose.
type hellos struct {
	limit int

	mu      sync.Mutex
	waiting list.List // of *halfOpen, oldest first
	closed  bool
}

// halfOpen is one of them.
type halfOpen struct {
	conn  *net.TCPConn
	place *list.Element // nil once it was evicted
}

func newHellos(limit int) *hellos { return &hellos{limit: limit} }

// add takes a connection in. Where that is one too many, the oldest is closed.
func (h *hellos) add(conn *net.TCPConn) *halfOpen {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting.Len() >= h.limit {
		h.evictOldest()
	}
	o := &halfOpen{conn: conn}
	o.place = h.waiting.PushBack(o)
	if h.closed {
		h.evictOldest()
	}
	return o
}

// done takes a connection out, and tells whether it had been closed before.
func (h *hellos) done(o *halfOpen) (evicted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o.place == nil {
		return true
	}
	h.waiting.Remove(o.place)
	return false
}

// evict closes the oldest, if there is one.
func (h *hellos) evict() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.evictOldest()
}

// close closes all of them.
func (h *hellos) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for h.waiting.Len() > 0 {
		h.evictOldest()
	}
}

// evictOldest resets the oldest; the goroutine that reads from it notices and ends.
func (h *hellos) evictOldest() {
	e := h.waiting.Front()
	if e == nil {
		return
	}
	o := h.waiting.Remove(e).(*halfOpen)
	o.place = nil
	reset(o.conn)
}
