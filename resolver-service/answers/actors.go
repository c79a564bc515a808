package answers

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/authz"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Actors is the service Actors.
type Actors struct {
	v1alpha1.UnimplementedActorsServer
	Topology *topology.Topology
	Access   *authz.Authorizer
	Stopping context.Context // ends streams

	mu      sync.Mutex
	streams map[string]int // by namespace
}

// maxActorStreams is how many streams a namespace's bridge may have: more than it has replicas.
const maxActorStreams = 64

// Watch streams what a namespace's bridge has to know.
func (s *Actors) Watch(req *v1alpha1.ActorsRequest, to grpc.ServerStreamingServer[v1alpha1.ActorsResponse]) error {
	ctx := to.Context()
	if err := s.admit(ctx, req.GetNamespace()); err != nil {
		return err
	}
	leave, err := s.enter(req.GetNamespace())
	if err != nil {
		return err
	}
	defer leave()
	sub, err := s.Topology.Actors(ctx, req.GetNamespace())
	if err != nil {
		return status.FromContextError(err).Err()
	}
	defer sub.Close()
	var sent *catalog.ActorView
	for {
		view, ok, changed := sub.Follow()
		if ok && view != sent {
			m := wire.Actors(view)
			m.Domains = s.Access.Domains()
			if err := to.Send(m); err != nil {
				return err
			}
			sent = view
		}
		select {
		case <-changed:
		case <-s.Stopping.Done():
			return status.Error(codes.Unavailable, "the resolver service is stopping; reconnect")
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// enter counts a stream.
func (s *Actors) enter(namespace string) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams == nil {
		s.streams = map[string]int{}
	}
	if s.streams[namespace] >= maxActorStreams {
		return nil, status.Errorf(codes.ResourceExhausted, "the bridge of namespace %s has %d streams, which is the limit", namespace, maxActorStreams)
	}
	s.streams[namespace]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.streams[namespace]--; s.streams[namespace] == 0 {
			delete(s.streams, namespace)
		}
	}, nil
}

// admit lets a bridge have what concerns its own namespace.
func (s *Actors) admit(ctx context.Context, namespace string) error {
	if err := catalog.CheckNamespace(namespace); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	bridge := catalog.BridgeApp(namespace, s.Access.Cluster)
	if kind, id := s.Access.KindOf(ctx); kind == authz.Sidecar && id.App != bridge {
		return status.Errorf(codes.PermissionDenied, "the certificate names %s; only the bridge %s may ask for actors of namespace %s", id.App, bridge, namespace)
	}
	return nil
}
