package xds

import (
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxNames is how many names of one type a client may follow.
const maxNames = 50_000

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
	version     string            // SotW: that it has, in a first request from an earlier stream
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
	f.returning = f.returning || first && (len(r.known) > 0 || r.version != "")
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
	if f.wildcard && n.cluster == "" { // the client wants to hear whether all has it
		f.fresh = append(f.fresh, n)
	}
}

// forget drops what was to be sent of resources that the client no longer follows.
func (st *stream) forget(at *followers, f *followed) {
	left := func(n resourceName) bool { return !at.has(n, st.place) && !(f.wildcard && n.cluster == "") }
	f.fresh, f.absent = slices.DeleteFunc(f.fresh, left), slices.DeleteFunc(f.absent, left)
	maps.DeleteFunc(f.dirty, func(n resourceName, _ *resource) bool { return left(n) })
	maps.DeleteFunc(f.held, func(n resourceName, _ *resource) bool { return left(n) })
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
		st.forget(at, f)
	}
}

func (st *stream) takeState(at *followers, f *followed, r *request, first bool) {
	had := f.wildcard
	switch {
	case slices.Contains(r.names, wildcard):
		f.unnamed = false
		st.followAll(at, f, true)
	case len(r.names) == 0 && (f.unnamed || first && r.kind.whole()):
		f.unnamed = true
		st.followAll(at, f, true)
	case f.wildcard:
		f.unnamed = false
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
	if f.count == len(wanted) && had == f.wildcard {
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
	st.forget(at, f)
}
