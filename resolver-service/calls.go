package resolverservice

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

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

// newServer makes a gRPC server for a listener, whose calls are held to access.
func (s *Service) newServer(listener string, creds credentials.TransportCredentials, more ...grpc.ServerOption) *grpc.Server {
	options := append(stream.ServerOptions(),
		grpc.Creds(creds), grpc.ConnectionTimeout(handshakeTimeout), tracing.ServerOption(s.spans, s.cfg.Cluster))
	options = append(options, s.admit(listener)...)
	return grpc.NewServer(append(options, more...)...)
}

// newGRPC makes the server for sidecars and operators.
func (s *Service) newGRPC() *grpc.Server {
	server := s.newServer(atResolver, s.identity.ServerCredentials(identity.Anyone),
		grpc.ChainUnaryInterceptor(s.count), grpc.ChainStreamInterceptor(s.countStreams))
	v1alpha1.RegisterResolverServer(server, s.stream)
	v1alpha1.RegisterObjectsServer(server, objects.NewServer(objects.Config{
		Cluster: s.cfg.Cluster, Domain: catalog.Domain(s.cfg.Domain), Store: s.cfg.Store.Name(),
	}, s.store, s.feed, s.topology, s.log))
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
