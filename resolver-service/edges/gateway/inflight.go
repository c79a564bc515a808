package gateway

import (
	"hash/maphash"
	"sync"
)

// inflight knows the ClientHellos of the connections that are being connected or passed on
// now. A gateway passes bytes on untouched. So a connection that comes back to it, by NAT, a
// load balancer or another gateway, begins with bytes that are already known, whatever its
// addresses are. A client never sends a random of 32 bytes twice.
type inflight struct {
	seed maphash.Seed

	mu   sync.Mutex
	keys map[uint64]struct{}
}

// helloPrefix is the part of a ClientHello that ends with the client's random: the header
// of the record (5 bytes), of the message (4), the version (2), and the random (32).
const helloPrefix = 5 + 4 + 2 + 32

func newInflight() *inflight {
	return &inflight{seed: maphash.MakeSeed(), keys: make(map[uint64]struct{})}
}

// add notes the hello of a connection, which may be noted already as its own; false if it
// is that of another connection.
func (f *inflight) add(a *admitted, hello []byte) bool {
	if a.key != 0 {
		return true
	}
	key := maphash.Bytes(f.seed, hello[:min(len(hello), helloPrefix)]) | 1 // 0 is none
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.keys[key]; known {
		return false
	}
	f.keys[key] = struct{}{}
	a.key = key
	return true
}

// remove forgets the hello of a connection that has ended.
func (f *inflight) remove(a *admitted) {
	if a.key == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.keys, a.key)
}
