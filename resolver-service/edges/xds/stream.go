package xds

import (
	"context"
	"sync"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// stream is one client's connection to all its resources. Its goroutines are one that reads
// requests, and one that waits for changes.
type stream struct {
	s       *Server
	send    func(encoded) error
	delta   bool
	client  client
	account *account      // of its app
	wake    chan struct{} // its hub has something for it

	mu     sync.Mutex // guards what follows, and is locked before the hub's
	closed bool
	key    hubKey
	hub    *hub
	place  int // in the hub
	kinds  [kinds]*followed
	number uint64 // of nonces
}

// followed is what a stream knows of one type of resources. Which names the client follows is in
// the hub.
type followed struct {
	asked    bool
	wildcard bool
	unnamed  bool                      // the wildcard of old: it follows all, since it has never named anything
	count    int                       // names that the client has asked for
	fresh    map[resourceName]struct{} // asked for since the last response
	freshAll bool                      // all was asked for since then
	known    map[string]string         // see request
	release  func()                    // gives back the bytes of known
	answered bool                      // something was sent
	held     map[resourceName]*resource
	revision uint64 // that was sent last
	nonce    string
	awaiting bool // the answer to nonce

	// Until the service has settled, a client that has resources from an earlier stream keeps
	// them, and no client is told that what it asked for is absent.
	returning bool
	absent    map[resourceName]struct{}

	// dirty are the resources that are to be sent, with what the client has; nil: nothing. The
	// hub's lock guards it.
	dirty map[resourceName]*resource
}

// lacking tells whether there is something to send. The caller holds the hub's lock.
func (f *followed) lacking() bool {
	return f != nil && f.asked && (len(f.dirty) > 0 || len(f.fresh) > 0 || f.freshAll)
}

func (f *followed) note(n resourceName, before *resource) {
	if f.dirty == nil {
		f.dirty = map[resourceName]*resource{}
	}
	if _, ok := f.dirty[n]; !ok {
		f.dirty[n] = before
	}
}

// notify has the stream look at what its hub has for it.
func (st *stream) notify() {
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// changes are closed once there may be another state. Some may be nil.
type changes [3]<-chan struct{}

// open takes the stream's place at the hub of its view.
func (st *stream) open(own bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.hub = st.s.hubs.acquire(st.key)
	st.place = st.hub.join(st)
	st.settle(own)
}

// close gives it up. Nothing is sent from then on.
func (st *stream) close() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.closed = true
	for _, f := range st.kinds {
		if f != nil {
			f.forgetKnown()
		}
	}
	st.hub.leave(st.place)
	st.s.hubs.release(st.key, st.hub)
}

// read takes a client's requests until one can't be had. Most are answers to responses, after
// which there is nothing to send: so they wake no other goroutine.
func (st *stream) read(r *request, next func() (*request, error)) (err error) {
	for ; err == nil; r, err = next() {
		known := false
		if r.kind, known = kindOf(r.url); !known {
			continue // a type that we have nothing of
		}
		if err = st.answer(r); err != nil {
			return err
		}
	}
	return err
}

func (st *stream) answer(r *request) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return nil
	}
	if err := st.take(r); err != nil {
		return err
	}
	return st.advance()
}

// run sends what changes until the stream ends. own follows whether the client has a view of its
// own.
func (st *stream) run(ctx context.Context, own func() (bool, <-chan struct{})) error {
	for {
		has, changed := own()
		if has {
			changed = nil // the hub follows that view
		}
		if err := st.changed(has); err != nil {
			return err
		}
		select {
		case <-st.wake:
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

func (st *stream) changed(own bool) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.settle(own)
	return st.advance()
}

// settle moves the stream to the hub of the view that counts for its client.
func (st *stream) settle(own bool) {
	key := st.key
	if !key.gateway {
		if key.app = (catalog.App{}); own {
			key.app = st.client.app
		}
	}
	if key == st.key {
		return
	}
	old, oldKey := st.hub, st.key
	names, last := old.leave(st.place)
	st.key, st.hub = key, st.s.hubs.acquire(key)
	st.place = st.hub.join(st)
	st.hub.mu.Lock()
	for k, f := range st.kinds {
		if f != nil {
			st.rejoin(kind(k), f, names[k], last)
		}
	}
	st.hub.mu.Unlock()
	st.s.hubs.release(oldKey, old)
}

// rejoin has the stream follow in its hub what it has followed in another, which had a state.
func (st *stream) rejoin(k kind, f *followed, names []resourceName, last state) {
	at, now := &st.hub.kinds[k], st.hub.now
	compare := func(n resourceName) {
		if last == nil || now == nil {
			return
		}
		if before := last.resource(k, n); !alike(before, now.resource(k, n)) {
			f.note(n, before)
		}
	}
	for _, n := range names {
		at.add(n, st)
		compare(n)
	}
	if !f.wildcard {
		return
	}
	at.setAll(st.place, true)
	if last != nil && now != nil {
		for n := range last.names(k) {
			compare(n)
		}
		for n := range now.names(k) {
			compare(n)
		}
	}
}

// of is what the stream knows of a type.
func (st *stream) of(k kind) *followed {
	if st.kinds[k] == nil {
		st.kinds[k] = &followed{}
	}
	return st.kinds[k]
}

// advance sends what the client lacks: what others refer to before what refers to it, and in the
// opposite order what goes.
func (st *stream) advance() error {
	lacks := st.lacks()
	for k := range kinds {
		if f := st.kinds[k]; lacks.has(k) && !f.awaiting && (k < listeners || !lacks.has(clusters)) {
			sent, err := st.sendType(k, f)
			if err != nil {
				return err
			}
			if sent {
				lacks &^= 1 << k
			}
		}
	}
	if lacks.has(listeners) || lacks.has(routes) {
		return nil
	}
	for k := clusters; k < listeners; k++ {
		f := st.kinds[k]
		switch {
		case f == nil || len(f.held) == 0:
		case f.awaiting:
			return nil
		default:
			if err := st.removeHeld(k, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// types is a set of them.
type types uint8

func (l types) has(k kind) bool { return l&(1<<k) != 0 }

// lacks are the types of which the client has not the newest, among those that it follows.
func (st *stream) lacks() (l types) {
	st.hub.mu.Lock()
	defer st.hub.mu.Unlock()
	for k, f := range st.kinds {
		if f.lacking() || f != nil && f.asked && (!f.answered && kind(k).whole() || !st.hub.early && len(f.absent) > 0) {
			l |= 1 << k
		}
	}
	return l
}

// sendType sends the difference of one type. It does not while there is no state yet, or one that
// may lack what the client has, and while it has clusters which the type may refer to and the
// client lacks.
func (st *stream) sendType(k kind, f *followed) (sent bool, err error) {
	st.hub.mu.Lock()
	now, early, dirty := st.hub.now, st.hub.early, f.dirty
	if now == nil || early && f.returning || k >= listeners && st.kinds[clusters].lacking() {
		st.hub.mu.Unlock()
		return false, nil
	}
	f.dirty = nil
	st.hub.mu.Unlock()
	first := !f.answered
	put, gone := st.difference(k, f, now, dirty, early)
	if early && first && k.whole() && len(put) == 0 {
		return false, nil // an empty set would say that there is nothing
	}
	f.answered, f.fresh, f.freshAll, f.revision = true, nil, false, now.revision()
	f.forgetKnown()
	if k < listeners && !st.alone() { // listeners and routes may still refer to them
		for n, r := range gone {
			if r != nil {
				if f.held == nil {
					f.held = map[resourceName]*resource{}
				}
				f.held[n] = r
				delete(gone, n)
			}
		}
	}
	if len(put) == 0 && len(gone) == 0 && !(first && k.whole()) {
		return true, nil
	}
	return true, st.respond(k, f, now, put, gone)
}

// alone tells whether the client follows neither listeners nor routes.
func (st *stream) alone() bool { return st.kinds[listeners] == nil && st.kinds[routes] == nil }
