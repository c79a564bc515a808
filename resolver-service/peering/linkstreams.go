package peering

import (
	"context"
	"errors"
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
func (l *link) openExports(ctx context.Context, conn *grpc.ClientConn, renew time.Duration, others bool) (receiver, error) {
	known, err := l.resume(ctx)
	if err != nil {
		return nil, err
	}
	stream, err := v1alpha1.NewPeeringClient(conn).Exports(ctx)
	if err != nil {
		return nil, err
	}
	ask := &v1alpha1.ExportsRequest{Cluster: l.cfg.Cluster, Known: known, RenewMs: uint32(renew.Milliseconds()), Ping: l.newPing()}
	if stream.Send(ask) == nil { // what is wrong, Recv says
		go l.sendPings(ctx, renew, func(ping uint64) error { return stream.Send(&v1alpha1.ExportsRequest{Ping: ping}) })
	}
	opened, first := time.Now(), true
	var pace readLimiter
	take := func(m *v1alpha1.ExportsResponse, at time.Time) error {
		defer func() { pace.wait(ctx, len(m.GetPut())+len(m.GetRemoved()), proto.Size(m)) }()
		if m.GetCluster() != l.cluster {
			return wrongCluster{l.cluster, m.GetCluster()}
		}
		if first && m.GetMore() && time.Since(opened) > firstSetWithin && m.GetRevision() != 0 {
			return status.Errorf(codes.ResourceExhausted, "cluster %s has not said all that it exports within %s", l.cluster, firstSetWithin)
		}
		if first && m.GetMore() && m.GetRevision() == 0 && others && time.Since(opened) > unreadyWithin {
			return errUnready
		}
		first = first && m.GetMore()
		l.status.setPeerInfo(m.GetRevision(), m.GetHears())
		if err := l.deliver(ctx, m, first, at); err != nil {
			return err
		}
		l.goodbye(m.GetHoldsMs())
		return nil
	}
	return func() (incoming, error) {
		m, err := stream.Recv()
		return incoming{m.GetEcho(), func(at time.Time) error { return take(m, at) }}, err
	}, nil
}

// begin prepares for a new stream, and says what to ask the peer with.
func (l *link) resume(ctx context.Context) (known []*v1alpha1.Known, err error) {
	done := make(chan struct{})
	select {
	case l.updates <- update{resume: func(all []*v1alpha1.Known) { known = all }, done: done}:
		<-done
		return known, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// hand gives a message to the run goroutine and waits until it has been taken in. first
// tells that the stream's first set is not complete with it; at is as of when it counts.
func (l *link) deliver(ctx context.Context, m *v1alpha1.ExportsResponse, first bool, at time.Time) error {
	// A word counts when it comes, not when there is time for it. But a lease that has run
	// out begins anew only once all that the peer has to say was taken in.
	fresh := l.lease.state().fresh
	if fresh {
		l.renewLease(at)
	}
	done := make(chan struct{})
	select {
	case l.updates <- update{message: m, done: done}:
		<-done
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if !fresh && !first && l.freshness.whole() {
		l.renewLease(at)
	}
	return nil
}

// renews opens a stream of renewals.
func (l *link) openRenewals(ctx context.Context, conn *grpc.ClientConn, renew time.Duration) (receiver, error) {
	stream, err := v1alpha1.NewPeeringClient(conn).Renew(ctx)
	if err != nil {
		return nil, err
	}
	ask := &v1alpha1.RenewRequest{Cluster: l.cfg.Cluster, RenewMs: uint32(renew.Milliseconds()), Ping: l.newPing()}
	if stream.Send(ask) == nil { // what is wrong, Recv says
		go l.sendPings(ctx, renew, func(ping uint64) error { return stream.Send(&v1alpha1.RenewRequest{Ping: ping}) })
	}
	var pace readLimiter
	take := func(m *v1alpha1.RenewResponse, at time.Time) error {
		pace.wait(ctx, 0, proto.Size(m))
		if m.GetCluster() != l.cluster {
			return wrongCluster{l.cluster, m.GetCluster()}
		}
		l.status.setPeerInfo(0, m.GetHears())
		if l.freshness.acceptRenewal(m.GetDigest(), l.lease.state()) {
			l.renewLease(at)
			l.goodbye(m.GetHoldsMs())
		}
		return nil
	}
	return func() (incoming, error) {
		m, err := stream.Recv()
		return incoming{m.GetEcho(), func(at time.Time) error { return take(m, at) }}, err
	}, nil
}
