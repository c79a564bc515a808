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
	"github.com/isthmus-mesh/isthmus/identity"
)

// firstSetWithin is how long a peer may take to send its initial set of exports.
const firstSetWithin = 2 * time.Minute

// unreadyWithin is how long a link waits for a service that does not know its own exports yet. Then
// it tries another gateway of the cluster, which may lead to a replica that knows them, or else says
// why nothing is heard.
const unreadyWithin = time.Second

var errUnready = errors.New("connected, but the resolver service there has not read its config store yet, so it does not know what it exports; see isthmus status there")

// openExports opens the stream of exports. others tells whether the cluster has other gateways.
func (l *link) openExports(ctx context.Context, conn *grpc.ClientConn, interval time.Duration, others bool) (receiver, error) {
	known, err := l.resume(ctx)
	if err != nil {
		return nil, err
	}
	stream, err := v1alpha1.NewPeeringClient(conn).Exports(ctx)
	if err != nil {
		return nil, err
	}
	told, trust, interest := l.wanted.Load(), l.trust.Load(), l.tellInterest()
	ask := &v1alpha1.ExportsRequest{Cluster: l.cfg.Cluster, Known: known, RenewMs: uint32(interval.Milliseconds()), Ping: l.pings.next(), Wanted: told, Trust: trust, Interest: interest.first(), RestsMs: l.restsMs.Load(), OffersChanged: l.nudging.take(true)}
	if stream.Send(ask) == nil { // Recv returns the error
		go l.pings.send(ctx, interval, interest, func(ping uint64, news *v1alpha1.Interest) error {
			m := &v1alpha1.ExportsRequest{Ping: ping, Interest: news, RestsMs: l.restsMs.Load(), OffersChanged: l.nudging.take(false)}
			if now := l.wanted.Load(); now != told {
				m.Wanted, told = now, now
			}
			if now := l.trust.Load(); now != trust {
				m.Trust, trust = now, now
			}
			return stream.Send(m)
		})
	}
	if l.cfg.Heard != nil {
		go (&hearing{l, conn}).run(ctx)
	}
	opened, initial, waits := time.Now(), true, false
	limiter := newReadLimiter()
	apply := func(m *v1alpha1.ExportsResponse, at time.Time) error {
		defer func() { limiter.wait(ctx, len(m.GetPut())+len(m.GetRemoved()), proto.Size(m)) }()
		if m.GetCluster() != l.cluster {
			return wrongCluster{l.cluster, m.GetCluster()}
		}
		if initial && m.GetMore() && time.Since(opened) > firstSetWithin && m.GetRevision() != 0 {
			return status.Errorf(codes.ResourceExhausted, "cluster %s has not sent all its exports within %s", l.cluster, firstSetWithin)
		}
		unready := initial && m.GetMore() && m.GetRevision() == 0 && time.Since(opened) > unreadyWithin
		switch {
		case unready && others:
			return errUnready
		case unready != waits:
			waits = unready
			l.waitsForExports(unready)
		}
		initial = initial && m.GetMore()
		l.status.setPeerInfo(m.GetRevision(), m.GetHears())
		l.status.introduce(m, l.cfg.now())
		if a := m.GetAnnounced(); a != nil && l.cfg.Announced != nil {
			l.cfg.Announced(l.cluster, a.GetRoots(), identity.Chain(stream.Context()))
		}
		if err := l.deliver(ctx, m, initial, at); err != nil {
			return err
		}
		l.goodbye(m.GetHoldsMs())
		return nil
	}
	return func() (incoming, error) {
		m, err := stream.Recv()
		return incoming{m.GetEcho(), cleanService(m.GetService()), func(at time.Time) error { return apply(m, at) }}, err
	}, nil
}

// waitsForExports says that the peer does not know its exports, or that it does now.
func (l *link) waitsForExports(unready bool) {
	if !unready {
		l.status.failed(nil, nil)
		return
	}
	object, _ := l.object.Load()
	news := l.status.failed(object, errUnready)
	l.recheckLease()
	if news {
		l.warn("a peer does not know its exports yet; waiting for them", "peer", l.cluster, "err", errUnready)
	}
}

// resume starts a new stream in the mirror and returns the exports that are known already.
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

// deliver hands a message to the run goroutine and waits until it is processed. initial means
// that the stream's initial set is still incomplete after this message. The message counts as of
// the moment at.
func (l *link) deliver(ctx context.Context, m *v1alpha1.ExportsResponse, initial bool, at time.Time) error {
	// A message renews the lease when it arrives, not when it is processed. But a lease that has
	// ended starts again only after all pending exports are processed.
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
	if !fresh && !initial && l.freshness.whole() {
		l.renewLease(at)
	}
	return nil
}

// openRenewals opens a stream of renewals.
func (l *link) openRenewals(ctx context.Context, conn *grpc.ClientConn, interval time.Duration) (receiver, error) {
	stream, err := v1alpha1.NewPeeringClient(conn).Renew(ctx)
	if err != nil {
		return nil, err
	}
	interest := l.tellInterest()
	ask := &v1alpha1.RenewRequest{Cluster: l.cfg.Cluster, RenewMs: uint32(interval.Milliseconds()), Ping: l.pings.next(), Interest: interest.first()}
	if stream.Send(ask) == nil { // Recv returns the error
		go l.pings.send(ctx, interval, interest, func(ping uint64, news *v1alpha1.Interest) error {
			return stream.Send(&v1alpha1.RenewRequest{Ping: ping, Interest: news})
		})
	}
	limiter := newReadLimiter()
	apply := func(m *v1alpha1.RenewResponse, at time.Time) error {
		limiter.wait(ctx, 0, proto.Size(m))
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
		return incoming{m.GetEcho(), cleanService(m.GetService()), func(at time.Time) error { return apply(m, at) }}, err
	}, nil
}
