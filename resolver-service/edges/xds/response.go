package xds

import (
	"slices"
	"strconv"
)

// maxResponse bounds the resources in a message, in bytes, where a type allows several messages.
const maxResponse = 128 << 10

// difference is what a client lacks, and what it has too much, with what it has; nil where it may
// have had nothing. Early, before the service has settled, what is absent may still come.
func (st *stream) difference(k kind, f *followed, now state, dirty map[resourceName]*resource, early bool) (put, gone map[resourceName]*resource) {
	put, gone = map[resourceName]*resource{}, map[resourceName]*resource{}
	for n, was := range dirty {
		is := now.resource(k, n)
		switch {
		case is == unanswered:
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
		case is == unanswered: // it is dirty once it is something else
		case is == nil:
			if f.absent == nil {
				f.absent = map[resourceName]struct{}{}
			}
			f.absent[n] = struct{}{}
		case !known || version != is.version:
			put[n] = is
			delete(f.held, n)
		}
	}
	for n := range f.fresh {
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
	if early {
		return put, gone
	}
	for n := range f.absent {
		if _, had := gone[n]; !had && now.resource(k, n) == nil {
			gone[n] = nil
		}
	}
	f.absent = nil
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
