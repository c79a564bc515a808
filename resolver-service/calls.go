package resolverservice

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/resolver-service/objects"
	"github.com/isthmus-mesh/isthmus/resolver-service/stream"
	"github.com/isthmus-mesh/isthmus/tracing"
)

// calls counts what the gRPC server is doing.
type calls struct {
	streams atomic.Int64 // of sidecars
}

// What calls of operators and of other clusters' services may be: "isthmus apply" sends all
// objects in one message, and a peer all that it knows.
const (
	maxTrustedRequest = 16 << 20
	maxTrustedStreams = 64
)

// buildGRPC makes the gRPC servers. Operators and other clusters' services have one of their
// own, since they may send more than a sidecar. Without identities everybody is an operator.
func (s *Service) buildGRPC() {
	own := []grpc.ServerOption{grpc.MaxRecvMsgSize(maxTrustedRequest), grpc.MaxConcurrentStreams(maxTrustedStreams)}
	creds := s.identity.ServiceCredentials(identity.Anyone)
	if s.identity.Insecure() {
		s.grpc = s.newGRPC(append(own, grpc.Creds(creds))...)
		return
	}
	s.handover = newHandover(s.Addr("resolver"))
	s.trusted = s.newGRPC(append(own, grpc.Creds(handedOver{creds}))...)
	s.grpc = s.newGRPC(grpc.Creds(dispatching{creds, s.handover, s.mayBeLarge}), grpc.InTapHandle(s.reading.tap))
}

// mayBeLarge tells whether a caller may send large requests: an operator, or the service of a
// cluster.
func (s *Service) mayBeLarge(info credentials.AuthInfo) bool {
	ctx := peer.NewContext(context.Background(), &peer.Peer{AuthInfo: info})
	if _, ok := identity.FromPeer(ctx); ok {
		return true
	}
	id, ok := identity.FromContext(ctx)
	return ok && (slices.Contains(s.cfg.operators(), id.App) ||
		id.App.Namespace == s.cfg.Identity.Namespace && strings.HasPrefix(id.App.ID, identity.ServiceApp("", "").ID))
}

// newGRPC makes a server of every gRPC service.
func (s *Service) newGRPC(own ...grpc.ServerOption) *grpc.Server {
	options := append(stream.ServerOptions(),
		tracing.ServerOption(s.spans, s.cfg.Cluster),
		grpc.ChainUnaryInterceptor(s.admit, s.count),
		grpc.ChainStreamInterceptor(s.admitStream, s.countStreams),
	)
	server := grpc.NewServer(append(options, own...)...)
	v1alpha1.RegisterResolverServer(server, s.stream)
	v1alpha1.RegisterPeeringServer(server, s.peers)
	v1alpha1.RegisterObjectsServer(server, objects.NewServer(objects.Config{
		Cluster: s.cfg.Cluster, Domain: catalog.Domain(s.cfg.Domain), Store: s.cfg.Store.Name(),
	}, s.store, s.feed, s.topology, s.log))
	v1alpha1.RegisterStatusServer(server, statusServer{status: s.status})
	return server
}

// forOperators are the services that nobody else may call.
var forOperators = []string{v1alpha1.Objects_ServiceDesc.ServiceName, v1alpha1.Status_ServiceDesc.ServiceName}

// admit lets operators alone call what is for operators.
func (s *Service) admit(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if err := s.admitPeer(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	service := serviceOf(info.FullMethod)
	id, known := identity.FromContext(ctx)
	if known && slices.Contains(forOperators, service) && !slices.Contains(s.cfg.operators(), id.App) {
		s.often.Warn("operator "+id.App.String(), "refused a caller that is no operator", "app", id.App.String(), "method", info.FullMethod)
		return nil, status.Errorf(codes.PermissionDenied, "%s is for operators, and app %s is none; operators are named in isthmus.yaml of the service", service, id.App)
	}
	return handle(ctx, req)
}

// admitStream holds peers to what is for peers.
func (s *Service) admitStream(server any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if err := s.admitPeer(ss.Context(), info.FullMethod); err != nil {
		return err
	}
	return handle(server, ss)
}

// admitPeer refuses all but peering to a caller whose certificate is believed by a
// peer's roots alone. It is that peer's resolver service, and never an app or an operator.
func (s *Service) admitPeer(ctx context.Context, method string) error {
	cluster, ok := identity.FromPeer(ctx)
	if !ok || serviceOf(method) == v1alpha1.Peering_ServiceDesc.ServiceName {
		return nil
	}
	s.often.Warn("peer "+cluster, "refused a peer what is not for peers", "peer", cluster, "method", method)
	return status.Errorf(codes.PermissionDenied, "the certificate is believed by the roots of cluster %s alone, for peering and nothing else", cluster)
}

// serviceOf is the service of a method's full name, "/service/method".
func serviceOf(method string) string {
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	return service
}

// count counts lookups by outcome.
func (s *Service) count(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	answer, err := handle(ctx, req)
	if d, ok := answer.(*v1alpha1.Decision); ok && err == nil {
		s.metrics.Lookup(d.GetOutcome())
	}
	return answer, err
}

// countStreams counts sidecars' streams.
func (s *Service) countStreams(server any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if info.FullMethod == v1alpha1.Resolver_Watch_FullMethodName {
		s.calls.streams.Add(1)
		defer s.calls.streams.Add(-1)
	}
	return handle(server, ss)
}
