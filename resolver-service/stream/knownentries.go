package stream

import (
	"hash/maphash"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/budget"
)

// knownSets holds what clients know from before until they are sent their first message.
// After a restart of the service that may take a while. Sidecars of one view know the same,
// and share one set.
type knownSets struct {
	budget *budget.Budget
	seed   maphash.Seed

	mu   sync.Mutex
	sets map[uint64]*knownSet
}

func newKnownSets(b *budget.Budget) *knownSets {
	return &knownSets{budget: b, seed: maphash.MakeSeed(), sets: map[uint64]*knownSet{}}
}

// knownSet is what several clients know.
type knownSet struct {
	digests map[catalog.App]uint64
	users   int // guarded by knownSets.mu
	release func()
}

// known is what one client knows. A nil one is nothing.
type knownEntries struct {
	owner *knownSets
	sum   uint64
	once  sync.Once
	set   *knownSet
}

// hold keeps entries until they are dropped, or refuses where there are too many.
func (ks *knownSets) acquire(client string, e *entries) (*knownEntries, error) {
	if len(e.digests) == 0 {
		return nil, nil
	}
	type entry struct {
		app    catalog.App
		digest uint64
	}
	var sum uint64 // the same in any order; nobody outside can aim at one, not knowing the seed
	for app, digest := range e.digests {
		sum += maphash.Comparable(ks.seed, entry{app, digest})
	}
	ks.mu.Lock()
	defer ks.mu.Unlock()
	set := ks.sets[sum]
	if set == nil || len(set.digests) != len(e.digests) {
		release, ok := ks.budget.TryAcquire(client, e.bytes)
		if !ok {
			return nil, status.Error(codes.ResourceExhausted, "the known entries of too many clients are held already; come back with none")
		}
		set = &knownSet{digests: e.digests, release: release}
		ks.sets[sum] = set
	}
	set.users++
	return &knownEntries{owner: ks, sum: sum, set: set}, nil
}

// digests are those of the entries, by app. They don't change.
func (k *knownEntries) digests() map[catalog.App]uint64 {
	if k == nil {
		return nil
	}
	return k.set.digests
}

// drop lets go of the set. What digests has returned must not be used after.
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
