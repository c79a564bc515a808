package xds

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// hubKey is which view a hub follows.
type hubKey struct {
	gateway  bool
	app      catalog.App // of an own view; zero: the view of apps without a selection
	nameless bool        // see client
}

// hub follows one view for all streams that have it. It works out once what a change alters, and
// tells the streams that follow this, and no others.
type hub struct {
	follow  func() (state, changes)
	stop    func()        // that it follows
	settled chan struct{} // the server's
	users   int           // guarded by hubs.mu

	mu      sync.Mutex
	now     state // nil before the first
	early   bool  // now may lack what the view had before the service started
	streams []*stream
	free    []int // places in streams
	kinds   [kinds]followers
}

// followers are the streams that follow resources of one type, by their places.
type followers struct {
	of    map[resourceName]following
	all   slots         // that have asked for all
	count *atomic.Int64 // of names in the maps of all hubs
}

// following is the streams that follow one resource. It counts for the app of the first one.
type following struct {
	slots
	account *account
}

// hubs are the views that some stream has.
type hubs struct {
	server *Server
	mu     sync.Mutex
	all    map[hubKey]*hub
	names  atomic.Int64 // that are followed
}

// acquire returns the hub of a view, which runs until it is released as often.
func (hs *hubs) acquire(key hubKey) *hub {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h := hs.all[key]
	if h == nil {
		h = hs.newHub()
		h.follow, h.stop = hs.server.follow(key)
		ctx, cancel := context.WithCancel(context.Background())
		unfollow := h.stop
		h.stop = func() { cancel(); unfollow() }
		h.catchUp()
		hs.server.running.Go(func() { h.run(ctx) })
		hs.all[key] = h
	}
	h.users++
	return h
}

func (hs *hubs) newHub() *hub {
	h := &hub{settled: hs.server.settled, early: true}
	for k := range h.kinds {
		h.kinds[k].count = &hs.names
	}
	return h
}

func (hs *hubs) release(key hubKey, h *hub) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h.users--; h.users == 0 {
		h.stop()
		if hs.all[key] == h {
			delete(hs.all, key)
		}
	}
}

// run follows the view until ctx ends.
func (h *hub) run(ctx context.Context) {
	settled := h.settled
	for {
		changed := h.catchUp()
		if !h.early {
			settled = nil
		}
		select {
		case <-settled:
		case <-changed[0]:
		case <-changed[1]:
		case <-changed[2]:
		case <-ctx.Done():
			return
		}
	}
}

// catchUp takes the newest state, and returns what tells of a newer one.
func (h *hub) catchUp() changes {
	early := isOpen(h.settled) // must be known before the state is read
	next, changed := h.follow()
	h.advance(next, early)
	return changed
}

// advance takes a newer state, and tells the streams that follow what it alters. No state is the
// end of a view.
func (h *hub) advance(next state, early bool) {
	woken := map[*stream]struct{}{}
	h.mu.Lock()
	was := h.now
	if (was == nil) != (next == nil) || early != h.early {
		for _, st := range h.streams {
			if st != nil {
				woken[st] = struct{}{}
			}
		}
	}
	h.early = early
	switch {
	case was == nil, next == nil:
		h.now = next
	case !next.same(was):
		h.now = next
		for k := range kinds {
			h.compare(k, was, woken)
		}
	}
	h.mu.Unlock()
	for st := range woken {
		st.notify()
	}
}

func isOpen(c <-chan struct{}) bool {
	select {
	case <-c:
		return false
	default:
		return true
	}
}

// compare notes what differs from an older state of one type with those that follow it.
func (h *hub) compare(k kind, was state, woken map[*stream]struct{}) {
	f := &h.kinds[k]
	if len(f.of) == 0 && len(f.all) == 0 {
		return
	}
	for n := range h.now.changed(k, was) {
		named, all := f.of[n].slots, f.all
		if n.cluster != "" {
			all = nil // who has asked for all gets apps, wherever they are
		}
		if len(named) == 0 && len(all) == 0 {
			continue
		}
		before, after := was.resource(k, n), h.now.resource(k, n)
		if alike(before, after) {
			continue
		}
		each(named, all, func(place int) {
			st := h.streams[place]
			st.kinds[k].note(n, before)
			woken[st] = struct{}{}
		})
	}
}

func alike(a, b *resource) bool {
	return a == b || a != nil && b != nil && a.version == b.version
}

// join gives a stream a place.
func (h *hub) join(st *stream) (place int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if last := len(h.free) - 1; last >= 0 {
		place, h.free = h.free[last], h.free[:last]
		h.streams[place] = st
		return place
	}
	h.streams = append(h.streams, st)
	return len(h.streams) - 1
}

// leave takes a place, and returns what the stream has followed by name.
func (h *hub) leave(place int) (names [kinds][]resourceName, last state) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k := range h.kinds {
		f := &h.kinds[k]
		for n, of := range f.of {
			if of.has(place) {
				names[k] = append(names[k], n)
				f.drop(n, place)
			}
		}
		f.setAll(place, false)
	}
	h.streams[place] = nil
	h.free = append(h.free, place)
	return names, h.now
}

// has tells whether a stream has asked for a resource by its name. The caller holds the hub's lock,
// as of all methods of followers.
func (f *followers) has(n resourceName, place int) bool { return f.of[n].has(place) }

func (f *followers) add(n resourceName, st *stream) {
	if f.of == nil {
		f.of = map[resourceName]following{}
	}
	of, ok := f.of[n]
	if !ok {
		of.account = st.account
		of.account.names.Add(1)
		f.count.Add(1)
	}
	of.add(st.place)
	f.of[n] = of
}

func (f *followers) drop(n resourceName, place int) {
	if of := f.of[n]; of.has(place) && !of.remove(place) {
		delete(f.of, n)
		of.account.names.Add(-1)
		f.count.Add(-1)
	}
}

func (f *followers) setAll(place int, follows bool) {
	if follows {
		f.all.add(place)
	} else if f.all.has(place) && !f.all.remove(place) {
		f.all = nil
	}
}

// names yields what a stream has asked for by name.
func (f *followers) names(place int) func(yield func(resourceName) bool) {
	return func(yield func(resourceName) bool) {
		for n, of := range f.of {
			if of.has(place) && !yield(n) {
				return
			}
		}
	}
}
