package rbac

import (
	"crypto/sha256"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// maxRemembered bounds the answers that a cache has.
const maxRemembered = 1024

// cache remembers answers by a hash of the question, each for some time.
type cache[V any] struct {
	all *lru.Cache[[sha256.Size]byte, remembered[V]]
}

type remembered[V any] struct {
	value V
	until time.Time
}

func newCache[V any]() cache[V] {
	all, _ := lru.New[[sha256.Size]byte, remembered[V]](maxRemembered) // an error would be a size below 1
	return cache[V]{all}
}

func (c cache[V]) get(key [sha256.Size]byte) (V, bool) {
	r, ok := c.all.Get(key)
	return r.value, ok && time.Now().Before(r.until)
}

func (c cache[V]) put(key [sha256.Size]byte, value V, lasts time.Duration) {
	c.all.Add(key, remembered[V]{value, time.Now().Add(lasts)})
}
