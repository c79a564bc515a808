package xds

import (
	"context"
	"slices"
	"strconv"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Bounds of one stream.
const (
	maxNames    = 50_000  // that a client may follow, of one type
	maxResponse = 1 << 20 // bytes of resources in a message, where a type allows several messages
)

// request is what a client sends, in either protocol.
type request struct {
	kind    kind
	url     string
	nonce   string
	problem string // why it refuses what has the nonce; empty: it does not

	names       []string // SotW: all that it follows
	subscribe   []string // delta
	unsubscribe []string
	known       map[string]string // delta: versions that it has from an earlier stream
}

// stream is one client's connection to all its resources. Its goroutines are one that reads
// requests, and one that waits for changes.
type stream struct {
	s      *Server
	send   func(encoded) error
	delta  bool
	client client
	wake   chan struct{} // its hub has something for it

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
	count    int               // names that the client has asked for
	fresh    []resourceName    // asked for since the last response
	freshAll bool              // all was asked for since then
	known    map[string]string // see request
	answered bool              // something was sent
	held     map[resourceName]*resource
	revision uint64 // that was sent last
	nonce    string
	awaiting bool // the answer to nonce

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
		at.add(n, st.place)
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

// take processes a request.
func (st *stream) take(r *request) error {
	f := st.of(r.kind)
	if r.nonce != "" && r.nonce != f.nonce {
		if !st.delta { // an answer to what is no longer the newest: another request follows
			return nil
		}
	} else if r.nonce != "" {
		f.awaiting = false
		st.s.clients.answered(st, r.kind, f.revision, r.problem)
		if r.problem != "" {
			st.s.counters.rejections.WithLabelValues(r.kind.short()).Inc()
		}
	}
	first, followed := !f.asked, f.count
	f.asked = true
	st.hub.mu.Lock()
	defer st.hub.mu.Unlock()
	at := &st.hub.kinds[r.kind]
	if st.delta {
		st.takeDelta(at, f, r, first)
	} else {
		st.takeState(at, f, r, first)
	}
	switch {
	case f.count > maxNames:
		return status.Errorf(codes.ResourceExhausted, "xds: more than %d names of one type", maxNames)
	case f.count > followed && st.s.hubs.names.Load() > maxNamesInAll:
		return status.Errorf(codes.ResourceExhausted, "xds: clients follow more than %d different names in all; unsubscribe, or ask for all by *", maxNamesInAll)
	}
	return nil
}

const wildcard = "*"

// follow notes that the client asks for a resource.
func (st *stream) follow(at *followers, f *followed, n resourceName) {
	if !at.has(n, st.place) {
		at.add(n, st.place)
		f.count++
	}
	f.fresh = append(f.fresh, n)
}

func (st *stream) unfollow(at *followers, f *followed, n resourceName) {
	if at.has(n, st.place) {
		at.drop(n, st.place)
		f.count--
	}
	delete(f.held, n)
	delete(f.dirty, n)
}

func (st *stream) followAll(at *followers, f *followed, all bool) {
	f.freshAll = all && (f.freshAll || !f.wildcard)
	f.wildcard = all
	at.setAll(st.place, all)
}

func (st *stream) takeDelta(at *followers, f *followed, r *request, first bool) {
	if first {
		f.known = r.known
		// A first request without names is for all, as in the days before the wildcard had a name.
		if len(r.subscribe) == 0 && r.kind.whole() {
			st.followAll(at, f, true)
		}
	}
	for _, name := range r.subscribe {
		if name == wildcard {
			st.followAll(at, f, true)
			continue
		}
		st.follow(at, f, parseName(name))
	}
	for _, name := range r.unsubscribe {
		if name == wildcard {
			st.followAll(at, f, false)
			continue
		}
		st.unfollow(at, f, parseName(name))
	}
	if len(r.unsubscribe) > 0 {
		f.fresh = slices.DeleteFunc(f.fresh, func(n resourceName) bool { return !at.has(n, st.place) })
	}
}

func (st *stream) takeState(at *followers, f *followed, r *request, first bool) {
	if len(r.names) == 0 && first && r.kind.whole() || slices.Contains(r.names, wildcard) {
		st.followAll(at, f, true)
	} else if len(r.names) > 0 && f.wildcard {
		st.followAll(at, f, false)
	}
	wanted := make(map[resourceName]struct{}, len(r.names))
	for _, name := range r.names {
		if name == wildcard {
			continue
		}
		n := parseName(name)
		wanted[n] = struct{}{}
		if !at.has(n, st.place) {
			st.follow(at, f, n)
		}
	}
	if f.count == len(wanted) {
		return
	}
	var gone []resourceName
	for n := range at.names(st.place) {
		if _, ok := wanted[n]; !ok {
			gone = append(gone, n)
		}
	}
	for _, n := range gone {
		st.unfollow(at, f, n)
	}
	f.fresh = slices.DeleteFunc(f.fresh, func(n resourceName) bool { return !at.has(n, st.place) })
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
		if f.lacking() || f != nil && f.asked && !f.answered && kind(k).whole() {
			l |= 1 << k
		}
	}
	return l
}

// sendType sends the difference of one type. It does not while there is no state yet, and while
// that has clusters which the type may refer to and the client lacks.
func (st *stream) sendType(k kind, f *followed) (sent bool, err error) {
	st.hub.mu.Lock()
	now, dirty := st.hub.now, f.dirty
	if now == nil || k >= listeners && st.kinds[clusters].lacking() {
		st.hub.mu.Unlock()
		return false, nil
	}
	f.dirty = nil
	st.hub.mu.Unlock()
	first := !f.answered
	put, gone := st.difference(k, f, now, dirty)
	f.answered, f.fresh, f.freshAll, f.known, f.revision = true, nil, false, nil, now.revision()
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

// difference is what a client lacks, and what it has too much, with what it has; nil where it may
// have had nothing.
func (st *stream) difference(k kind, f *followed, now state, dirty map[resourceName]*resource) (put, gone map[resourceName]*resource) {
	put, gone = map[resourceName]*resource{}, map[resourceName]*resource{}
	for n, was := range dirty {
		is := now.resource(k, n)
		switch {
		case is == nil && was != nil:
			gone[n] = was
		case is != nil && !alike(was, is):
			put[n] = is
			delete(f.held, n)
		}
	}
	asked := func(n resourceName) {
		is := now.resource(k, n)
		version, known := f.known[n.String()]
		switch {
		case is == nil:
			gone[n] = nil
		case !known || version != is.version:
			put[n] = is
			delete(f.held, n)
		}
	}
	for _, n := range f.fresh {
		asked(n)
	}
	if f.freshAll {
		for n := range now.names(k) {
			asked(n)
		}
		for name := range f.known {
			if n := parseName(name); now.resource(k, n) == nil {
				gone[n] = nil
			}
		}
	}
	return put, gone
}

// removeHeld takes what nothing refers to any more.
func (st *stream) removeHeld(k kind, f *followed) error {
	gone := f.held
	f.held = nil
	st.hub.mu.Lock()
	now := st.hub.now
	st.hub.mu.Unlock()
	if now == nil {
		return nil
	}
	return st.respond(k, f, now, nil, gone)
}

// respond sends messages about one type.
func (st *stream) respond(k kind, f *followed, now state, put, gone map[resourceName]*resource) error {
	r := response{url: k.url(), version: strconv.FormatUint(now.revision(), 10)}
	switch {
	case st.delta:
		for n := range gone {
			r.removed = append(r.removed, n.String())
		}
		slices.Sort(r.removed)
		r.put = sorted(put)
	case k.whole():
		r.put = st.everything(k, f, now)
	default:
		// In this protocol nothing else says that the last endpoint has gone.
		if k == endpoints {
			for n, was := range gone {
				if was != nil {
					put = with(put, n, st.s.maker.empty(n))
				}
			}
		}
		if r.put = sorted(put); len(r.put) == 0 {
			return nil
		}
	}
	all := r.put
	for {
		r.put, all = all, nil
		if st.delta || !k.whole() {
			r.put, all = split(r.put)
		}
		st.number++
		f.nonce = strconv.FormatUint(st.number, 36)
		r.nonce, f.awaiting = f.nonce, true
		message := r.state
		if st.delta {
			message = r.delta
		}
		if err := st.send(message()); err != nil {
			return err
		}
		st.s.counters.responses.WithLabelValues(k.short()).Inc()
		st.s.counters.resources.WithLabelValues(k.short()).Add(float64(len(r.put) + len(r.removed)))
		if r.removed = nil; len(all) == 0 {
			return nil
		}
	}
}

func with(m map[resourceName]*resource, n resourceName, r *resource) map[resourceName]*resource {
	if m == nil {
		m = map[resourceName]*resource{}
	}
	m[n] = r
	return m
}

// everything is all of a type that the client follows.
func (st *stream) everything(k kind, f *followed, now state) []*resource {
	put := map[resourceName]*resource{}
	for n, r := range f.held {
		put[n] = r
	}
	var names []resourceName
	st.hub.mu.Lock()
	for n := range st.hub.kinds[k].names(st.place) {
		names = append(names, n)
	}
	st.hub.mu.Unlock()
	if f.wildcard {
		names = slices.AppendSeq(names, now.names(k))
	}
	for _, n := range names {
		if r := now.resource(k, n); r != nil {
			put[n] = r
		}
	}
	return sorted(put)
}

func sorted(m map[resourceName]*resource) []*resource {
	all := make([]*resource, 0, len(m))
	for _, r := range m {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *resource) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
	return all
}

// split cuts off what fits into one message, at least one resource.
func split(all []*resource) (now, later []*resource) {
	size := 0
	for i, r := range all {
		if size += len(r.any) + len(r.name); size > maxResponse && i > 0 {
			return all[:i], all[i:]
		}
	}
	return all, nil
}
