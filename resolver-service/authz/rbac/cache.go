package rbac

import (
	"crypto/sha256"
	"maps"
	"sync"
	"time"
)

// maxRemembered bounds the answers that a cache has.
const maxRemembered = 1024

// cache remembers answers by a hash of the question, each for some time.
type cache[V any] struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]remembered[V]
}

type remembered[V any] struct {
	value V
	until time.Time
}

func newCache[V any]() *cache[V] { return &cache[V]{all: map[[sha256.Size]byte]remembered[V]{}} }

func (c *cache[V]) get(key [sha256.Size]byte) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.all[key]
	if !ok || !time.Now().Before(r.until) {
		var none V
		return none, false
	}
	return r.value, true
}

// put remembers a value. A full cache first forgets what is over, and then everything.
func (c *cache[V]) put(key [sha256.Size]byte, value V, lasts time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if len(c.all) >= maxRemembered {
		maps.DeleteFunc(c.all, func(_ [sha256.Size]byte, r remembered[V]) bool { return !now.Before(r.until) })
	}
	if len(c.all) >= maxRemembered {
		clear(c.all)
	}
	c.all[key] = remembered[V]{value, now.Add(lasts)}
}
