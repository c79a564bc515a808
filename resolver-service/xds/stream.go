package xds

import (
	"context"
	"slices"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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

// stream is one client's connection to all its resources. One goroutine runs it.
type stream struct {
	s      *Server
	send   func(encoded) error
	delta  bool
	client client
	kinds  [kinds]*followed
	number uint64 // of nonces
	now    state  // nil before the first
}

// followed is what a stream knows of one type of resources.
type followed struct {
	following
	asked    bool
	fresh    []resourceName    // asked for since the last response
	freshAll bool              // the wildcard was asked for since then
	known    map[string]string // see request
	sent     state             // that the client has
	held     map[resourceName]*resource
	nonce    string
	awaiting bool // the answer to nonce
}

// changes are closed once there may be another state. Some may be nil.
type changes [3]<-chan struct{}

// run serves a client until its stream ends.
func (st *stream) run(ctx context.Context, requests <-chan *request, follow func() (state, changes)) error {
	defer st.close()
	for {
		next, changed := follow()
		if next != nil && (st.now == nil || !next.same(st.now)) {
			st.now = next
		}
		if err := st.advance(); err != nil {
			return err
		}
		select {
		case <-changed[0]:
		case <-changed[1]:
		case <-changed[2]:
		case r, ok := <-requests:
			if !ok {
				return nil
			}
			if err := st.take(r); err != nil {
				return err
			}
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

func (st *stream) close() {
	for _, f := range st.kinds {
		if f != nil {
			f.close()
		}
	}
}

// of is what the stream knows of a type.
func (st *stream) of(k kind) *followed {
	if st.kinds[k] == nil {
		st.kinds[k] = &followed{following: following{index: st.s.index}}
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
		st.s.clients.answered(st, r.kind, f.sent, r.problem)
	}
	first := !f.asked
	f.asked = true
	if st.delta {
		st.takeDelta(f, r, first)
	} else {
		st.takeState(f, r, first)
	}
	if f.count() > maxNames {
		return status.Errorf(codes.ResourceExhausted, "xds: more than %d names of one type", maxNames)
	}
	return nil
}

const wildcard = "*"

func (st *stream) takeDelta(f *followed, r *request, first bool) {
	if first {
		f.known = r.known
		// A first request without names is for all, as in the days before the wildcard had a name.
		if len(r.subscribe) == 0 && r.kind.whole() {
			f.wildcard, f.freshAll = true, true
		}
	}
	for _, name := range r.subscribe {
		if name == wildcard {
			f.freshAll = !f.wildcard || f.freshAll
			f.wildcard = true
			continue
		}
		n := parseName(name)
		f.add(n)
		f.fresh = append(f.fresh, n)
	}
	for _, name := range r.unsubscribe {
		if name == wildcard {
			f.wildcard, f.freshAll = false, false
			continue
		}
		n := parseName(name)
		f.remove(n)
		delete(f.held, n)
		f.fresh = slices.DeleteFunc(f.fresh, func(other resourceName) bool { return other == n })
	}
}

func (st *stream) takeState(f *followed, r *request, first bool) {
	if len(r.names) == 0 && first && r.kind.whole() || slices.Contains(r.names, wildcard) {
		f.freshAll = !f.wildcard || f.freshAll
		f.wildcard = true
	} else if len(r.names) > 0 || !f.wildcard {
		f.wildcard, f.freshAll = false, false
	}
	wanted := make(map[resourceName]struct{}, len(r.names))
	for _, name := range r.names {
		if name == wildcard {
			continue
		}
		n := parseName(name)
		wanted[n] = struct{}{}
		if !f.named(n) {
			f.add(n)
			f.fresh = append(f.fresh, n)
		}
	}
	if f.count() == len(wanted) {
		return
	}
	var gone []resourceName
	for n := range f.all {
		if _, ok := wanted[n]; !ok {
			gone = append(gone, n)
		}
	}
	for _, n := range gone {
		f.remove(n)
		delete(f.held, n)
	}
	f.fresh = slices.DeleteFunc(f.fresh, func(n resourceName) bool { return !f.named(n) })
}

// advance sends what the client lacks: what others refer to before what refers to it, and in the
// opposite order what goes.
func (st *stream) advance() error {
	if st.now == nil {
		return nil
	}
	for k := range kinds {
		if f := st.kinds[k]; f != nil && f.asked && !f.awaiting && (k < listeners || st.current(clusters)) {
			if err := st.update(k, f); err != nil {
				return err
			}
		}
	}
	if !st.current(listeners) || !st.current(routes) {
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

// current tells whether a client has the newest state of a type, or does not follow the type.
func (st *stream) current(k kind) bool {
	f := st.kinds[k]
	return f == nil || !f.asked || f.sent == st.now
}

// update sends the difference of one type.
func (st *stream) update(k kind, f *followed) error {
	if f.sent == st.now && len(f.fresh) == 0 && !f.freshAll {
		return nil
	}
	put, gone := st.difference(k, f)
	first := f.sent == nil
	f.sent, f.fresh, f.freshAll, f.known = st.now, nil, false, nil
	if k < listeners { // listeners and routes may still refer to them
		for n, r := range gone {
			if r != nil && !st.alone() {
				if f.held == nil {
					f.held = map[resourceName]*resource{}
				}
				f.held[n] = r
				delete(gone, n)
			}
		}
	}
	if len(put) == 0 && len(gone) == 0 && !(first && k.whole()) {
		return nil
	}
	return st.respond(k, f, put, gone)
}

// alone tells whether the client follows neither listeners nor routes.
func (st *stream) alone() bool { return st.kinds[listeners] == nil && st.kinds[routes] == nil }

// difference is what a client lacks, and what it has too much, with what it has; nil where it may
// have had nothing.
func (st *stream) difference(k kind, f *followed) (put map[resourceName]*resource, gone map[resourceName]*resource) {
	put, gone = map[resourceName]*resource{}, map[resourceName]*resource{}
	asked := func(n resourceName) {
		r := st.now.resource(k, n)
		version, known := f.known[n.String()]
		switch {
		case r == nil:
			gone[n] = nil
		case !known || version != r.version:
			put[n] = r
		}
	}
	if f.sent != nil && f.sent != st.now {
		for n := range st.now.changed(k, f.sent) {
			if !f.has(n) || f.wildcard && n.cluster != "" && !f.named(n) {
				continue
			}
			was, is := f.sent.resource(k, n), st.now.resource(k, n)
			switch {
			case is == nil && was != nil:
				gone[n] = was
			case is != nil && (was == nil || was.version != is.version):
				put[n] = is
				delete(f.held, n)
			}
		}
	}
	for _, n := range f.fresh {
		asked(n)
	}
	if f.freshAll {
		for n := range st.now.names(k) {
			asked(n)
		}
		for name := range f.known {
			if n := parseName(name); st.now.resource(k, n) == nil {
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
	return st.respond(k, f, nil, gone)
}

// respond sends messages about one type.
func (st *stream) respond(k kind, f *followed, put, gone map[resourceName]*resource) error {
	r := response{url: k.url(), version: strconv.FormatUint(st.now.revision(), 10)}
	switch {
	case st.delta:
		for n := range gone {
			r.removed = append(r.removed, n.String())
		}
		slices.Sort(r.removed)
		r.put = sorted(put)
	case k.whole():
		r.put = st.everything(k, f)
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
func (st *stream) everything(k kind, f *followed) []*resource {
	put := map[resourceName]*resource{}
	for n, r := range f.held {
		put[n] = r
	}
	for n := range f.all {
		if r := st.now.resource(k, n); r != nil {
			put[n] = r
		}
	}
	if f.wildcard {
		for n := range st.now.names(k) {
			put[n] = st.now.resource(k, n)
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
