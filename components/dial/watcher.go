package dial

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A sidecar or a gateway that is lost with its machine or its link, or because its process hangs,
// sends nothing. TCP then retransmits for many minutes, and calls wait. So the watcher pings a
// connection with calls under way that is silent. Without an answer new calls go elsewhere, if
// there is another endpoint. Later the watcher aborts the connection, so that its calls end.
const (
	// watchInterval is how often the watcher checks connections. It counts time in intervals,
	// so time while the process did not run does not count.
	watchInterval = 25 * time.Millisecond
	// watchIdleTimeout is how long the watcher runs after the last call, and the last ping.
	watchIdleTimeout = time.Second
	// On a quick link a connection may be silent for minSilence before it is pinged. On a slow link,
	// or after answers, it may be silent for up to maxSilence. Streams are silent for hours: after
	// manyAnswers in a row the limit is streamSilence.
	minSilence    = 150 * time.Millisecond
	maxSilence    = 2 * time.Second
	manyAnswers   = 30
	streamSilence = 10 * time.Second
	// An answer may take minPingTimeout on a quick link, and up to maxPingTimeout on a slow one.
	// Then calls go elsewhere.
	minPingTimeout = 150 * time.Millisecond
	maxPingTimeout = 10 * time.Second
	// minAbort is how long a connection on a quick link is kept without an answer. There is no
	// hurry, and on a link that has just become slow no call should be made twice. If another
	// gateway of the cluster answers, minGatewayAbort holds.
	minAbort        = 3 * time.Second
	minGatewayAbort = 600 * time.Millisecond
	// pingInterval is how often an unanswered ping is repeated.
	pingInterval = 500 * time.Millisecond
	// compareInterval is how often instances are compared by latency.
	compareInterval = 250 * time.Millisecond
)

// watcher checks all connections of the process while calls are under way.
type watcher struct {
	calls   atomic.Int64 // under way
	running atomic.Bool

	mu     sync.Mutex
	conns  map[*conn]struct{}
	closed bool
	done   sync.WaitGroup
}

// silence is what the watcher remembers of a connection. Only the watcher's goroutine uses it.
type silence struct {
	lastReads     uint64 // conn.reads at the last check
	silent        time.Duration
	pinged        bool          // and not answered yet
	pingedAt      time.Duration // since processStart
	unansweredFor time.Duration
	answers       int // to pings, in a row
}

// callBegan counts a call in, and starts the watcher if it does not run.
func (w *watcher) callBegan() {
	if w.calls.Add(1) > 0 && !w.running.Load() && w.running.CompareAndSwap(false, true) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.closed {
			w.done.Go(w.run)
		}
	}
}

// callEnded counts a call out.
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
	var idle, sinceCompared time.Duration
	for range tick.C {
		conns := w.connections()
		if conns == nil {
			return
		}
		pinged := false
		for _, c := range conns {
			c.check(conns)
			pinged = pinged || c.pinged
		}
		if sinceCompared += watchInterval; sinceCompared >= compareInterval {
			sinceCompared = 0
			updatePenalties(conns)
		}
		if w.calls.Load() > 0 || pinged { // an answer is awaited
			idle = 0
		} else if idle += watchInterval; idle >= watchIdleTimeout {
			w.running.Store(false)
			if w.calls.Load() == 0 || !w.running.CompareAndSwap(false, true) {
				return
			}
			idle = 0
		}
	}
}

// connections returns the current connections, or nil once the watcher is closed.
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

// check looks at one connection, and pings or aborts it when due.
func (c *conn) check(all []*conn) {
	e := c.endpoint
	if reads := c.reads.Load(); reads != c.lastReads {
		if c.lastReads = reads; c.pinged {
			c.answers++
		} else {
			c.answers = 0
		}
		c.silent, c.pinged, c.unansweredFor = 0, false, 0
		e.remote.lastHeard = time.Since(processStart)
		e.setUnresponsive(false)
		return
	}
	switch {
	case c.pinged:
		c.unansweredFor += watchInterval
		if c.unansweredFor >= c.pingTimeout() {
			c.learnRoundTrip()
			if c.unansweredFor >= c.pingTimeout() {
				e.setUnresponsive(true)
			}
		}
		if c.unansweredFor >= c.abortAfter(all) && e.balancer.hasAlternative(e) {
			e.channel.dialer.log.Warn("an endpoint has stopped answering; its connection is closed and calls go elsewhere. Check its process, its machine and the link to it",
				"app", e.channel.app.String(), "endpoint", e.name, "address", e.address, "calls", e.calls.Load())
			c.abort()
		} else if c.unansweredFor%pingInterval == 0 {
			c.ping() // the ping before may have found another frame half written
		}
	case e.calls.Load() == 0:
		c.silent, c.answers = 0, 0
	default:
		if c.silent += watchInterval; c.silent < c.pingAfter() {
			return
		}
		// If one connection through a gateway is cut off, the others probably are, too.
		for _, o := range all {
			if o.endpoint.remote == e.remote && !o.pinged && (o == c || o.reads.Load() == o.lastReads) {
				o.pinged, o.unansweredFor, o.pingedAt = true, 0, time.Since(processStart)
				o.ping()
			}
		}
	}
}

// pingTimeout returns how long the answer to a ping may take.
func (c *conn) pingTimeout() time.Duration {
	return min(max(minPingTimeout, 3*c.endpoint.remote.roundTrip()), maxPingTimeout)
}

// learnRoundTrip raises the estimate of the round trip to the kernel's. Ours is too low if calls
// overlap: an answer may belong to an earlier call than the one that it is measured from.
func (c *conn) learnRoundTrip() {
	if d := kernelRoundTrip(c.Conn); d > c.endpoint.remote.roundTrip() {
		c.endpoint.remote.observe(d, false)
	}
}

// abortAfter returns how long a connection is kept without an answer. If other connections to
// the same gateway hear from it, the link is up: a packet is late, or the sidecar behind the
// gateway hangs, and gRPC's keepalive closes the connection. If only another gateway of the
// cluster answers, this one is gone.
func (c *conn) abortAfter(all []*conn) time.Duration {
	shortest, roundTrips := minAbort, time.Duration(9)
	if e := c.endpoint; e.name != "" {
		if e.remote.lastHeard > c.pingedAt {
			return math.MaxInt64
		}
		for _, o := range all {
			if o.endpoint.cluster == e.cluster && o.endpoint.remote != e.remote && o.endpoint.remote.lastHeard > c.pingedAt {
				shortest, roundTrips = minGatewayAbort, 5
			}
		}
	}
	return min(max(shortest, roundTrips*c.endpoint.remote.roundTrip()), 2*maxPingTimeout)
}

// pingAfter returns how long a connection may be silent before it is pinged. Each answer makes it
// longer: the app just takes its time.
func (c *conn) pingAfter() time.Duration {
	d := max(minSilence, c.endpoint.remote.roundTrip()*3/2)
	if c.answers > manyAnswers {
		return streamSilence
	}
	return min(d<<min(c.answers, 8), max(maxSilence, d))
}
