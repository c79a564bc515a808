package peering

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Config is what peering needs to know of its own cluster.
type Config struct {
	Cluster   string         // this cluster's name
	Namespace string         // of Isthmus' own apps; empty for identity.SystemNamespace
	Domain    catalog.Domain // of the reserved names behind gateways
}

// Server answers peers. It implements the Peering service.
type Server struct {
	v1alpha1.UnimplementedPeeringServer
	cfg      Config
	topology *topology.Topology
	log      *slog.Logger

	life context.Context // ends when streams must
	end  context.CancelFunc
}

// NewServer makes a server of what the topology exports.
func NewServer(cfg Config, t *topology.Topology, log *slog.Logger) *Server {
	s := &Server{cfg: cfg, topology: t, log: log}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// Stop ends all streams, those to come included. Peers keep what they know until
// their lease runs out.
func (s *Server) Stop() { s.end() }

// ended is the status of a stream that failed, or that the service has ended.
func (s *Server) ended(err error) error {
	if s.life.Err() != nil {
		return status.Error(codes.Unavailable, "the resolver service is stopping; come back")
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.FromContextError(err).Err()
}

// Exports streams what this cluster exports to the caller's, until the caller goes or
// the stream's context ends.
func (s *Server) Exports(req *v1alpha1.ExportsRequest, stream grpc.ServerStreamingServer[v1alpha1.ExportsResponse]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	if err := s.admit(ctx, req); err != nil {
		s.log.Warn("refused a peer", "peer", req.GetCluster(), "err", err)
		return err
	}
	sub, err := s.topology.Peer(ctx, req.GetCluster())
	if err != nil {
		return s.ended(err)
	}
	defer sub.Close()
	s.log.Info("peer connected", "peer", req.GetCluster())
	err = s.follow(ctx, sub, newOutbox(s.cfg.Cluster, req.GetKnown()), stream.Send)
	s.log.Info("peer gone", "peer", req.GetCluster(), "err", err)
	return err
}

// admit tells whether the caller may ask as the cluster that it names.
func (s *Server) admit(ctx context.Context, req *v1alpha1.ExportsRequest) error {
	cluster := req.GetCluster()
	if err := catalog.CheckCluster(cluster); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if cluster == s.cfg.Cluster {
		return status.Errorf(codes.FailedPrecondition,
			"the asking cluster and the asked one are both named %q; give each cluster a name of its own in isthmus.yaml", cluster)
	}
	if len(req.GetKnown()) > maxExports {
		return status.Errorf(codes.InvalidArgument, "%d known exports named; at most %d", len(req.GetKnown()), maxExports)
	}
	want := identity.ServiceApp(s.cfg.Namespace, cluster)
	if id, ok := identity.FromContext(ctx); ok && id.App != want {
		return status.Errorf(codes.PermissionDenied, "cluster %s is asked for as app %s; its resolver service is app %s", cluster, id.App, want)
	}
	return nil
}

// follow sends one view after the other, and an empty message when there was nothing
// to tell for a while.
func (s *Server) follow(ctx context.Context, sub *topology.PeerSubscription, out *outbox, send func(*v1alpha1.ExportsResponse) error) error {
	view, err := sub.Next(ctx, nil)
	for ; err == nil; view, err = s.next(ctx, sub, view, send) {
		message, err := out.message(view)
		if err != nil {
			return status.Errorf(codes.Internal, "encode exports: %v", err)
		}
		if err := send(message); err != nil {
			return err
		}
	}
	return s.ended(err)
}

// next waits for a view other than seen, renewing the lease meanwhile.
func (s *Server) next(ctx context.Context, sub *topology.PeerSubscription, seen *topology.PeerView, send func(*v1alpha1.ExportsResponse) error) (*topology.PeerView, error) {
	for {
		wait, cancel := context.WithTimeout(ctx, renewEvery)
		view, err := sub.Next(wait, seen)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return view, err
		}
		if err := send(&v1alpha1.ExportsResponse{Cluster: s.cfg.Cluster, Revision: seen.Revision}); err != nil {
			return nil, fmt.Errorf("renew lease: %w", err)
		}
	}
}

// outbox makes messages from views: the first against what the peer said it knows,
// each later one against the view before.
type outbox struct {
	cluster string
	known   map[catalog.App]uint64 // digests, until the first message
	sent    *topology.PeerView
}

func newOutbox(cluster string, known []*v1alpha1.Known) *outbox {
	o := &outbox{cluster: cluster, known: make(map[catalog.App]uint64, len(known))}
	for _, k := range known {
		o.known[appFromWire(k.GetApp())] = k.GetDigest()
	}
	return o
}

func (o *outbox) message(view *topology.PeerView) (*v1alpha1.ExportsResponse, error) {
	m := &v1alpha1.ExportsResponse{Cluster: o.cluster, Revision: view.Revision}
	var err error
	if o.sent == nil {
		err = o.first(m, view)
		o.known = nil
	} else {
		err = difference(m, o.sent, view)
	}
	o.sent = view
	return m, err
}

func (o *outbox) first(m *v1alpha1.ExportsResponse, view *topology.PeerView) error {
	for app, export := range view.Exports.All() {
		w, err := toWire(export)
		if err != nil {
			return err
		}
		if digest, ok := o.known[app]; !ok || digest != w.Digest {
			m.Put = append(m.Put, w)
		}
		delete(o.known, app)
	}
	for app := range o.known {
		m.Removed = append(m.Removed, wire.App(app))
	}
	return nil
}

func difference(m *v1alpha1.ExportsResponse, old, view *topology.PeerView) error {
	same := func(a, b *topology.PeerExport) bool { return a == b }
	for edit := range view.Exports.Diff(&old.Exports, same) {
		if edit.Remove {
			m.Removed = append(m.Removed, wire.App(edit.App))
			continue
		}
		w, err := toWire(edit.Value)
		if err != nil {
			return err
		}
		m.Put = append(m.Put, w)
	}
	return nil
}
