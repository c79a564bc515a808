package resolverservice

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	grpcpeer "google.golang.org/grpc/peer"

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

// handshakeTimeout is how long a client may take to be known.
const handshakeTimeout = 5 * time.Second

// What calls of operators may be: "isthmus apply" sends all objects in one message.
const (
	maxTrustedRequest = 16 << 20
	maxTrustedStreams = 64
)

// newServer makes a gRPC server for a listener, whose calls are held to access.
func (s *Service) newServer(listener string, creds credentials.TransportCredentials, more ...grpc.ServerOption) *grpc.Server {
	options := append(stream.ServerOptions(),
		grpc.Creds(creds), grpc.ConnectionTimeout(handshakeTimeout), tracing.ServerOption(s.spans, s.cfg.Cluster))
	options = append(options, s.admit(listener)...)
	return grpc.NewServer(append(options, more...)...)
}

// buildGRPC makes the gRPC servers of listen.resolver. Operators have one of their own, since
// they may send more than a sidecar. Without identities everybody is an operator.
func (s *Service) buildGRPC() {
	own := []grpc.ServerOption{grpc.MaxRecvMsgSize(maxTrustedRequest), grpc.MaxConcurrentStreams(maxTrustedStreams)}
	creds := s.identity.ServerCredentials(identity.Anyone)
	if s.identity.Insecure() {
		s.grpc = s.newGRPC(creds, own...)
		return
	}
	s.handover = newHandover(s.Addr("resolver"))
	s.trusted = s.newGRPC(handedOver{creds}, own...)
	s.grpc = s.newGRPC(dispatching{creds, s.handover, s.mayBeLarge}, grpc.InTapHandle(s.reading.tap))
}

// mayBeLarge tells whether a caller may send large requests.
func (s *Service) mayBeLarge(info credentials.AuthInfo) bool {
	kind, _ := s.kindOf(grpcpeer.NewContext(context.Background(), &grpcpeer.Peer{AuthInfo: info}))
	return kind == operator
}

// newGRPC makes a server of what listen.resolver serves.
func (s *Service) newGRPC(creds credentials.TransportCredentials, own ...grpc.ServerOption) *grpc.Server {
	server := s.newServer(atResolver, creds, append(own,
		grpc.ChainUnaryInterceptor(s.count), grpc.ChainStreamInterceptor(s.countStreams))...)
	v1alpha1.RegisterResolverServer(server, s.stream)
	v1alpha1.RegisterObjectsServer(server, objects.NewServer(objects.Config{
		Cluster: s.cfg.Cluster, Domain: catalog.Domain(s.cfg.Domain), Store: s.cfg.Store.Name(), Listens: s.destinations.Listens,
	}, s.store, s.feed, s.topology, s.log))
	v1alpha1.RegisterInventoryServer(server, &inventory{topology: s.topology, sidecars: s.stream.Sidecars, events: s.events, stopping: s.stream.Stopping()})
	v1alpha1.RegisterStatusServer(server, statusServer{status: s.status})
	return server
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
