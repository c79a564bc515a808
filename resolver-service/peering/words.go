package peering

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// firstSetWithin is how long a peer may take to say all that it exports.
const firstSetWithin = 2 * time.Minute

// unreadyWithin is how long a service that does not know yet what it exports is listened to
// where the cluster has another gateway: that may lead to a replica that knows.
const unreadyWithin = time.Second

var errUnready = errors.New("connected, but the resolver service there can't reach its config store yet; trying another gateway")

// follows opens the stream of exports. others tells whether the cluster has other gateways.
func (l *link) follows(ctx context.Context, conn *grpc.ClientConn, renew time.Duration, others bool) (receiver, error) {
	known, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	stream, err := v1alpha1.NewPeeringClient(conn).Exports(ctx)
	if err != nil {
		return nil, err
	}
	ask := &v1alpha1.ExportsRequest{Cluster: l.cfg.Cluster, Known: known, RenewMs: uint32(renew.Milliseconds()), Ping: l.stamp()}
	if stream.Send(ask) == nil { // what is wrong, Recv says
		go l.keepPinging(ctx, renew, func(ping uint64) error { return stream.Send(&v1alpha1.ExportsRequest{Ping: ping}) })
	}
	opened, first := time.Now(), true
	var pace pace
	take := func(m *v1alpha1.ExportsResponse, at time.Time) error {
		defer func() { pace.keep(ctx, len(m.GetPut())+len(m.GetRemoved()), proto.Size(m)) }()
		if m.GetCluster() != l.cluster {
			return misnamed{l.cluster, m.GetCluster()}
		}
		if first && m.GetMore() && time.Since(opened) > firstSetWithin && m.GetRevision() != 0 {
			return status.Errorf(codes.ResourceExhausted, "cluster %s has not said all that it exports within %s", l.cluster, firstSetWithin)
		}
		if first && m.GetMore() && m.GetRevision() == 0 && others && time.Since(opened) > unreadyWithin {
			return errUnready
		}
		first = first && m.GetMore()
		l.status.said(m.GetRevision(), m.GetHears())
		if err := l.hand(ctx, m, first, at); err != nil {
			return err
		}
		l.parts(m.GetHoldsMs())
		return nil
	}
	return func() (incoming, error) {
		m, err := stream.Recv()
		return incoming{m.GetEcho(), func(at time.Time) error { return take(m, at) }}, err
	}, nil
}

// begin prepares for a new stream, and says what to ask the peer with.
func (l *link) begin(ctx context.Context) (known []*v1alpha1.Known, err error) {
	done := make(chan struct{})
	select {
	case l.words <- word{begin: func(all []*v1alpha1.Known) { known = all }, done: done}:
		<-done
		return known, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// hand gives a message to the run goroutine and waits until it has been taken in. first
// tells that the stream's first set is not complete with it; at is as of when it counts.
func (l *link) hand(ctx context.Context, m *v1alpha1.ExportsResponse, first bool, at time.Time) error {
	// A word counts when it comes, not when there is time for it. But a lease that has run
	// out begins anew only once all that the peer has to say was taken in.
	fresh := l.lease.state().fresh
	if fresh {
		l.heard(at)
	}
	done := make(chan struct{})
	select {
	case l.words <- word{message: m, done: done}:
		<-done
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if !fresh && !first && l.current.whole() {
		l.heard(at)
	}
	return nil
}

// renews opens a stream of renewals.
func (l *link) renews(ctx context.Context, conn *grpc.ClientConn, renew time.Duration) (receiver, error) {
	stream, err := v1alpha1.NewPeeringClient(conn).Renew(ctx)
	if err != nil {
		return nil, err
	}
	ask := &v1alpha1.RenewRequest{Cluster: l.cfg.Cluster, RenewMs: uint32(renew.Milliseconds()), Ping: l.stamp()}
	if stream.Send(ask) == nil { // what is wrong, Recv says
		go l.keepPinging(ctx, renew, func(ping uint64) error { return stream.Send(&v1alpha1.RenewRequest{Ping: ping}) })
	}
	var pace pace
	take := func(m *v1alpha1.RenewResponse, at time.Time) error {
		pace.keep(ctx, 0, proto.Size(m))
		if m.GetCluster() != l.cluster {
			return misnamed{l.cluster, m.GetCluster()}
		}
		l.status.said(0, m.GetHears())
		if l.current.renews(m.GetDigest(), l.lease.state()) {
			l.heard(at)
			l.parts(m.GetHoldsMs())
		}
		return nil
	}
	return func() (incoming, error) {
		m, err := stream.Recv()
		return incoming{m.GetEcho(), func(at time.Time) error { return take(m, at) }}, err
	}, nil
}

// currency tells whether what is known of a peer is what the peer has to say by now, so
// that a renewal, which says nothing else, can be believed. Any goroutine may use it.
type currency struct {
	mu     sync.Mutex
	digest uint64    // of all that was applied
	known  bool      // all that the peer exports was applied once
	part   bool      // of what leads to another digest, a part has come, and the rest has not
	other  time.Time // since when renewals name another digest, and no exports come; zero while they don't
	hold   time.Duration
	end    context.CancelCauseFunc // of the stream of exports
}

// takes notes that a message has come with which all is known that its sender had to say,
// or a part of that.
func (c *currency) takes(whole bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.part = !whole
}

// whole tells whether what has come is not a part of something.
func (c *currency) whole() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.part
}

// applied notes that the topology knows all that has a digest, unless that is a part of
// something: then it knows nothing that has one.
func (c *currency) applied(digest uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.part {
		return
	}
	if c.digest != digest {
		c.other = time.Time{}
	}
	c.digest, c.known = digest, true
}

// moves notes that the stream of exports says something: it is not stuck.
func (c *currency) moves() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.other.IsZero() {
		c.other = time.Now()
	}
}

func (c *currency) complete() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known
}

// begins notes a new stream of exports.
func (c *currency) begins(end context.CancelCauseFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end = end
}

// renews takes in a renewal that names a digest, and tells whether it renews the lease.
// Where that is another than what is known, the exports are on their way, or their stream
// is stuck: it is ended, and made anew, more and more rarely while that is no help. After
// that time nothing is renewed by it, since what is known may be long past; the stream of
// exports renews by itself.
func (c *currency) renews(digest uint64, lease leaseState) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.known:
		return false
	case !c.part && c.digest == digest:
		c.other, c.hold = time.Time{}, stuckAfter
		return true
	case c.other.IsZero():
		c.other = time.Now()
	}
	c.hold = max(c.hold, stuckAfter)
	late := time.Since(c.other)
	if late > c.hold && c.end != nil {
		c.end(errStuck)
		c.end, c.hold = nil, min(2*c.hold, stuckAtMost)
	}
	return lease.fresh && late < max(stuckAfter, lease.after)
}

var errStuck = status.Error(codes.Unavailable, "the stream of exports is behind what the peer has to say by now; asking anew")
