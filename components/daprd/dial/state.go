package dial

import (
	"sync"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/connectivity"
)

// standing is how the connections of one follower stand, as round_robin sees it. It is safe
// for use by many goroutines.
type standing struct {
	turn *turn

	mu       sync.Mutex
	follower *follower
	last     balancer.State
	since    time.Time   // of that state
	held     time.Time   // until then calls wait where they would fail
	release  *time.Timer // ends that
	closed   bool
}

// waiting has calls wait for the next picker.
var waiting = base.NewErrPicker(balancer.ErrNoSubConnAvailable)

// UpdateState hands gRPC a picker that counts calls.
func (w *watching) UpdateState(s balancer.State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.ConnectivityState != w.last.ConnectivityState {
		w.since = time.Now()
	}
	if s.ConnectivityState == connectivity.Ready {
		w.held = time.Time{}
	}
	w.last = s
	w.publish()
}

// publish tells gRPC how things stand. It wants the lock.
func (w *watching) publish() {
	s := w.last
	switch {
	case w.closed:
		return
	case s.ConnectivityState != connectivity.TransientFailure:
		s.Picker = &picker{s.Picker}
	case time.Now().Before(w.held):
		s = balancer.State{ConnectivityState: connectivity.Connecting, Picker: waiting}
	case w.follower != nil:
		s.Picker = &failing{s.Picker, w, w.follower}
	}
	w.balancing.publish(w.turn, s)
}

// hold has calls wait for so long where they would fail.
func (w *watching) hold(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	until := time.Now().Add(d)
	if d <= 0 || w.closed || w.last.ConnectivityState == connectivity.Ready || !until.After(w.held) {
		return
	}
	w.held = until
	if w.release != nil {
		w.release.Stop()
	}
	w.release = time.AfterFunc(d, w.letGo)
	if w.last.ConnectivityState == connectivity.TransientFailure {
		w.publish()
	}
}

// letGo has calls fail again.
func (w *watching) letGo() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last.ConnectivityState == connectivity.TransientFailure {
		w.publish()
	}
}

// how is the state of the connections, and since when. Before the first there is none.
func (w *watching) how() (connectivity.State, time.Time) {
	if w == nil {
		return connectivity.Connecting, time.Now()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last.ConnectivityState, w.since
}

// follow makes the policy that of a follower. What it fails to reach is not said while the
// one before it still has connections: those would be left.
func (w *watching) follow(f *follower) {
	w.mu.Lock()
	w.follower = f
	if w.since.IsZero() {
		w.since = time.Now()
	}
	w.mu.Unlock()
	before := f.latest.Swap(w)
	if before == nil || before == w {
		return
	}
	if state, _ := before.how(); state == connectivity.Ready {
		w.hold(switchFor)
	} else {
		w.hold(before.left())
	}
}

// follows is whose policy it is; nil before that is known.
func (w *watching) follows() *follower {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.follower
}

// left is for how long calls wait yet.
func (w *watching) left() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Until(w.held)
}

func (w *watching) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.release != nil {
		w.release.Stop()
	}
}

// failing is the picker while no connection can be had: calls fail, unless lookups have
// just come back.
type failing struct {
	balancer.Picker
	watching *watching
	follower *follower
}

// Pick is called for each call.
func (p *failing) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	if p.follower.missed(p.watching) {
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	}
	return p.Picker.Pick(info)
}
