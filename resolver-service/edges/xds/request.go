package xds

import (
	"maps"
	"slices"
)

// What the streams of one app, and those of all, may have the service hold: different names that
// they follow, and bytes of resources from earlier streams.
const (
	maxNamesOfApp = 100_000
	maxNamesInAll = 500_000
	knownShare    = 16 << 20
	knownTotal    = 64 << 20
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
			st.s.host.Tell.Often.Warn("xds refused "+st.client.app.String()+r.kind.short(), "an xDS client refuses what it was sent, and keeps what it had",
				"app", st.client.app.String(), "node", st.client.node, "type", r.kind.short(), "err", short(r.problem))
		}
	}
	first, followed := !f.asked, f.count
	f.asked = true
	f.returning = f.returning || first && (len(r.known) > 0 || r.version != "")
	st.hub.mu.Lock()
	defer st.hub.mu.Unlock()
	at := &st.hub.kinds[r.kind]
	if st.delta {
		if err := st.takeDelta(at, f, r, first); err != nil {
			return err
		}
	} else {
		st.takeState(at, f, r, first)
	}
	switch {
	case f.count > maxNames || len(f.fresh) > maxNames:
		return exceeded("the client follows more than %d names of one type; unsubscribe, or ask for all by *", maxNames)
	case f.count > followed && st.account.names.Load() > maxNamesOfApp:
		return exceeded("the clients of %s follow more than %d different names; unsubscribe, or ask for all by *", st.client.app, maxNamesOfApp)
	case f.count > followed && st.s.hubs.names.Load() > maxNamesInAll:
		return exceeded("clients follow more than %d different names in all; unsubscribe, or ask for all by *", maxNamesInAll)
	}
	return nil
}

const wildcard = "*"

// follow notes that the client asks for a resource.
func (st *stream) follow(at *followers, f *followed, n resourceName) {
	if !at.has(n, st.place) {
		at.add(n, st)
		f.count++
	}
	f.renew(n)
}

// renew notes that the client is to be told of a resource, whatever it has.
func (f *followed) renew(n resourceName) {
	if f.fresh == nil {
		f.fresh = map[resourceName]struct{}{}
	}
	f.fresh[n] = struct{}{}
}

func (st *stream) unfollow(at *followers, f *followed, n resourceName) {
	if at.has(n, st.place) {
		at.drop(n, st.place)
		f.count--
	}
	if f.wildcard && n.cluster == "" { // the client wants to hear whether all has it
		f.renew(n)
	}
}

// forget drops what was to be sent of resources that the client no longer follows.
func (st *stream) forget(at *followers, f *followed) {
	left := func(n resourceName) bool { return !at.has(n, st.place) && !(f.wildcard && n.cluster == "") }
	maps.DeleteFunc(f.fresh, func(n resourceName, _ struct{}) bool { return left(n) })
	maps.DeleteFunc(f.absent, func(n resourceName, _ struct{}) bool { return left(n) })
	maps.DeleteFunc(f.dirty, func(n resourceName, _ *resource) bool { return left(n) })
	maps.DeleteFunc(f.held, func(n resourceName, _ *resource) bool { return left(n) })
}

func (st *stream) followAll(at *followers, f *followed, all bool) {
	f.freshAll = all && (f.freshAll || !f.wildcard)
	f.wildcard = all
	at.setAll(st.place, all)
}

func (st *stream) takeDelta(at *followers, f *followed, r *request, first bool) error {
	if first && len(r.known) > 0 {
		release, ok := st.s.known.TryAcquire(st.client.app.String(), r.knownBytes())
		if !ok {
			return exceeded("the service keeps at most %d MiB of versions for clients that reconnect, %d MiB for one app, until it has heard its peers; reconnect in 20 s", knownTotal>>20, knownShare>>20)
		}
		f.known, f.release = r.known, release
	}
	if first {
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
	return nil
}

// knownBytes is about how much memory the known resources take.
func (r *request) knownBytes() int64 {
	const entry = 64 // of a map, beside the texts
	size := 0
	for name, version := range r.known {
		size += entry + len(name) + len(version)
	}
	return int64(size)
}

// forgetKnown gives up what the client had from an earlier stream.
func (f *followed) forgetKnown() {
	if f.release != nil {
		f.release()
	}
	f.known, f.release = nil, nil
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
