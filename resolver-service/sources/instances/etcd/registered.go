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
	// unwritten means not written since the instance registered. It overwrites any value, since
	// its sidecar came here last.
	unwritten bool
	revision  int64 // of the last write
	writes    int   // how often the instance was changed here
	// restored means from before a restart and not written since. It is written where the key is
	// missing, or over an older value, which has the revision over.
	restored   bool
	over       int64
	superseded bool // etcd has a newer registration that replicated does not know yet
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
		s.registered.held[key] = &held{instance: i, taken: taken, unwritten: !restored, restored: restored}
	}
	s.registered.markDirty(key)
}

// Drain has it written that an instance takes no new calls, if it is registered here.
func (s *Source) Drain(k topology.InstanceKey) {
	key := keyOf(k)
	s.registered.mu.Lock()
	defer s.registered.mu.Unlock()
	if h := s.registered.held[key]; h != nil && !h.instance.Draining {
		h.instance.Draining = true
		h.writes++
		s.registered.markDirty(key)
	}
}

// Withdraw has an instance deleted that is not registered here any more.
func (s *Source) Withdraw(k topology.InstanceKey) {
	key := keyOf(k)
	s.registered.mu.Lock()
	defer s.registered.mu.Unlock()
	delete(s.registered.held, key)
	s.registered.markDirty(key)
}

// markDirty has a key written or deleted. It is called with mu held.
func (o *registered) markDirty(key string) {
	o.dirty[key] = true
	o.wakeWriter()
}

// wakeWriter wakes the writer, see Source.write.
func (o *registered) wakeWriter() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// rewriteAll writes every instance again, under a new lease.
func (o *registered) rewriteAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key := range o.held {
		o.markDirty(key)
	}
}

// entry is one key to be written as it should be now; nil to be deleted.
type entry struct {
	key       string
	held      *held
	instance  catalog.Instance
	unwritten bool
	writes    int
	restored  bool
	over      int64
}

// take takes up to so many keys to be written. Those that are not settled come again.
func (o *registered) take(most int) (batch []entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key := range o.dirty {
		e := entry{key: key}
		if h := o.held[key]; h != nil {
			e.held, e.instance, e.unwritten, e.writes = h, h.instance, h.unwritten, h.writes
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

// requeue writes a batch once more.
func (o *registered) requeue(batch []entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range batch {
		o.markDirty(e.key)
	}
}

// written takes in that an entry is in etcd at a revision. It returns what to call if another
// replica has written it since.
func (o *registered) written(e entry, revision int64, others func(key string) int64) (taken func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.held == nil || o.held[e.key] != e.held {
		return nil
	}
	e.held.unwritten, e.held.restored, e.held.revision = false, false, revision
	if e.held.writes != e.writes {
		o.markDirty(e.key)
	}
	if others(e.key) > revision {
		return o.release(e.key, e.held)
	}
	return nil
}

// heldByOther takes in that etcd has an entry under another replica's lease. Until replicated knows
// that too, the entry is kept: else no view here would have the instance meanwhile.
func (o *registered) heldByOther(e entry, others func(key string) int64) (taken func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.held == nil || o.held[e.key] != e.held || e.held.unwritten || others(e.key) <= e.held.revision {
		return nil
	}
	return o.release(e.key, e.held)
}

// foundOther takes in what etcd has under the key of a restored entry. A newer registration takes
// the place: here if replicated knows it, and otherwise later, in overwritten.
func (o *registered) foundOther(e entry, p pair, replica string, others func(key string) int64) (taken func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.held[e.key] != e.held || !e.held.restored:
	case !e.held.older(p, replica):
		e.held.over = p.revision
		o.markDirty(e.key)
	case others(e.key) >= p.revision:
		return o.release(e.key, e.held)
	default:
		e.held.superseded = true
	}
	return nil
}

// overwritten takes in that another replica wrote a key.
func (o *registered) overwritten(p pair, replica string) (taken func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.held[p.key]
	if h == nil || h.unwritten || h.revision >= p.revision || h.restored && !h.superseded && !h.older(p, replica) {
		return nil
	}
	return o.release(p.key, h)
}

// release gives up a place. It is called with mu held.
func (o *registered) release(key string, h *held) (taken func()) {
	delete(o.held, key)
	delete(o.dirty, key)
	return h.taken
}

// missing takes in that a key is not in etcd at a revision, or not as it was written. It is
// written again, unless it was written since, or a newer registration took its place and is gone.
func (o *registered) missing(key string, revision int64) (taken func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.held[key]
	switch {
	case h == nil || h.unwritten || h.revision > revision:
	case h.superseded:
		return o.release(key, h)
	default:
		o.markDirty(key)
	}
	return nil
}

// keys are those that are registered here.
func (o *registered) keys() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.held))
}
