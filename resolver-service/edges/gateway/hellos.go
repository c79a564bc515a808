package gateway

import (
	"container/list"
	"sync"
)

// hellos are the connections that have yet to name an app. There is a limit to
// them, and the oldest gives way to the newest: a good client needs one round trip,
// so whoever has been here longest is the likeliest to be holding a place on purpose.
// A network that has its share gives way to itself.
type hellos struct {
	limit, share int

	mu      sync.Mutex
	waiting list.List             // of *halfOpen, oldest first
	of      map[source]*list.List // the same for each network
	closed  bool
}

// halfOpen is one of them.
type halfOpen struct {
	network source
	abort   func()        // makes who waits for the connection's bytes notice; called at most once
	place   *list.Element // nil once it was evicted
	own     *list.Element // its place among those of its network
}

func newHellos(limit, share int) *hellos {
	return &hellos{limit: limit, share: share, of: make(map[source]*list.List)}
}

// add takes a connection in. Where that is one too many, the oldest is aborted.
func (h *hellos) add(a *admitted, abort func()) *halfOpen {
	o := &halfOpen{network: sourceOf(a.from.Addr()).network(), abort: abort}
	h.mu.Lock()
	defer h.mu.Unlock()
	own := h.of[o.network]
	switch {
	case own != nil && own.Len() >= h.share:
		h.evictFirst(own)
	case h.waiting.Len() >= h.limit:
		h.evictFirst(&h.waiting)
	}
	if own = h.of[o.network]; own == nil {
		own = list.New()
		h.of[o.network] = own
	}
	o.place, o.own = h.waiting.PushBack(o), own.PushBack(o)
	if h.closed {
		h.evictFirst(&h.waiting)
	}
	return o
}

// done takes a connection out, and tells whether it had been evicted before.
func (h *hellos) done(o *halfOpen) (evicted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o.place == nil {
		return true
	}
	h.remove(o)
	return false
}

// evict aborts the oldest, if there is one.
func (h *hellos) evict() (one bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.evictFirst(&h.waiting)
}

// close aborts all of them, and those to come.
func (h *hellos) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for h.evictFirst(&h.waiting) {
	}
}

// evictFirst aborts the oldest of a list. Who waits for its bytes notices and ends it.
func (h *hellos) evictFirst(l *list.List) bool {
	e := l.Front()
	if e == nil {
		return false
	}
	o := e.Value.(*halfOpen)
	h.remove(o)
	o.abort()
	return true
}

func (h *hellos) remove(o *halfOpen) {
	h.waiting.Remove(o.place)
	own := h.of[o.network]
	if own.Remove(o.own); own.Len() == 0 {
		delete(h.of, o.network)
	}
	o.place, o.own = nil, nil
}
