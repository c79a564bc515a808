package dial

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/connectivity"
)

// gRPC tries an address that refused a connection again after a second, and then ever
// later, up to two minutes. So when none of a cluster's gateways can be had, and somebody
// wants one, they are asked for connections more often; once one answers, all connections
// are made anew, which asks for no patience.
const (
	// knockEvery is how often an address is asked, whoever wants to know.
	knockEvery = 250 * time.Millisecond
	// longestKnock is how long an answer may take.
	longestKnock = 2 * time.Second
	// callFor is for how long they are asked after a call that failed, and leadFor after
	// lookups came back.
	callFor = 2 * time.Second
	leadFor = 30 * time.Second
	// holdFor is how long calls wait, rather than fail, after lookups came back.
	holdFor = time.Second
	// switchFor is how long after new connections were begun calls wait for them, rather
	// than fail, when the old ones end meanwhile.
	switchFor = 5 * time.Second
	// shortestPatience is how long new connections have to get ready; it doubles each time
	// that they did not, lest those to a gateway that is far away are made anew for ever.
	shortestPatience = time.Second
	longestPatience  = 16 * time.Second
)

// wanted asks the gateways for connections for as long as this, unless there is one.
func (f *follower) wanted(as time.Duration) {
	until := int64(time.Since(began) + as)
	for old := f.until.Load(); old < until && !f.until.CompareAndSwap(old, until); old = f.until.Load() {
	}
	if f.reviving.CompareAndSwap(false, true) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.ctx.Err() == nil {
			f.done.Go(f.revive)
		}
	}
}

func (f *follower) unwanted() bool { return time.Since(began) > time.Duration(f.until.Load()) }

// missed is a call that can't be given a connection. It tells whether it may wait.
func (f *follower) missed(w *watching) bool {
	since, ok := f.leads.back(f)
	f.wanted(callFor)
	if left := holdFor - time.Since(since); ok && left > 0 {
		w.hold(left)
		return true
	}
	return false
}

// revive knocks at the gateways until there is a connection, or nobody wants one.
func (f *follower) revive() {
	tick := time.NewTicker(knockEvery)
	defer tick.Stop()
	if w := f.latest.Load(); w != nil {
		if since, ok := f.leads.back(f); ok {
			w.hold(holdFor - time.Since(since))
		}
	}
	patience := shortestPatience
	var last time.Time // when connections were made anew
	for {
		state, since := f.latest.Load().how()
		if state == connectivity.Ready || f.unwanted() {
			f.reviving.Store(false)
			if state == connectivity.Ready || f.unwanted() || !f.reviving.CompareAndSwap(false, true) {
				return
			}
		}
		slow := state != connectivity.TransientFailure && time.Since(since) > patience
		failed := state == connectivity.TransientFailure && time.Since(last) > patience
		if (slow || failed) && f.answers() {
			if !last.IsZero() {
				patience = min(2*patience, longestPatience)
			}
			last = time.Now()
			f.renew()
		}
		select {
		case <-f.ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// answers tells whether any of the gateways takes connections.
func (f *follower) answers() bool {
	addresses := f.dialled.Load()
	if addresses == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(f.ctx, longestKnock)
	defer cancel()
	open := make(chan struct{}, len(*addresses))
	var knocks sync.WaitGroup
	for _, a := range *addresses {
		knocks.Go(func() {
			if f.fleet.open(ctx, a) {
				open <- struct{}{}
				cancel()
			}
		})
	}
	knocks.Wait()
	return len(open) > 0
}

// trial is whether an address took a connection.
type trial struct {
	began time.Time
	done  chan struct{} // closed when it is known
	open  bool
}

// open tells whether an address takes connections. All that ask at about the same time have
// one answer.
func (f *fleet) open(ctx context.Context, address string) bool {
	f.mu.Lock()
	for a, t := range f.trials {
		if time.Since(t.began) > 2*longestKnock {
			delete(f.trials, a)
		}
	}
	t := f.trials[address]
	if t != nil && time.Since(t.began) < knockEvery/2 {
		f.mu.Unlock()
		select {
		case <-t.done:
			return t.open
		case <-ctx.Done():
			return false
		}
	}
	t = &trial{began: time.Now(), done: make(chan struct{})}
	f.trials[address] = t
	f.mu.Unlock()
	defer close(t.done)
	d := net.Dialer{KeepAlive: -1}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	reset(conn)
	t.open = true
	return true
}
