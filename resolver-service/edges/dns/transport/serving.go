package transport

import (
	"context"
	"log/slog"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/throttle"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

// serving is the state of one call of [Listener.Serve].
type serving struct {
	*Listener
	handler Handler
	often   *throttle.Log // for lines that clients cause
	conns   *conns
	waits   *waits
	release context.CancelFunc
}

// linesEvery is how often clients can cause one and the same line of the log.
const linesEvery = 10 * time.Second

func newServing(ctx context.Context, l *Listener, h Handler, log *slog.Logger) *serving {
	s := &serving{Listener: l, handler: h, often: throttle.New(log, linesEvery), conns: newConns(l.cfg.MaxTCP, l.counts)}
	// What is waited for outlives ctx by a moment.
	waiting, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(graceful, giveUp) })
	s.release = func() { stop(); giveUp() }
	s.waits = newWaits(waiting, l.cfg.MaxWaiting, l.cfg.WaitTimeout)
	return s
}

// worker answers the queries of one socket or connection, one at a time.
type worker struct {
	*serving
	query Query
	tally *tally
}

// worker makes the one of the i-th socket for UDP, or connection.
func (s *serving) worker(p Protocol, i int) *worker {
	w := &worker{serving: s, tally: &s.counts.tcp[i%len(s.counts.tcp)], query: Query{As: s.cfg.As, Protocol: p}}
	if p == UDP {
		w.tally = &s.counts.udp[i]
		w.query.To = s.addr.Addr()
	}
	return w
}

// answerUDP appends what is to be sent at once to w.query, and nothing where nothing is.
// What is to be waited for is sent by send, with the address it goes to.
func (w *worker) answerUDP(out []byte, send func(*Query, []byte)) []byte {
	w.query.Standing = Stranger
	response, later := w.handler.Answer(&w.query, out)
	if later {
		return w.answerLater(out, send)
	}
	if len(response) < wire.HeaderSize {
		w.tally.dropped.Add(1)
		return nil
	}
	return w.limit(&w.query, response)
}

// answerLater has w.query waited for, or says that it can't be.
func (w *worker) answerLater(out []byte, send func(*Query, []byte)) []byte {
	started := w.waits.start(&w.query, w.handler, func(q *Query, response []byte) func() {
		if len(response) < wire.HeaderSize {
			w.tally.dropped.Add(1)
		} else if response = w.limit(q, response); len(response) > 0 {
			send(q, response)
		}
		return nil
	})
	if started {
		w.tally.waited.Add(1)
		return nil
	}
	w.tally.overload.Add(1)
	return w.limit(&w.query, servFail(out, w.query.Packet))
}

// limit is what of a response may be sent.
func (w *worker) limit(q *Query, response []byte) []byte {
	if w.limiter != nil && q.Standing != Proved && len(response) > 0 {
		switch w.limiter.verdict(q, response, time.Now()) {
		case pass:
		case slip:
			w.tally.limited.Add(1)
			w.tally.slipped.Add(1)
			response = truncated(response)
		case drop:
			w.tally.limited.Add(1)
			return nil
		}
	}
	return response
}
