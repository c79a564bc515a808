package etcd

import (
	"maps"
	"slices"
	"sync"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// registered is what is registered here, and what of it is still to be written. Keys are below
// the root.
type registered struct {
	wake chan struct{} // has something in it when there is something to write

	mu    sync.Mutex
	held  map[string]*held
	dirty map[string]bool // what may not be in etcd as it should be
}

// held is one instance's place.
type held struct {
	instance catalog.Instance
	taken    func()
	// fresh says that it has not been written since it registered: it is written over
	// whatever stands, since its sidecar came here last.
	fresh    bool
	revision int64 // of the last write
	writes   int   // how often the instance was changed here
	// restored says that it is from before a restart, and has not been written since: it is
	// written where nothing stands, or over what is older, which stands at revision over.
	restored bool
	over     int64
	beaten   bool // what stands is newer; others don't know of it yet
}

// older tells whether another replica has registered what stands under the key since.
func (h *held) older(p pair, replica string) bool {
	by, since := origin(p.value)
	return !p.deleted && by != replica && since >= h.instance.Since
}

func newRegistered() *registered {
	return &registered{wake: make(chan struct{}, 1), held: map[string]*held{}, dirty: map[string]bool{}}
}

// Clock gives registrations their times: later than every registration of which this replica
// has heard, whatever the clocks of replicas say.
func (s *Source) Clock() *topology.Clock { return &s.replicated.clock }

// Register has an instance written that has registered here by now. taken is called, at
// most once, when it has registered with another replica since; it must not block.
func (s *Source) Register(i catalog.Instance, taken func()) { s.Share(i, false, taken) }

// Share is Register for registrations that are kept over a restart. restored says that the
// instance registered before the restart. With the same Since it has a change of the instance
// written.
func (s *Source) Share(i catalog.Instance, restored bool, taken func()) {
	key, since := keyOf(topology.KeyOf(&i)), i.Since
	s.replicated.clock.Heard(since)
	restored = restored || s.replicated.since(key) >= since // it was taken meanwhile, which is still to be told
	s.registered.mu.Lock()
	defer s.registered.mu.Unlock()
	if h := s.registered.held[key]; h != nil && h.instance.Since == since {
		h.instance, h.taken = i, taken
		h.writes++
	} else {
		s.registered.held[key] = &held{instance: i, taken: taken, fresh: !restored, restored: restored}
	}
	s.registered.soil(key)
}

// Drain has it written that an instance takes no new calls, if it is registered here.
func (s *Source) Drain(k topology.InstanceKey) {
	key := keyOf(k)
	s.registered.mu.Lock()
	defer s.registered.mu.Unlock()
	if h := s.registered.held[key]; h != nil && !h.instance.Draining {
		h.instance.Draining = true
		h.writes++
		s.registered.soil(key)
	}
}

// Withdraw has an instance deleted that is not registered here any more.
func (s *Source) Withdraw(k topology.InstanceKey) {
	key := keyOf(k)
	s.registered.mu.Lock()
	defer s.registered.mu.Unlock()
	delete(s.registered.held, key)
	s.registered.soil(key)
}

// soil is called with mu held.
func (o *registered) soil(key string) {
	o.dirty[key] = true
	o.rouse()
}

// rouse has what is written looked at.
func (o *registered) rouse() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// anew has everything written that is registered here: the lease is a new one.
func (o *registered) anew() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key := range o.held {
		o.soil(key)
	}
}

// entry is one key to be written as it should be now; nil to be deleted.
type entry struct {
	key      string
	held     *held
	instance catalog.Instance
	fresh    bool
	writes   int
	restored bool
	over     int64
}

// take takes up to so many keys to be written. Those that are not settled come again.
func (o *registered) take(most int) (batch []entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key := range o.dirty {
		e := entry{key: key}
		if h := o.held[key]; h != nil {
			e.held, e.instance, e.fresh, e.writes = h, h.instance, h.fresh, h.writes
			e.restored, e.over = h.restored, h.over
		}
		batch = append(batch, e)
		delete(o.dirty, key)
		if len(batch) == most {
			break
		}
	}
	return batch
}

// again has a batch written once more.
func (o *registered) again(batch []entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range batch {
		o.soil(e.key)
	}
}

// written says that an entry is in etcd at a revision. It returns what to call if another
// replica has written it since, as others say by now.
func (o *registered) written(e entry, revision int64, others func(key string) int64) (taken func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.held == nil || o.held[e.key] != e.held {
		return nil
	}
	e.held.fresh, e.held.restored, e.held.revision = false, false, revision
	if e.held.writes != e.writes {
		o.soil(e.key)
	}
	if others(e.key) > revision {
		return o.give(e.key, e.held)
	}
	return nil
}

// lost says that an entry stands under another replica's lease. Where others don't say so
// yet, it is kept until they do: else the instance would be in no view here meanwhile.
func (o *registered) lost(e entry, others func(key string) int64) (taken func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.held == nil || o.held[e.key] != e.held || e.held.fresh || others(e.key) <= e.held.revision {
		return nil
	}
	return o.give(e.key, e.held)
}

// stands says what a restored entry would have been written over. Where it is older, and
// others know what stands, the place is given up; where they don't yet, overwritten does it.
func (o *registered) stands(e entry, p pair, replica string, others func(key string) int64) (taken func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.held[e.key] != e.held || !e.held.restored:
	case !e.held.older(p, replica):
		e.held.over = p.revision
		o.soil(e.key)
	case others(e.key) >= p.revision:
		return o.give(e.key, e.held)
	default:
		e.held.beaten = true
	}
	return nil
}

// overwritten says that another replica wrote a key.
func (o *registered) overwritten(p pair, replica string) (taken func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.held[p.key]
	if h == nil || h.fresh || h.revision >= p.revision || h.restored && !h.beaten && !h.older(p, replica) {
		return nil
	}
	return o.give(p.key, h)
}

// give lets go of a place. It is called with mu held.
func (o *registered) give(key string, h *held) (taken func()) {
	delete(o.held, key)
	delete(o.dirty, key)
	return h.taken
}

// missing says that a key is not in etcd at a revision, or not as it was written: it is
// written again, unless that was before it was written, or what beat it has gone.
func (o *registered) missing(key string, revision int64) (taken func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.held[key]
	switch {
	case h == nil || h.fresh || h.revision > revision:
	case h.beaten:
		return o.give(key, h)
	default:
		o.soil(key)
	}
	return nil
}

// keys are those that are registered here.
func (o *registered) keys() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.held))
}
