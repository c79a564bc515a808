package resolverservice

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// actorServer is the service Actors.
type actorServer struct {
	v1alpha1.UnimplementedActorsServer
	topology *topology.Topology
	access   *authorizer
	stopping context.Context
}

// Watch streams what a namespace's bridge has to know.
func (s *actorServer) Watch(req *v1alpha1.ActorsRequest, to grpc.ServerStreamingServer[v1alpha1.ActorsResponse]) error {
	ctx := to.Context()
	if err := s.admit(ctx, req.GetNamespace()); err != nil {
		return err
	}
	sub, err := s.topology.Actors(ctx, req.GetNamespace())
	if err != nil {
		return status.FromContextError(err).Err()
	}
	defer sub.Close()
	var sent *catalog.ActorView
	for {
		view, ok, changed := sub.Follow()
		if ok && view != sent {
			if err := to.Send(wire.Actors(view)); err != nil {
				return err
			}
			sent = view
		}
		select {
		case <-changed:
		case <-s.stopping.Done():
			return status.Error(codes.Unavailable, "the resolver service is stopping; reconnect")
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// admit lets a bridge have what concerns its own namespace.
func (s *actorServer) admit(ctx context.Context, namespace string) error {
	if err := catalog.CheckNamespace(namespace); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	bridge := catalog.BridgeApp(namespace, s.access.cluster)
	if kind, id := s.access.kindOf(ctx); kind == sidecar && id.App != bridge {
		return status.Errorf(codes.PermissionDenied, "the certificate names %s; only the bridge %s may ask for actors of namespace %s", id.App, bridge, namespace)
	}
	return nil
}
