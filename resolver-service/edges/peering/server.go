package peering

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Bounds of the renewal interval that a peer may request.
const (
	minRequested = 100 * time.Millisecond
	maxRequested = 10 * time.Second
)

// sendPause is the least time between two changes on one stream. Changes in between go out
// together.
const sendPause = 10 * time.Millisecond

// Server answers peers. It implements the Peering service.
type Server struct {
	v1alpha1.UnimplementedPeeringServer
	cfg         Config
	topology    *topology.Topology
	subscribers subscribers
	log         *throttle.Log // for lines that peers can cause
	links       *Links        // nil until Join
	wants       sync.Map      // *wants of each stream of exports, to its cluster

	stopping context.Context // ends when streams must end
	stop     context.CancelFunc
	holdFor  atomic.Int64 // a time.Duration, sent as a goodbye; 0: none
}

// NewServer makes a server for the exports of the topology.
func NewServer(cfg Config, t *topology.Topology, log *slog.Logger) *Server {
	s := &Server{cfg: cfg, topology: t, log: newThrottle(log)}
	s.stopping, s.stop = context.WithCancel(context.Background())
	return s
}

// Stop ends all current and future streams. Peers keep their state until their lease ends.
func (s *Server) Stop() { s.stop() }

// Leave is Stop with a goodbye: peers keep their state for the given time, even if no replica
// answers meanwhile.
func (s *Server) Leave(holds time.Duration) {
	s.holdFor.Store(int64(holds))
	s.stop()
}

// HasSubscribers tells whether any peer follows this cluster's exports.
func (s *Server) HasSubscribers() bool { return s.subscribers.any() }

// goodbyeMs is the hold time of the last message of a stream, in ms; 0 means no goodbye.
func (s *Server) goodbyeMs() uint32 {
	if s.stopping.Err() == nil {
		return 0
	}
	return uint32(time.Duration(s.holdFor.Load()).Milliseconds())
}

// serverStream is one stream to a peer, of exports or of renewals.
type serverStream struct {
	*Server
	cluster    string // the peer's
	interval   time.Duration
	interest   *interest
	sub        *topology.Followed[*topology.PeerView] // by an interest
	by         *topology.Interest
	digest     *viewDigest // of that view
	subscriber *subscriber
	pings      *pings
	introduced bool                        // the peer knows this service's version and its clock
	service    string                      // that the peer knows
	announced  *v1alpha1.RootsAnnouncement // that the peer knows
}

// serve admits a stream and runs it until the caller goes or the stream must end.
func (s *Server) serve(ctx context.Context, cluster string, renewMs uint32, wants *interest, p *pings, run func(context.Context, *serverStream) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.stopping, func() { cancel(errStopping) })()
	if s.stopping.Err() != nil {
		return errStopping
	}
	if err := s.admit(ctx, cluster); err != nil {
		s.log.Warn("", "refused a stream of a peer", "peer", shortName(catalog.App{ID: cluster}).ID, "err", err)
		return err
	}
	by, leave, err := s.subscribers.add(cluster, cancel)
	if err != nil {
		s.log.Warn(cluster, "refused a stream of a peer", "peer", cluster, "err", err)
		return err
	}
	defer leave()
	st := &serverStream{Server: s, cluster: cluster, interval: requestedInterval(renewMs), interest: wants, subscriber: by, pings: p}
	defer st.unfollow()
	s.log.Info(cluster, "peer follows our exports", "peer", cluster)
	err = s.ended(ctx, run(ctx, st))
	s.log.Info(cluster, "stream of a peer ended", "peer", cluster, "err", err)
	return err
}

// requestedInterval is the renewal interval for a request, within bounds.
func requestedInterval(renewMs uint32) time.Duration {
	if renewMs == 0 {
		return defaultRenew
	}
	return min(max(time.Duration(renewMs)*time.Millisecond, minRequested), maxRequested)
}

var errStopping = status.Error(codes.Unavailable, "the resolver service is stopping; reconnect")

// ended returns the gRPC status for a stream that failed or was ended.
func (s *Server) ended(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errTooMany):
		return status.Error(codes.Unavailable, errTooMany.Error())
	case s.stopping.Err() != nil:
		return errStopping
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.FromContextError(err).Err()
}

// Exports streams this cluster's exports to the caller's cluster until the caller goes or the
// stream's context ends.
func (s *Server) Exports(to grpc.BidiStreamingServer[v1alpha1.ExportsRequest, v1alpha1.ExportsResponse]) error {
	wants, interest := &wants{}, &interest{}
	req, p, err := receiveFirst(to.Context(), to.Recv, interest, wants.take)
	if err != nil {
		return err
	}
	if len(req.GetKnown()) > maxExports {
		return status.Errorf(codes.InvalidArgument, "%d known exports in the request; at most %d are allowed", len(req.GetKnown()), maxExports)
	}
	return s.serve(to.Context(), req.GetCluster(), req.GetRenewMs(), interest, p, func(ctx context.Context, st *serverStream) error {
		s.wants.Store(wants, req.GetCluster())
		if nudged := func() { s.links.nudged(req.GetCluster()) }; s.links != nil {
			wants.nudged.Store(&nudged)
			wants.tellNudge()
		}
		defer s.wants.Delete(wants)
		defer func() { s.subscribers.rests(st.subscriber, wants.rests.Load()) }()
		return st.sendExports(ctx, s.outbox(req), to.Send)
	})
}

func (s *Server) outbox(req *v1alpha1.ExportsRequest) *outbox {
	o := newOutbox(s.cfg.Cluster, req.GetKnown())
	o.tooLarge = func(app catalog.App, bytes int) {
		s.log.Warn(req.GetCluster(), "export too large for a peer, which goes without it; allow whole namespaces rather than many apps",
			"peer", req.GetCluster(), "app", app.String(), "bytes", bytes, "most", maxExport)
	}
	return o
}

// Renew streams renewals of the lease, with the digest of the current exports.
func (s *Server) Renew(to grpc.BidiStreamingServer[v1alpha1.RenewRequest, v1alpha1.RenewResponse]) error {
	interest := &interest{}
	req, p, err := receiveFirst(to.Context(), to.Recv, interest)
	if err != nil {
		return err
	}
	return s.serve(to.Context(), req.GetCluster(), req.GetRenewMs(), interest, p, func(ctx context.Context, st *serverStream) error {
		return st.sendRenewals(ctx, to.Send)
	})
}

// admit tells whether the caller may ask in the name of a cluster.
func (s *Server) admit(ctx context.Context, cluster string) error {
	if err := catalog.CheckCluster(cluster); err != nil {
		return status.Error(codes.InvalidArgument, catalog.Clip(err.Error(), maxReason)) // it has the name, of any length
	}
	if cluster == s.cfg.Cluster {
		return status.Errorf(codes.FailedPrecondition,
			"both clusters are named %q; give each cluster its own name in isthmus.yaml", cluster)
	}
	id, ok := identity.FromContext(ctx)
	if peer, _ := identity.FromPeer(ctx); ok && peer != cluster {
		return status.Errorf(codes.PermissionDenied, "%[2]s asks in the name of cluster %[1]s, whose resolver service is app %[3]s", cluster, id, identity.ServiceApp(s.cfg.Namespace, cluster))
	}
	return nil
}

// linkState is the state of this cluster's own link to the peer.
func (s *serverStream) linkState() string {
	if s.links == nil {
		return ""
	}
	return s.links.linkState(s.cluster)
}

// sendExports sends one view after the other, and an empty message for each ping in between.
func (s *serverStream) sendExports(ctx context.Context, out *outbox, send func(*v1alpha1.ExportsResponse) error) error {
	var seen *topology.PeerView
	for {
		otherInterest, err := s.follow(ctx)
		if err != nil {
			return err
		}
		view, _, changed := s.sub.Follow()
		switch {
		case view != seen:
			if seen == nil {
				s.subscriber.quota.charge(view.Exports.Len())
			}
			for m, err := range out.messages(view) {
				if err != nil {
					return status.Errorf(codes.Internal, "encode exports: %v", err)
				}
				if err := send(s.complete(m, out.completes(view))); err != nil {
					return err
				}
			}
			seen = view
			if !live.Sleep(ctx, sendPause) {
				return s.finish(ctx, s.complete(out.empty(seen), seen), send)
			}
		default:
			if err := send(s.complete(out.empty(seen), seen)); err != nil {
				return err
			}
		}
		if s.waitForCause(ctx, changed, otherInterest) != nil {
			return s.finish(ctx, s.complete(out.empty(seen), seen), send)
		}
	}
}

// finish ends a stream of exports, with a goodbye if there is one.
func (s *serverStream) finish(ctx context.Context, m *v1alpha1.ExportsResponse, send func(*v1alpha1.ExportsResponse) error) error {
	if m.HoldsMs = s.goodbyeMs(); m.HoldsMs > 0 {
		_ = send(m) // the peer may be gone
	}
	return ctx.Err()
}

// waitForCause returns when a ping needs an echo, when a channel is closed, or after two intervals
// without a message.
func (s *serverStream) waitForCause(ctx context.Context, changed, otherInterest <-chan struct{}) error {
	long := time.NewTimer(2 * s.interval)
	defer long.Stop()
	select {
	case <-s.pings.arrived:
	case <-changed:
	case <-otherInterest:
	case <-long.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// complete fills in the digest of a message with which the peer has a whole view; nil means that
// it does not. A part of a change has no digest, since the peer would take it for the whole.
func (s *serverStream) complete(m *v1alpha1.ExportsResponse, whole *topology.PeerView) *v1alpha1.ExportsResponse {
	m.Hears, m.Echo = s.linkState(), s.pings.latest.Load()
	if !s.introduced {
		s.introduced = true
		m.Version, m.NowUnixMs = s.cfg.Version, s.cfg.now().UnixMilli()
	}
	m.Service, m.Announced = s.newService(), s.newAnnouncement()
	if whole != nil {
		m.Digest = s.digest.of(whole)
	}
	return m
}

// newService returns which service this is, unless the peer knows it.
func (s *serverStream) newService() string {
	if s.cfg.Service == nil || s.cfg.Service() == s.service {
		return ""
	}
	s.service = s.cfg.Service()
	return s.service
}

// newAnnouncement returns the roots that this cluster announces, unless the peer knows them.
func (s *serverStream) newAnnouncement() *v1alpha1.RootsAnnouncement {
	if s.cfg.Announcement == nil || s.cfg.Announcement() == s.announced {
		return nil
	}
	s.announced = s.cfg.Announcement()
	return s.announced
}

// sendRenewals sends a message for each ping.
func (s *serverStream) sendRenewals(ctx context.Context, send func(*v1alpha1.RenewResponse) error) error {
	for {
		if _, err := s.follow(ctx); err != nil {
			return err
		}
		m := &v1alpha1.RenewResponse{Cluster: s.cfg.Cluster, Hears: s.linkState(), Echo: s.pings.latest.Load(), HoldsMs: s.goodbyeMs(), Service: s.newService()}
		if view, ok := s.sub.View(); ok {
			m.Digest = s.digest.of(view)
		}
		if err := send(m); err != nil {
			return err
		}
		if m.HoldsMs > 0 {
			return ctx.Err()
		}
		if err := s.waitForCause(ctx, nil, nil); err != nil && s.goodbyeMs() == 0 {
			return err
		}
	}
}
