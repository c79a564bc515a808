package resolverservice

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// Bounds of a peer's calls: a connection has one stream, and a request names what the peer
// has already.
const (
	peerStreams = 8
	peerRequest = 4 << 20 // bytes
)

// buildPeers makes the server that other clusters' resolver services reach through the
// gateway. There is none without certificates: nobody could tell who asks.
func (s *Service) buildPeers() (take func(net.Conn)) {
	if s.listeners["gateway"] == nil {
		return nil
	}
	if s.identity.Insecure() {
		s.log.Warn("other clusters can't ask this one for its exports: identity is insecure; give the service a certificate")
		return nil
	}
	s.handed = newHandover(s.Addr("gateway"))
	s.peerGRPC = s.newServer(atGateway, s.identity.PeeringCredentials(), grpc.MaxConcurrentStreams(peerStreams), grpc.MaxRecvMsgSize(peerRequest))
	v1alpha1.RegisterPeeringServer(s.peerGRPC, s.peers)
	return s.handed.give
}

// peersWithin is how long peers wait for the Cluster objects of a service that starts.
const peersWithin = 5 * time.Second

// servePeers serves peers until ctx ends. Before the Cluster objects are known, which say
// who may ask, peers wait rather than be refused.
func (s *Service) servePeers(ctx context.Context) error {
	first, cancel := context.WithTimeout(ctx, peersWithin)
	defer cancel()
	select {
	case <-s.links.Known():
	case <-first.Done():
	}
	return serveGRPC(ctx, s.handed, s.peerGRPC)
}
