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
	if req.GetActor() != "" {
		return s.resolveActor(ctx, caller, req.GetActor())
	}
	app, err := wire.ParseApp(req.GetApp())
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "app: %v", err)
	}
	if req.GetCluster() != "" {
		return s.resolveFromCluster(ctx, operator, req.GetCluster(), caller, app)
	}
	headers := make([]catalog.HeaderValue, len(req.GetHeaders()))
	for i, h := range req.GetHeaders() {
		if headers[i], err = wire.ParseHeader(h); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "header %d: %v", i, err)
		}
	}
	d := s.topology.ResolveCall(caller, app, headers)
	if d.Outcome == catalog.NotReady {
		sub := s.topology.Subscribe(caller)
		defer sub.Close()
		sub.Answered(ctx, app)
		d = s.topology.ResolveCall(caller, app, headers)
	}
	if operator {
		if d.App != (catalog.App{}) {
			app = d.App // which the caller may call by another name
		}
		err := s.addOperatorDetails(ctx, caller, app, &d)
		if err == nil {
			var notes []string
			notes, err = noting{s}.notes(ctx, caller, app, &d)
			d.Notes = append(d.Notes, notes...)
		}
		if err != nil {
			return nil, status.FromContextError(err).Err()
		}
	}
	return wire.Decision(&d), nil
}

// resolveActor tells where an app's call of an actor goes.
func (s *Server) resolveActor(ctx context.Context, caller catalog.App, typ string) (*pb.Decision, error) {
	if err := catalog.CheckActorType(typ); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "actor: %v", err)
	}
	d, err := s.topology.ResolveActor(ctx, caller, typ)
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	return wire.Decision(&d), nil
}

// resolveFromCluster tells an operator how a caller in another cluster is served here.
func (s *Server) resolveFromCluster(ctx context.Context, operator bool, cluster string, caller, app catalog.App) (*pb.Decision, error) {
	if !operator {
		return nil, status.Error(codes.PermissionDenied, "only operators may ask for callers of other clusters")
	}
	if err := catalog.CheckCluster(cluster); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "cluster: %v", err)
	}
	d, err := s.topology.ResolveFrom(ctx, cluster, caller, app)
	if err == nil {
		var more []string
		more, err = noting{s}.notes(ctx, app, app, &d)
		d.Notes = append(d.Notes, more...)
	}
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	return wire.Decision(&d), nil
}
