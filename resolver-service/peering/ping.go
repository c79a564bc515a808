package peering

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/live"
)

// A word of a peer counts as of the ping that it echoes. What only says that packets
// come from the peer would keep a peer that can't be called: its words go on coming for
// seconds when the way there is cut off.

// grace is how much later than the ping that it echoes a word may count: as long as
// there and back takes on most paths.
const echoGrace = 750 * time.Millisecond

// stamp numbers a ping: with the time since the link was made, in ns, from 1.
func (l *link) newPing() uint64 { return uint64(time.Since(l.created)) + 1 }

// credit is as of when a word counts that echoes a ping, and how long ago the ping was
// sent; the zero time where it echoes none.
func (l *link) heardAt(echo uint64) (at time.Time, age time.Duration) {
	now := time.Now()
	up := now.Sub(l.created)
	if echo == 0 {
		return time.Time{}, up
	}
	if echo > uint64(up)+1 {
		return now, 0 // a peer that makes it up says only of itself that it is there
	}
	age = up - time.Duration(echo-1)
	if age > echoGrace {
		return now.Add(echoGrace - age), age
	}
	return now, age
}

// keepPinging sends a ping every so often until ctx ends or the stream fails, which its
// reader sees.
func (l *link) sendPings(ctx context.Context, every time.Duration, send func(ping uint64) error) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if send(l.newPing()) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// Bounds of what a server reads.
const (
	firstRequestWithin = 10 * time.Second // from the stream to what it asks
	pingPause          = minRequested / 2 // between two pings
)

// pinging is what a message of an asking peer has.
type pingMessage interface {
	proto.Message
	GetPing() uint64
}

// pings are those that come on one stream.
type pings struct {
	latest  atomic.Uint64
	arrived chan struct{} // there is one that no word has echoed
}

// listen reads the first message of a stream, and its pings from then on until ctx ends
// or the stream does.
func receiveFirst[M pingMessage](ctx context.Context, receive func() (M, error)) (first M, _ *pings, err error) {
	p := &pings{arrived: make(chan struct{}, 1)} // no named result: the goroutine has it after a return of nil
	type received struct {
		message M
		err     error
	}
	asked := make(chan received, 1)
	go func() {
		m, err := receive()
		p.latest.Store(m.GetPing())
		asked <- received{m, err}
		var pace readLimiter
		for err == nil && live.Sleep(ctx, pingPause) {
			if m, err = receive(); err == nil {
				p.note(m.GetPing())
				pace.wait(ctx, 0, proto.Size(m))
			}
		}
	}()
	timer := time.NewTimer(firstRequestWithin)
	defer timer.Stop()
	select {
	case r := <-asked:
		return r.message, p, r.err
	case <-timer.C:
		return first, nil, status.Errorf(codes.DeadlineExceeded, "nothing was asked within %s", firstRequestWithin)
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
