package forward

import (
	"hash/maphash"
	"sync"
)

// cache keeps answers by key, bounded in number and bytes. Who has to go is found by SIEVE
// (NSDI 2024): what was asked for again since the hand last came by stays. So a flood of names
// that are asked for once pushes out its own, and not what is in use.
type cache struct {
	seed   maphash.Seed
	shards []shard
}

const (
	mostShards   = 16
	smallestPart = 64 // answers in a shard, below which there are fewer shards
	overhead     = 256
)

func newCache(entries, size int) *cache {
	n := min(mostShards, max(1, entries/smallestPart))
	c := &cache{seed: maphash.MakeSeed(), shards: make([]shard, n)}
	for i := range c.shards {
		c.shards[i] = shard{entries: max(0, entries) / n, size: max(0, size) / n, byKey: map[string]*kept{}}
	}
	return c
}

func (c *cache) shard(key []byte) *shard {
	return &c.shards[maphash.Bytes(c.seed, key)%uint64(len(c.shards))]
}

// get returns an answer, whatever its age, or nil.
func (c *cache) get(key []byte) *answer { return c.shard(key).get(key) }

// put keeps an answer. One that ends at once is not kept, and neither is the one before it:
// that is true no longer.
func (c *cache) put(key string, a *answer) {
	s := c.shard([]byte(key))
	if a.expires.After(a.stored) {
		s.put(key, a)
	} else {
		s.drop(key)
	}
}

// load is what is kept.
func (c *cache) load() (entries, size int) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		entries += len(s.byKey)
		size += s.used
		s.mu.Unlock()
	}
	return entries, size
}

// kept is one answer in a shard's list, newest first.
type kept struct {
	key          string
	answer       *answer
	asked        bool // since the hand came by
	newer, older *kept
}

func (k *kept) size() int {
	return overhead + len(k.key) + len(k.answer.packed) + 2*len(k.answer.ttls) + len(k.answer.options)
}

type shard struct {
	mu      sync.Mutex
	byKey   map[string]*kept
	newest  *kept
	oldest  *kept
	hand    *kept // the next to be looked at; nil: the oldest
	used    int
	entries int // bounds
	size    int
}

func (s *shard) get(key []byte) *answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.byKey[string(key)]
	if k == nil {
		return nil
	}
	k.asked = true
	return k.answer
}

func (s *shard) put(key string, a *answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.byKey[key]; k != nil {
		s.used -= k.size()
		k.answer = a
		s.used += k.size()
	} else {
		s.add(&kept{key: key, answer: a})
	}
	for len(s.byKey) > s.entries || s.used > s.size {
		s.evict()
	}
}

func (s *shard) add(k *kept) {
	k.older = s.newest
	if s.newest != nil {
		s.newest.newer = k
	} else {
		s.oldest = k
	}
	s.newest = k
	s.byKey[k.key] = k
	s.used += k.size()
}

// drop lets go of what is kept by a key.
func (s *shard) drop(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.byKey[key]
	if k == nil {
		return
	}
	if s.hand == k {
		s.hand = k.newer
	}
	s.remove(k)
}

// evict lets one go: the first from the hand on, towards the newer, that nobody asked for.
func (s *shard) evict() {
	k := s.hand
	for {
		if k == nil {
			k = s.oldest
		}
		if !k.asked {
			break
		}
		k.asked = false
		k = k.newer
	}
	s.hand = k.newer
	s.remove(k)
}

func (s *shard) remove(k *kept) {
	if k.newer != nil {
		k.newer.older = k.older
	} else {
		s.newest = k.older
	}
	if k.older != nil {
		k.older.newer = k.newer
	} else {
		s.oldest = k.newer
	}
	delete(s.byKey, k.key)
	s.used -= k.size()
}
