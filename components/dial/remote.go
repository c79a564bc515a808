package dial

import (
	"sync"
	"sync/atomic"
	"time"
)

// remotes has the remote address of every connection in the process.
type remotes struct {
	mu        sync.Mutex
	byAddress map[string]*remote
}

// remote is what connections of all apps to one address share.
type remote struct {
	address   string
	users     int           // belongs to remotes.mu
	lastHeard time.Duration // when a connection to it last received anything, since processStart; belongs to the watcher
	estimate  atomic.Int64  // of the round trip, in nanoseconds; 0 if unknown
}

// acquire returns the remote of an address. The caller releases it after use.
func (r *remotes) acquire(address string) *remote {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.byAddress[address]
	if at == nil {
		at = &remote{address: address}
		r.byAddress[address] = at
	}
	at.users++
	return at
}

func (r *remotes) release(at *remote) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at.users--; at.users == 0 {
		delete(r.byAddress, at.address)
	}
}

// roundTrip estimates how long a packet takes there and back; 0 if unknown.
func (r *remote) roundTrip() time.Duration { return time.Duration(r.estimate.Load()) }

// observe records how long an answer took. The estimate rises at once and falls slowly, since a
// lossy link is slow only now and then. An answer by an app includes the app's own time, so it
// can only lower the estimate.
func (r *remote) observe(took time.Duration, byApp bool) {
	last := r.estimate.Load()
	if byApp && int64(took) >= last {
		return
	}
	r.estimate.Store(max(int64(took), last-(last-int64(took))/8))
}
