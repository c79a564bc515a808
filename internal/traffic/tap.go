package traffic

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Call is one call, as it ended.
type Call struct {
	At       time.Time   // when it ended
	Peer     catalog.App // the callee, or the caller for ByCallee; zero: no certificate names it
	Cluster  string      // that the peer is in; empty where the call found no connection
	Address  string      // that it went to; empty for ByCallee
	ByCallee bool        // told by the callee's guard
	Attempts int
	End      End
	Code     string // what the end follows from: gRPC's code, or HTTP and a number
	Took     time.Duration
	TraceID  string   // empty without one
	Earlier  []Try    // attempts before the last, the first one first
	Passed   []Passed // what came first and was not taken
}

// Try is an attempt of a call.
type Try struct {
	Cluster, Address string
	Failed           string // how it ended
}

// Passed is a route that takes no calls or few, or has instances that take none.
type Passed struct {
	Cluster string // empty: all
	Why     string
}

// Bounds of taps: calls in a second, attempts and routes of a call, and bytes of a reason. The calls
// of two seconds fit into one message to the service.
const (
	MaxTapped = 100
	MaxSteps  = 4
	MaxReason = 200
)

// Tap hands single calls on while somebody wants them. Its methods may be called from any goroutine,
// and on nil, which nobody wants calls of.
type Tap struct {
	perSecond atomic.Uint32 // 0: nobody wants any

	mu     sync.Mutex
	round  int // of Set
	wants  func(*Call) bool
	second int64
	took   uint32 // in that second
	calls  []Call
	left   uint64 // calls that there was no room for
}

// On tells whether anybody wants calls.
func (t *Tap) On() bool { return t != nil && t.perSecond.Load() > 0 }

// Set has the tap keep so many of the wanted calls a second from now on. What it returns ends that,
// unless Set was called again.
func (t *Tap) Set(perSecond uint32, wants func(*Call) bool) (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.round++
	t.wants = wants
	round := t.round
	t.perSecond.Store(min(perSecond, MaxTapped))
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.round == round {
			t.perSecond.Store(0)
			t.calls, t.left = nil, 0
		}
	}
}

// Add keeps a call, or counts it where there were enough in its second.
func (t *Tap) Add(c Call) {
	if !t.On() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	most := t.perSecond.Load()
	if most == 0 || !t.wants(&c) {
		return
	}
	if second := c.At.Unix(); second != t.second {
		t.second, t.took = second, 0
	}
	if t.took >= most || len(t.calls) >= 2*MaxTapped {
		t.left++
		return
	}
	t.took++
	t.calls = append(t.calls, c)
}

// Take returns the calls since it was called last, and how many are left out.
func (t *Tap) Take() (calls []Call, left uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	calls, left = t.calls, t.left
	t.calls, t.left = nil, 0
	return calls, left
}
