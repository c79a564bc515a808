package peering

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Bounds of the time between two renewals that a peer may ask for.
const (
	minAsked = 100 * time.Millisecond
	maxAsked = 10 * time.Second
)

// sendPause is the least time between two changes on one stream. What changes meanwhile
// goes out together.
const sendPause = 10 * time.Millisecond

// Server answers peers. It implements the Peering service.
type Server struct {
	v1alpha1.UnimplementedPeeringServer
	cfg      Config
	topology *topology.Topology
	askers   askers
	lines    lines
	links    *Links // nil until Join

	life  context.Context // ends when streams must
	end   context.CancelFunc
	holds atomic.Int64 // how long the last words hold, as a time.Duration; 0: none are said
}

// NewServer makes a server of what the topology exports.
func NewServer(cfg Config, t *topology.Topology, log *slog.Logger) *Server {
	s := &Server{cfg: cfg, topology: t, askers: askers{log: log}, lines: lines{log: log}}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// Stop ends all streams, those to come included. Peers keep what they know until
// their lease runs out.
func (s *Server) Stop() { s.end() }

// Leave is Stop with a goodbye: what peers know holds for so long, also where nobody answers
// them meanwhile.
func (s *Server) Leave(holds time.Duration) {
	s.holds.Store(int64(holds))
	s.end()
}

// Asked tells whether any peer follows what this cluster exports.
func (s *Server) Asked() bool { return s.askers.any() }

// goodbye is what the last word of a stream says, in ms; 0 where there is none to say.
func (s *Server) goodbye() uint32 {
	if s.life.Err() == nil {
		return 0
	}
	return uint32(time.Duration(s.holds.Load()).Milliseconds())
}

// stream is one stream to a peer, of exports or of renewals.
type stream struct {
	*Server
	cluster string // the peer's
	every   time.Duration
	sub     *topology.PeerSubscription
	by      *asker
	pings   *pings
}

// serve admits a stream and has it run until the caller goes, or the stream must end.
func (s *Server) serve(ctx context.Context, cluster string, renewMs uint32, p *pings, run func(context.Context, *stream) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(errStopping) })()
	if s.life.Err() != nil {
		return errStopping
	}
	if err := s.admit(ctx, cluster); err != nil {
		s.lines.warn("refused a peer", "peer", short(catalog.App{ID: cluster}).ID, "err", err)
		return err
	}
	by, leave, err := s.askers.come(cluster, cancel)
	if err != nil {
		by.lines.warn("refused a peer", "peer", cluster, "err", err)
		return err
	}
	defer leave()
	sub, err := s.topology.Peer(ctx, cluster)
	if err != nil {
		return s.ended(ctx, err)
	}
	defer sub.Close()
	by.lines.info("peer asks", "peer", cluster)
	err = s.ended(ctx, run(ctx, &stream{s, cluster, asked(renewMs), sub, by, p}))
	by.lines.info("peer asks no more", "peer", cluster, "err", err)
	return err
}

// asked is how often a peer that asks for it is given a word.
func asked(renewMs uint32) time.Duration {
	if renewMs == 0 {
		return defaultRenew
	}
	return min(max(time.Duration(renewMs)*time.Millisecond, minAsked), maxAsked)
}

var errStopping = status.Error(codes.Unavailable, "the resolver service is stopping; come back")

// ended is the status of a stream that failed, or that the service has ended.
func (s *Server) ended(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errTooMany):
		return status.Error(codes.Unavailable, errTooMany.Error())
	case s.life.Err() != nil:
		return errStopping
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.FromContextError(err).Err()
}

// Exports streams what this cluster exports to the caller's, until the caller goes or
// the stream's context ends.
func (s *Server) Exports(to grpc.BidiStreamingServer[v1alpha1.ExportsRequest, v1alpha1.ExportsResponse]) error {
	req, p, err := listen(to.Context(), to.Recv)
	if err != nil {
		return err
	}
	if len(req.GetKnown()) > maxExports {
		return status.Errorf(codes.InvalidArgument, "%d known exports named; at most %d", len(req.GetKnown()), maxExports)
	}
	return s.serve(to.Context(), req.GetCluster(), req.GetRenewMs(), p, func(ctx context.Context, st *stream) error {
		return st.exports(ctx, s.outbox(req), to.Send)
	})
}

func (s *Server) outbox(req *v1alpha1.ExportsRequest) *outbox {
	o := newOutbox(s.cfg.Cluster, req.GetKnown())
	o.tooLarge = func(app catalog.App, bytes int) {
		s.lines.warn("an export is too large to be told to a peer; let fewer callers call, such as whole namespaces",
			"peer", req.GetCluster(), "app", app.String(), "bytes", bytes, "most", maxExport)
	}
	return o
}

// Renew streams the word that this cluster is there, and the digest of what it exports by
// now.
func (s *Server) Renew(to grpc.BidiStreamingServer[v1alpha1.RenewRequest, v1alpha1.RenewResponse]) error {
	req, p, err := listen(to.Context(), to.Recv)
	if err != nil {
		return err
	}
	return s.serve(to.Context(), req.GetCluster(), req.GetRenewMs(), p, func(ctx context.Context, st *stream) error {
		return st.renew(ctx, to.Send)
	})
}

// admit tells whether the caller may ask as the cluster that it names.
func (s *Server) admit(ctx context.Context, cluster string) error {
	if err := catalog.CheckCluster(cluster); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if cluster == s.cfg.Cluster {
		return status.Errorf(codes.FailedPrecondition,
			"the asking cluster and the asked one are both named %q; give each cluster a name of its own in isthmus.yaml", cluster)
	}
	id, ok := identity.FromContext(ctx)
	if peer, _ := identity.FromPeer(ctx); ok && peer != cluster {
		return status.Errorf(codes.PermissionDenied, "cluster %s is asked for by %s; its resolver service is app %s", cluster, id, identity.ServiceApp(s.cfg.Namespace, cluster))
	}
	return nil
}

// hears is how this cluster hears the peer.
func (s *stream) hears() string {
	if s.links == nil {
		return ""
	}
	return s.links.hears(s.cluster)
}

// exports sends one view after the other, and an empty message for each ping when there
// is nothing to tell.
func (s *stream) exports(ctx context.Context, out *outbox, send func(*v1alpha1.ExportsResponse) error) error {
	var seen *topology.PeerView
	for {
		view, _, changed := s.sub.Follow()
		switch {
		case view != seen:
			if seen == nil {
				s.by.budget.owe(view.Exports.Len())
			}
			for m, err := range out.messages(view) {
				if err != nil {
					return status.Errorf(codes.Internal, "encode exports: %v", err)
				}
				if err := send(s.told(m, out.reaches(view))); err != nil {
					return err
				}
			}
			seen = view
			if !live.Sleep(ctx, sendPause) {
				return s.part(ctx, s.told(out.empty(seen), seen), send)
			}
		default:
			if err := send(s.told(out.empty(seen), seen)); err != nil {
				return err
			}
		}
		if s.due(ctx, changed) != nil {
			return s.part(ctx, s.told(out.empty(seen), seen), send)
		}
	}
}

// part ends a stream of exports, with a last word if one is to be said.
func (s *stream) part(ctx context.Context, m *v1alpha1.ExportsResponse, send func(*v1alpha1.ExportsResponse) error) error {
	if m.HoldsMs = s.goodbye(); m.HoldsMs > 0 {
		_ = send(m) // the peer may be gone
	}
	return ctx.Err()
}

// due returns when there is a ping to echo, when changed is closed, or when nothing was
// said for long.
func (s *stream) due(ctx context.Context, changed <-chan struct{}) error {
	long := time.NewTimer(2 * s.every)
	defer long.Stop()
	select {
	case <-s.pings.came:
	case <-changed:
	case <-long.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// told completes a message with which the peer knows all of a view; nil where it does not.
// A part of a difference has no digest: who knows that of the whole takes it for the whole.
func (s *stream) told(m *v1alpha1.ExportsResponse, whole *topology.PeerView) *v1alpha1.ExportsResponse {
	m.Hears, m.Echo = s.hears(), s.pings.latest.Load()
	if whole != nil {
		m.Digest = s.by.content.digest(whole)
	}
	return m
}

// renew sends a word for each ping.
func (s *stream) renew(ctx context.Context, send func(*v1alpha1.RenewResponse) error) error {
	for {
		m := &v1alpha1.RenewResponse{Cluster: s.cfg.Cluster, Hears: s.hears(), Echo: s.pings.latest.Load(), HoldsMs: s.goodbye()}
		if view, ok := s.sub.View(); ok {
			m.Digest = s.by.content.digest(view)
		}
		if err := send(m); err != nil {
			return err
		}
		if m.HoldsMs > 0 {
			return ctx.Err()
		}
		if err := s.due(ctx, nil); err != nil && s.goodbye() == 0 {
			return err
		}
	}
}
