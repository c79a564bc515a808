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
	watchEvery = 25 * time.Millisecond
	// restAfter is how long the watch outlasts the last call.
	restAfter = time.Second
	// shortestSilence is how long a connection may say nothing before it is asked, on a link
	// that is quick; longestSilence on any, and where it answered before. Streams are silent
	// for hours: after so many answers it may last longer still.
	shortestSilence = 150 * time.Millisecond
	longestSilence  = 2 * time.Second
	manyAnswers     = 30
	streamSilence   = 10 * time.Second
	// shortestAnswer is how long an answer may take before calls go elsewhere, on a link that
	// is quick, and shortestEnd before the connection is broken off: there is no hurry then,
	// and a link that has just become slow is not to have calls made twice. longestAnswer is
	// for any.
	shortestAnswer = 150 * time.Millisecond
	shortestEnd    = 3 * time.Second
	// shortestGone is the same where another gateway of the cluster does answer.
	shortestGone  = 600 * time.Millisecond
	longestAnswer = 10 * time.Second
	// inquireEvery is how often whoever does not answer is asked again.
	inquireEvery = 500 * time.Millisecond
	// weighEvery is how often instances are compared by how long calls take there.
	weighEvery = 250 * time.Millisecond
)

// watch looks after all connections of the process while there are calls.
type watch struct {
	calls   atomic.Int64 // under way
	running atomic.Bool

	mu     sync.Mutex
	conns  map[*conn]struct{}
	closed bool
	done   sync.WaitGroup
}

// listening is what the watch has noted of a connection. It belongs to the watch.
type listening struct {
	heard    uint64 // words, when it was last looked at
	silent   time.Duration
	waiting  bool // for an answer
	waited   time.Duration
	since    time.Duration // began waiting, measured from began
	answered int           // inquiries in a row
}

// begin counts a call in, and sees to it that somebody watches.
func (w *watch) begin() {
	if w.calls.Add(1) > 0 && !w.running.Load() && w.running.CompareAndSwap(false, true) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.closed {
			w.done.Go(w.run)
		}
	}
}

// end counts a call out.
func (w *watch) end() { w.calls.Add(-1) }

func (w *watch) join(c *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns[c] = struct{}{}
}

func (w *watch) part(c *conn) {
	w.mu.Lock()
	delete(w.conns, c)
	w.mu.Unlock()
}

func (w *watch) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.done.Wait()
}

func (w *watch) run() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var unused, unweighed time.Duration
	for range tick.C {
		conns := w.all()
		if conns == nil {
			return
		}
		for _, c := range conns {
			c.listen(conns)
		}
		if unweighed += watchEvery; unweighed >= weighEvery {
			unweighed = 0
			weigh(conns)
		}
		if w.calls.Load() > 0 {
			unused = 0
		} else if unused += watchEvery; unused >= restAfter {
			w.running.Store(false)
			if w.calls.Load() == 0 || !w.running.CompareAndSwap(false, true) {
				return
			}
			unused = 0
		}
	}
}

// all are the connections of now; nil once the watch is closed.
func (w *watch) all() []*conn {
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
func (c *conn) listen(all []*conn) {
	if now := c.words.Load(); now != c.heard {
		if c.heard = now; c.waiting {
			c.answered++
		} else {
			c.answered = 0
		}
		c.silent, c.waiting, c.waited = 0, false, 0
		c.point.gate.heard = time.Since(began)
		c.point.doubt(false)
		return
	}
	switch {
	case c.waiting:
		c.waited += watchEvery
		trip := time.Duration(c.point.gate.trip.Load())
		if c.waited >= min(max(shortestAnswer, 3*trip), longestAnswer) {
			c.point.doubt(true)
		}
		if c.waited >= c.patienceAtLast(all, trip) && c.point.spare() {
			c.point.lost()
			c.breakOff()
		} else if c.waited%inquireEvery == 0 {
			c.inquire() // an inquiry before may have found another frame half written
		}
	case c.point.calls.Load() == 0:
		c.silent, c.answered = 0, 0
	default:
		if c.silent += watchEvery; c.silent < c.patience() {
			return
		}
		// What one connection through a gateway does not hear, the others may not hear either.
		for _, o := range all {
			if o.point.gate == c.point.gate && !o.waiting && (o == c || o.words.Load() == o.heard) {
				o.waiting, o.waited, o.since = true, 0, time.Since(began)
				o.inquire()
			}
		}
	}
}

// patienceAtLast is how long a connection that does not answer is kept. Where others hear
// from the same gateway, it is not the link: a packet may be late, or the sidecar behind the
// gateway hangs, and gRPC's keepalive ends that. Where the cluster's other gateway is heard,
// this one is gone.
func (c *conn) patienceAtLast(all []*conn, trip time.Duration) time.Duration {
	p := c.point
	if p.name == "" {
		return min(max(shortestEnd, 9*trip), 2*longestAnswer)
	}
	if p.gate.heard > c.since {
		return math.MaxInt64
	}
	for _, o := range all {
		if o.point.cluster == p.cluster && o.point.gate != p.gate && o.point.gate.heard > c.since {
			return min(max(shortestGone, 5*trip), 2*longestAnswer)
		}
	}
	return min(max(shortestEnd, 9*trip), 2*longestAnswer)
}

// patience is how long a connection may be silent before it is asked: longer on a slow
// link, and each time that it answered, since then it is an app that takes its time.
func (c *conn) patience() time.Duration {
	d := max(shortestSilence, time.Duration(c.point.gate.trip.Load())*3/2)
	if c.answered > manyAnswers {
		return streamSilence
	}
	return min(d<<min(c.answered, 8), max(longestSilence, d))
}

// gates are the addresses that connections go to, of all apps.
type gates struct {
	mu    sync.Mutex
	known map[string]*gate
}

// gate is one address, as its connections fare.
type gate struct {
	address string
	users   int           // of gates.mu
	heard   time.Duration // when a connection to it last said anything, measured from began; of the watch
	trip    atomic.Int64  // nanoseconds there and back, at least; 0 when unknown
}

func (g *gates) use(address string) *gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.known[address]
	if at == nil {
		if g.known == nil {
			g.known = map[string]*gate{}
		}
		at = &gate{address: address}
		g.known[address] = at
	}
	at.users++
	return at
}

func (g *gates) leave(at *gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at.users--; at.users == 0 {
		delete(g.known, at.address)
	}
}

// took notes how long something took there and back, and perhaps an app to answer. It rises
// at once and falls slowly: a link that loses packets has a long way now and then. What an
// app takes says only that the way is no longer than that.
func (g *gate) took(d time.Duration, app bool) {
	last := g.trip.Load()
	if app && int64(d) >= last {
		return
	}
	g.trip.Store(max(int64(d), last-(last-int64(d))/8))
}
