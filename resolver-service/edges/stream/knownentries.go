package stream

import (
	"hash/maphash"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/limits/budget"
)

// knownSets holds the known entries of clients until their first message is sent, which may take
// a while after a restart of the service. Sidecars with the same view share one set.
type knownSets struct {
	budget *budget.Budget
	seed   maphash.Seed

	mu   sync.Mutex
	sets map[uint64]*knownSet
}

func newKnownSets(b *budget.Budget) *knownSets {
	return &knownSets{budget: b, seed: maphash.MakeSeed(), sets: map[uint64]*knownSet{}}
}

// knownSet is the set of several clients.
type knownSet struct {
	digests map[catalog.App]uint64
	users   int // guarded by knownSets.mu
	release func()
}

// knownEntries is one client's hold on a set. Nil is the empty set.
type knownEntries struct {
	owner *knownSets
	sum   uint64
	once  sync.Once
	set   *knownSet
}

// acquire keeps entries until they are released. It refuses if all clients hold too many.
func (ks *knownSets) acquire(client string, e *entries) (*knownEntries, error) {
	if len(e.digests) == 0 {
		return nil, nil
	}
	type entry struct {
		app    catalog.App
		digest uint64
	}
	var sum uint64 // the same in any order; the secret seed prevents chosen collisions
	for app, digest := range e.digests {
		sum += maphash.Comparable(ks.seed, entry{app, digest})
	}
	ks.mu.Lock()
	defer ks.mu.Unlock()
	set := ks.sets[sum]
	if set == nil || len(set.digests) != len(e.digests) {
		release, ok := ks.budget.TryAcquire(client, e.bytes)
		if !ok {
			return nil, status.Error(codes.ResourceExhausted, "the known entries of too many clients are held already; reconnect without any")
		}
		set = &knownSet{digests: e.digests, release: release}
		ks.sets[sum] = set
	}
	set.users++
	return &knownEntries{owner: ks, sum: sum, set: set}, nil
}

// digests returns the digests of the entries, by app. The map never changes.
func (k *knownEntries) digests() map[catalog.App]uint64 {
	if k == nil {
		return nil
	}
	return k.set.digests
}

// release gives up the set. The map that digests has returned must not be used after.
func (k *knownEntries) release() {
	if k == nil {
		return
	}
	k.once.Do(func() {
		k.owner.mu.Lock()
		defer k.owner.mu.Unlock()
		if k.set.users--; k.set.users > 0 {
			return
		}
		k.set.release()
		if k.owner.sets[k.sum] == k.set {
			delete(k.owner.sets, k.sum)
		}
	})
}
