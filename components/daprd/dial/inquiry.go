package dial

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"
)

// inquiry finds out whether a silent gateway is there, by probes: to it, and to the
// others of its cluster, lest this machine is the one that is cut off, or the way to all
// of them has become long. Only probes count for that: what the others still say may have
// been under way before.
type inquiry struct {
	gate    *gate
	others  []*gate
	limit   time.Duration
	answers chan answer
	words   uint64 // of the gate when it began
	sent    int

	found     bool // the gate is there, or it can't be known
	elsewhere bool // another has answered a probe, in time
}

// answer is how one probe ended.
type answer struct {
	of      *gate
	outcome outcome
}

type outcome int

const (
	answered   outcome = iota
	unanswered         // in time
	unsent             // for want of something in this machine
)

func newInquiry(g *gate, others []*gate) *inquiry {
	return &inquiry{
		gate: g, others: others,
		limit:   min(max(shortestAnswer, 3*time.Duration(g.trip.Load())), longestAnswer),
		answers: make(chan answer, 2*probes),
		words:   g.words.Load(),
	}
}

// gone tells whether the gateway has vanished. Anything that it says meanwhile ends the
// inquiry, as does the first answer to a probe.
func (q *inquiry) gone() bool {
	deadline := time.NewTimer(q.limit)
	defer deadline.Stop()
	next := time.NewTicker(q.limit / (2 * probes))
	defer next.Stop()
	q.send()
	for !q.found {
		select {
		case <-q.gate.ctx.Done():
			return false
		case a := <-q.answers:
			q.note(a)
		case <-next.C:
			q.found = q.found || q.gate.words.Load() != q.words
			if q.sent < probes && !q.found {
				q.send()
			}
		case <-deadline.C:
			return q.conclude()
		}
	}
	return false
}

// conclude decides when the time is up: a moment later, in case this process had no
// time itself for what has come.
func (q *inquiry) conclude() bool {
	select {
	case <-time.After(watchEvery):
	case <-q.gate.ctx.Done():
		return false
	}
	for len(q.answers) > 0 {
		q.note(<-q.answers)
	}
	return q.elsewhere && !q.found && q.gate.words.Load() == q.words
}

func (q *inquiry) note(a answer) {
	if a.of == q.gate {
		q.found = q.found || a.outcome != unanswered
		return
	}
	q.elsewhere = q.elsewhere || a.outcome == answered
}

// send sends one probe, and one to another gateway while none has answered.
func (q *inquiry) send() {
	q.probe(q.gate)
	if !q.elsewhere {
		q.probe(q.others[q.sent%len(q.others)])
	}
	q.sent++
}

// probe asks for a connection. It waits for longer than the inquiry does: a late answer
// still tells how far away the gateway is.
func (q *inquiry) probe(g *gate) {
	q.gate.running.Go(func() {
		ctx, cancel := context.WithTimeout(q.gate.ctx, 2*q.limit)
		defer cancel()
		q.answers <- answer{g, g.fleet.knock(ctx, g)}
	})
}

// knock asks for a connection and lets go of it with a reset, so that a gateway which
// waits for a first byte (TCP_DEFER_ACCEPT) never sees it.
func knock(ctx context.Context, g *gate) outcome {
	began := time.Now()
	d := net.Dialer{KeepAlive: -1}
	conn, err := d.DialContext(ctx, "tcp", g.address)
	switch {
	case err == nil:
		g.took(time.Since(began))
		reset(conn)
		return answered
	// A gateway that drains listens no more, and serves the connections that it has.
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		g.took(time.Since(began))
		return answered
	case isTimeout(err), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTDOWN):
		return unanswered
	default:
		return unsent
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// reset closes a connection at once and for good: what has not been sent is dropped.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // a connection that is over already needs none
	}
	_ = c.Close()
}
