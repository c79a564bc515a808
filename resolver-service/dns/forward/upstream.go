package forward

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/throttle"
)

// upstream is a resolver that we ask, and how it is.
type upstream struct {
	address netip.AddrPort
	index   int
	log     *slog.Logger
	often   *throttle.Log // for lines that queries cause
	wake    chan struct{} // holds a token when it should be looked at

	mu       sync.Mutex
	failures int // in a row, that were no time-outs
	down     bool
	loops    bool // sends our own queries back to us
	last     error
	since    time.Time // of down or loops
	warned   time.Time // of a query that came back
	probes   uint64    // of ours that came back from it
}

// failuresToDown in a row make an upstream one that is asked after all others.
const failuresToDown = 2

// rank is 0 for an upstream to ask, 1 for one that is down, 2 for one that sends queries back.
func (u *upstream) rank() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.loops:
		return 2
	case u.down:
		return 1
	}
	return 0
}

// worked notes that it has answered, whatever it said.
func (u *upstream) worked() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.failures = 0
	if u.down {
		u.down = false
		u.often.Info("up", "dns: upstream answers again", "upstream", u.address, "after", time.Since(u.since).Round(time.Millisecond))
	}
}

// failed notes that it could not be asked, or that nothing of what it said was an answer.
func (u *upstream) failed(err error) {
	u.mu.Lock()
	u.failures++
	enough := u.failures >= failuresToDown
	u.mu.Unlock()
	if enough {
		u.goDown(err)
	}
}

func (u *upstream) goDown(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last = err
	if u.down {
		return
	}
	u.down, u.since = true, time.Now()
	u.often.Warn("down", "dns: upstream does not answer; it is asked after all others until it does", "upstream", u.address, "err", brief(err))
	u.suspect()
}

// suspect has it looked at: it is slow with a question, which may be the question's fault.
func (u *upstream) suspect() {
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// How often upstreams are looked at.
const (
	probeTimeout  = 1500 * time.Millisecond
	probePause    = time.Second      // at least, between two; doubled while it is down
	probeLongest  = 15 * time.Second // while it is down
	probeReturned = time.Minute      // for one that sends queries back
)

// watch probes an upstream at the start, when it is suspected, and for as long as something
// is wrong with it.
func (f *Forwarder) watch(ctx context.Context, u *upstream) {
	pause := probePause
	for {
		f.probe(ctx, u)
		var wake chan struct{}
		switch u.rank() {
		case 0:
			pause, wake = probePause, u.wake
		case 1:
			pause = min(2*pause, probeLongest)
		case 2:
			pause = probeReturned
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		if wake == nil {
			continue
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return
		}
	}
}

// probe asks an upstream for a name that nobody else asks for. An answer, whatever it says, is
// a sign of life; if the query comes back to us meanwhile, the upstream sends here what it
// is asked.
func (f *Forwarder) probe(ctx context.Context, u *upstream) {
	probing, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	before := u.cameBackSoFar()
	_, err := f.exchange(probing, u, f.probeName(u), false, false)
	loops := u.cameBackSoFar() != before
	u.setLoops(loops)
	switch {
	case err == nil:
		u.worked()
	case ctx.Err() == nil && !loops:
		u.goDown(err)
	}
}

// cameBack notes a query of ours that came back from it.
func (u *upstream) cameBack(probe bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if probe {
		u.probes++
	}
	if time.Since(u.warned) > probeReturned {
		u.warned = time.Now()
		u.log.Warn("dns: a query that we sent to an upstream came back to us: it forwards to this server; take one out of the other's list", "upstream", u.address)
	}
}

func (u *upstream) cameBackSoFar() uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.probes
}

func (u *upstream) setLoops(loops bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if loops != u.loops {
		u.loops, u.since = loops, time.Now()
	}
}
