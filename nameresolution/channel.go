package nameresolution

import (
	"context"
	"errors"
	"strings"
	"sync"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
)

// channel is one connection to a replica with its one stream, after the hello. Its fields
// belong to the client's goroutine, but for the channels.
type channel struct {
	to           replica
	registers    bool    // the hello named the instance
	base         *mirror // that the hello named; nil once the first message is taken in
	heard        bool    // something came
	access       *access // that the hello named
	toldAccess   bool    // something came about that
	reportsCalls bool    // who called is told on it
	toldGuard    bool    // it was told that the guard is loaded; under client.reportingCalls
	reports      bool    // what calls don't get to is told on it

	life    context.Context // of the stream
	sending sync.Mutex      // on the stream
	stream  pb.Resolver_WatchClient

	received chan message
	renew    chan struct{} // closed when the connection is to be made anew
	end      func()
}

// message is a message of the service, or why there are no more.
type message struct {
	change *pb.WatchResponse
	err    error
}

// open connects to a replica and says hello, with the instance if it is to be registered.
func (c *client) open(ctx context.Context, to replica, ready bool) (*channel, error) {
	conn, err := c.dial(to)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ch := &channel{
		to: to, registers: ready && (c.drain.Err() == nil || c.hailed.Load()),
		received: make(chan message), renew: make(chan struct{}),
	}
	ch.end = func() {
		cancel()
		_ = conn.Close() // nothing is lost: the stream has ended
	}
	stream, err := pb.NewResolverClient(conn).Watch(ctx)
	if ch.life, ch.stream = ctx, stream; err == nil {
		err = c.greet(stream, ch)
	}
	if err != nil {
		ch.end()
		return nil, err
	}
	undrain := func() {}
	if ch.registers {
		c.hailed.Store(true)
		undrain = c.drainThrough(ch)
	}
	c.running.Go(func() {
		if !ch.read(ctx, stream) {
			return
		}
		c.running.Go(func() {
			if c.renewal(stream.Context()) == nil {
				close(ch.renew)
			}
		})
		for ch.read(ctx, stream) {
		}
	})
	ended := ch.end
	ch.end = sync.OnceFunc(func() {
		ended()
		undrain()
	})
	return ch, nil
}

// greet says hello.
func (c *client) greet(stream pb.Resolver_WatchClient, ch *channel) error {
	if c.contact.away() > provisionalFor {
		c.mirror = c.mirror.final()
	}
	if ch.base = c.mirror; c.afresh || !ch.base.fits(maxKnown, maxKnownBytes) {
		ch.base = nil
	}
	ch.access = c.access
	hello := &pb.Hello{
		App: wire.App(c.app), Revision: c.mirror.revision(), Known: ch.base.known(), Provisional: c.mirror != nil && c.mirror.provisional,
		Version: c.version, Runtime: c.runtime, PlainText: c.plainText, TrustAnchors: c.anchors,
		Guards: !c.unguarded, Taps: c.tap != nil, Access: c.access.known(), HasOthers: c.replicas.several(), TurnedAwayMs: c.sinceTurnedAway(),
	}
	if ch.registers {
		hello.Instance = &pb.Instance{Id: c.instance.Id, Address: c.instance.Address, Zone: c.instance.Zone, Version: c.instance.Version, Calls: c.instance.Calls, Draining: c.draining()}
		if why := c.unwell.Load(); why != nil {
			hello.Instance.Unwell = strings.ToValidUTF8((*why)[:min(len(*why), maxWhy)], "?")
		}
	}
	err := stream.Send(&pb.WatchRequest{Request: &pb.WatchRequest_Hello{Hello: hello}})
	if err != nil {
		return errors.Join(last(stream), err)
	}
	return nil
}

// read hands on the next message, or why there is none; then it returns false.
func (ch *channel) read(ctx context.Context, stream pb.Resolver_WatchClient) bool {
	change, err := stream.Recv()
	select {
	case ch.received <- message{change, err}:
		return err == nil
	case <-ctx.Done():
		return false
	}
}

// send says something after the hello.
func (ch *channel) send(m *pb.WatchRequest) error {
	ch.sending.Lock()
	defer ch.sending.Unlock()
	return ch.stream.Send(m)
}

// words are what comes; on no channel nothing does.
func (ch *channel) messages() <-chan message {
	if ch == nil {
		return nil
	}
	return ch.received
}

// close ends the stream and its connection; a nil channel has none.
func (ch *channel) close() {
	if ch != nil {
		ch.end()
	}
}

// drainThrough says on a stream that the instance drains, now or when the time comes. It
// returns what ends that.
func (c *client) drainThrough(ch *channel) (end func()) {
	said := make(chan struct{})
	stop := context.AfterFunc(c.drain, func() {
		defer close(said)
		// A failure is that of the stream, which Recv returns.
		_ = ch.send(&pb.WatchRequest{Request: &pb.WatchRequest_Drain{Drain: &pb.Drain{}}})
	})
	return func() {
		if !stop() {
			<-said
		}
	}
}

// last is why a stream on which nothing can be sent has ended.
func last(stream pb.Resolver_WatchClient) error {
	_, err := stream.Recv()
	return err
}
