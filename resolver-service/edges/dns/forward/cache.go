package forward

import (
	"container/list"
	"encoding/binary"
	"sync"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

// maxKey is the longest key: a name, type, class, and a byte for DO and CD.
const maxKey = wire.MaxName + 5

// appendKey appends the key of an answer: the question in lower case, and a byte, since queries
// with DO or CD get answers of their own.
func appendKey(to []byte, q *wire.Query) []byte {
	to = binary.BigEndian.AppendUint16(append(to, q.Name.Wire()...), uint16(q.Type))
	to = binary.BigEndian.AppendUint16(to, uint16(q.Class))
	bits := byte(q.Flags() & wire.FlagCD)
	if q.DO() {
		bits |= 1
	}
	return append(to, bits)
}

// cache keeps answers by key, bounded in number and bytes. The answer that was used longest ago goes
// first. A library's cache would make a string of the key of each query.
type cache struct {
	mu       sync.Mutex
	byKey    map[string]*list.Element
	order    *list.List // of *kept, the last one that was asked for in front
	bytes    int
	most     int
	maxBytes int
}

type kept struct {
	key    string
	answer *answer
}

func newCache(most, maxBytes int) *cache {
	return &cache{byKey: map[string]*list.Element{}, order: list.New(), most: max(most, 0), maxBytes: maxBytes}
}

// get returns an answer, also one that has expired, or nil.
func (c *cache) get(key []byte) *answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byKey[string(key)]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*kept).answer
}

// put keeps an answer unless it expires at once.
func (c *cache) put(key string, a *answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byKey[key]; e != nil {
		c.remove(e)
	}
	if !a.expires.After(a.stored) {
		return
	}
	c.byKey[key] = c.order.PushFront(&kept{key, a})
	c.bytes += a.size()
	for len(c.byKey) > c.most || c.bytes > c.maxBytes {
		c.remove(c.order.Back())
	}
}

func (c *cache) remove(e *list.Element) {
	k := c.order.Remove(e).(*kept)
	delete(c.byKey, k.key)
	c.bytes -= k.answer.size()
}

// load is what the cache keeps.
func (c *cache) load() (answers, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byKey), c.bytes
}
