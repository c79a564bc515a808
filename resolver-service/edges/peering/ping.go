package peering

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// A message counts as of the ping that it echoes. Arrival alone is no proof that the peer can be
// called: when the way there is cut, its messages keep coming for seconds.

// echoGrace is how much later than its ping a message may count: about a round trip on most
// paths.
const echoGrace = 750 * time.Millisecond

// pingClock numbers pings.
type pingClock struct{ begun time.Time }

// next returns a number for a ping: the time since the clock began, in ns, from 1.
func (c pingClock) next() uint64 { return uint64(time.Since(c.begun)) + 1 }

// heardAt returns the moment as of which a message counts, by the ping that it echoes, and how
// old that ping is. The moment is zero if the message echoes none.
func (c pingClock) heardAt(echo uint64) (at time.Time, age time.Duration) {
	now := time.Now()
	up := now.Sub(c.begun)
	if echo == 0 {
		return time.Time{}, up
	}
	if echo > uint64(up)+1 {
		return now, 0 // a peer that invents a number proves only that it is there
	}
	age = up - time.Duration(echo-1)
	if age > echoGrace {
		return now.Add(echoGrace - age), age
	}
	return now, age
}

// send sends a ping in each interval, and with each change of the interest, until ctx ends or
// sending fails. The reader of the stream sees that error.
func (c pingClock) send(ctx context.Context, every time.Duration, told *toldInterest, send func(ping uint64, news *v1alpha1.Interest) error) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-told.outdated():
			live.Sleep(ctx, sendPause) // others may follow
		case <-ctx.Done():
			return
		}
		if send(c.next(), told.news()) != nil {
			return
		}
	}
}

// Bounds of what a server reads.
const (
	firstRequestWithin = 10 * time.Second // from the start of a stream to its request
	pingPause          = minRequested / 2 // between two pings
)

// pingMessage is a request with a ping.
type pingMessage interface {
	proto.Message
	GetPing() uint64
	GetInterest() *v1alpha1.Interest
}

// pings are the pings of one stream.
type pings struct {
	latest  atomic.Uint64
	arrived chan struct{} // signals a ping that no message has echoed
}

// receiveFirst returns the first message of a stream. It keeps reading pings until ctx or the
// stream ends, takes the interest from every message, and calls each with it.
func receiveFirst[M pingMessage](ctx context.Context, receive func() (M, error), wants *interest, each ...func(M)) (first M, _ *pings, err error) {
	p := &pings{arrived: make(chan struct{}, 1)} // no named result: the goroutine uses it later
	type received struct {
		message M
		err     error
	}
	asked := make(chan received, 1)
	tell := func(m M) {
		wants.take(m.GetInterest())
		for _, f := range each {
			f(m)
		}
	}
	go func() {
		m, err := receive()
		p.latest.Store(m.GetPing())
		tell(m)
		asked <- received{m, err}
		limiter := newReadLimiter()
		for err == nil && live.Sleep(ctx, pingPause) {
			if m, err = receive(); err == nil {
				p.note(m.GetPing())
				tell(m)
				limiter.wait(ctx, len(m.GetInterest().GetPut())+len(m.GetInterest().GetRemoved()), proto.Size(m))
			}
		}
	}()
	timer := time.NewTimer(firstRequestWithin)
	defer timer.Stop()
	select {
	case r := <-asked:
		return r.message, p, r.err
	case <-timer.C:
		return first, nil, status.Errorf(codes.DeadlineExceeded, "no request within %s", firstRequestWithin)
	case <-ctx.Done():
		return first, nil, ctx.Err()
	}
}

func (p *pings) note(ping uint64) {
	if ping == 0 {
		return
	}
	p.latest.Store(ping)
	select {
	case p.arrived <- struct{}{}:
	default:
	}
}
