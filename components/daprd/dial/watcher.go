package dial

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A sidecar or a gateway that vanishes with its machine, its link, or because its process
// hangs, says nothing: TCP sends again for many minutes, and calls wait. So who has calls
// under way and is silent is asked to say something. No answer means that new calls go
// elsewhere, if there is anywhere else; a while later the connection is broken off, so that
// the calls on it end.
const (
	// watchEvery is how often connections are looked at. Time is counted in these: a
	// process that did not run has not waited.
	watchInterval = 25 * time.Millisecond
	// restAfter is how long the watch outlasts the last call.
	watchIdleTimeout = time.Second
	// shortestSilence is how long a connection may say nothing before it is asked, on a link
	// that is quick; longestSilence on any, and where it answered before. Streams are silent
	// for hours: after so many answers it may last longer still.
	minSilence    = 150 * time.Millisecond
	maxSilence    = 2 * time.Second
	manyAnswers   = 30
	streamSilence = 10 * time.Second
	// shortestAnswer is how long an answer may take before calls go elsewhere, on a link that
	// is quick, and shortestEnd before the connection is broken off: there is no hurry then,
	// and a link that has just become slow is not to have calls made twice. longestAnswer is
	// for any.
	minPingTimeout = 150 * time.Millisecond
	minAbort       = 3 * time.Second
	// shortestGone is the same where another gateway of the cluster does answer.
	minGatewayAbort = 600 * time.Millisecond
	maxPingTimeout  = 10 * time.Second
	// inquireEvery is how often whoever does not answer is asked again.
	pingInterval = 500 * time.Millisecond
	// weighEvery is how often instances are compared by how long calls take there.
	compareInterval = 250 * time.Millisecond
)

// watch looks after all connections of the process while there are calls.
type watcher struct {
	calls   atomic.Int64 // under way
	running atomic.Bool

	mu     sync.Mutex
	conns  map[*conn]struct{}
	closed bool
	done   sync.WaitGroup
}

// listening is what the watch has noted of a connection. It belongs to the watch.
type silence struct {
	lastReads     uint64 // words, when it was last looked at
	silent        time.Duration
	pinged        bool // for an answer
	unansweredFor time.Duration
	pingedAt      time.Duration // began waiting, measured from began
	answers       int           // inquiries in a row
}

// begin counts a call in, and sees to it that somebody watches.
func (w *watcher) callBegan() {
	if w.calls.Add(1) > 0 && !w.running.Load() && w.running.CompareAndSwap(false, true) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.closed {
			w.done.Go(w.run)
		}
	}
}

// end counts a call out.
func (w *watcher) callEnded() { w.calls.Add(-1) }

func (w *watcher) add(c *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns[c] = struct{}{}
}

func (w *watcher) remove(c *conn) {
	w.mu.Lock()
	delete(w.conns, c)
	w.mu.Unlock()
}

func (w *watcher) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.done.Wait()
}

func (w *watcher) run() {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	var unused, unweighed time.Duration
	for range tick.C {
		conns := w.connections()
		if conns == nil {
			return
		}
		for _, c := range conns {
			c.check(conns)
		}
		if unweighed += watchInterval; unweighed >= compareInterval {
			unweighed = 0
			updatePenalties(conns)
		}
		if w.calls.Load() > 0 {
			unused = 0
		} else if unused += watchInterval; unused >= watchIdleTimeout {
			w.running.Store(false)
			if w.calls.Load() == 0 || !w.running.CompareAndSwap(false, true) {
				return
			}
			unused = 0
		}
	}
}

// all are the connections of now; nil once the watch is closed.
func (w *watcher) connections() []*conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	conns := make([]*conn, 0, len(w.conns))
	for c := range w.conns {
		conns = append(conns, c)
	}
	return conns
}

// listen is one look at a connection.
func (c *conn) check(all []*conn) {
	if now := c.reads.Load(); now != c.lastReads {
		if c.lastReads = now; c.pinged {
			c.answers++
		} else {
			c.answers = 0
		}
		c.silent, c.pinged, c.unansweredFor = 0, false, 0
		c.endpoint.remote.lastHeard = time.Since(processStart)
		c.endpoint.setUnresponsive(false)
		return
	}
	switch {
	case c.pinged:
		c.unansweredFor += watchInterval
		trip := time.Duration(c.endpoint.remote.roundTrip.Load())
		if c.unansweredFor >= min(max(minPingTimeout, 3*trip), maxPingTimeout) {
			c.endpoint.setUnresponsive(true)
		}
		if c.unansweredFor >= c.abortAfter(all, trip) && c.endpoint.hasAlternative() {
			c.endpoint.logAborted()
			c.abort()
		} else if c.unansweredFor%pingInterval == 0 {
			c.ping() // an inquiry before may have found another frame half written
		}
	case c.endpoint.calls.Load() == 0:
		c.silent, c.answers = 0, 0
	default:
		if c.silent += watchInterval; c.silent < c.pingAfter() {
			return
		}
		// What one connection through a gateway does not hear, the others may not hear either.
		for _, o := range all {
			if o.endpoint.remote == c.endpoint.remote && !o.pinged && (o == c || o.reads.Load() == o.lastReads) {
				o.pinged, o.unansweredFor, o.pingedAt = true, 0, time.Since(processStart)
				o.ping()
			}
		}
	}
}

// patienceAtLast is how long a connection that does not answer is kept. Where others hear
// from the same gateway, it is not the link: a packet may be late, or the sidecar behind the
// gateway hangs, and gRPC's keepalive ends that. Where the cluster's other gateway is heard,
// this one is gone.
func (c *conn) abortAfter(all []*conn, trip time.Duration) time.Duration {
	p := c.endpoint
	if p.name == "" {
		return min(max(minAbort, 9*trip), 2*maxPingTimeout)
	}
	if p.remote.lastHeard > c.pingedAt {
		return math.MaxInt64
	}
	for _, o := range all {
		if o.endpoint.cluster == p.cluster && o.endpoint.remote != p.remote && o.endpoint.remote.lastHeard > c.pingedAt {
			return min(max(minGatewayAbort, 5*trip), 2*maxPingTimeout)
		}
	}
	return min(max(minAbort, 9*trip), 2*maxPingTimeout)
}

// patience is how long a connection may be silent before it is asked: longer on a slow
// link, and each time that it answered, since then it is an app that takes its time.
func (c *conn) pingAfter() time.Duration {
	d := max(minSilence, time.Duration(c.endpoint.remote.roundTrip.Load())*3/2)
	if c.answers > manyAnswers {
		return streamSilence
	}
	return min(d<<min(c.answers, 8), max(maxSilence, d))
}

// gates are the addresses that connections go to, of all apps.
type remotes struct {
	mu    sync.Mutex
	known map[string]*remote
}

// gate is one address, as its connections fare.
type remote struct {
	address   string
	users     int           // of gates.mu
	lastHeard time.Duration // when a connection to it last said anything, measured from began; of the watch
	roundTrip atomic.Int64  // nanoseconds there and back, at least; 0 when unknown
}

func (r *remotes) acquire(address string) *remote {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.known[address]
	if at == nil {
		if r.known == nil {
			r.known = map[string]*remote{}
		}
		at = &remote{address: address}
		r.known[address] = at
	}
	at.users++
	return at
}

func (r *remotes) release(at *remote) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at.users--; at.users == 0 {
		delete(r.known, at.address)
	}
}

// took notes how long something took there and back, and perhaps an app to answer. It rises
// at once and falls slowly: a link that loses packets has a long way now and then. What an
// app takes says only that the way is no longer than that.
func (r *remote) observe(d time.Duration, app bool) {
	last := r.roundTrip.Load()
	if app && int64(d) >= last {
		return
	}
	r.roundTrip.Store(max(int64(d), last-(last-int64(d))/8))
}
