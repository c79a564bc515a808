package stream

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
)

// authorizeOwn lets a sidecar have only its own app's view.
func authorizeOwn(ctx context.Context, app catalog.App) error {
	id, known := identity.FromContext(ctx)
	if known && id.App != app {
		return status.Errorf(codes.PermissionDenied, "the certificate names %s; it can't stream or register as %s", id.App, app)
	}
	return nil
}

// Resolve makes one lookup for an app: the caller's own, or any app for an operator.
func (s *Server) Resolve(ctx context.Context, req *pb.ResolveRequest) (*pb.Decision, error) {
	caller, err := wire.ParseApp(req.GetCaller())
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "caller: %v", err)
	}
	id, known := identity.FromContext(ctx)
	operator := !known || slices.Contains(s.cfg.Operators, id.App)
	if !operator && id.App != caller {
		return nil, status.Errorf(codes.PermissionDenied, "the certificate names %s; only operators may ask for %s", id.App, caller)
	}
	app, err := wire.ParseApp(req.GetApp())
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "app: %v", err)
	}
	d := s.topology.Resolve(caller, app)
	if operator {
		if err := s.addOperatorDetails(ctx, caller, app, &d); err != nil {
			return nil, status.FromContextError(err).Err()
		}
	}
	return wire.Decision(&d), nil
}
