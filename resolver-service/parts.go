package resolverservice

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
)

// startCore starts what ends last: the topology, and all that feeds it. The instances
// of the former life are there before the objects, so no view is without them.
func (s *Service) startCore(ctx context.Context, core *stage) error {
	core.start("topology", s.topology.Run)
	core.start("memory", func(ctx context.Context) error { return SaveMemory(ctx, s.topology.Ready()) })
	if s.listeners["resolver"] != nil {
		if err := s.stream.Restore(ctx); err != nil {
			return err
		}
	}
	if s.consul != nil {
		if err := s.consul.Restore(ctx); err != nil {
			return err
		}
	}
	core.start("identity", s.identity.Run)
	core.start("sources of instances", func(ctx context.Context) error { return ended(ctx, s.sources.feed.Run(ctx)) })
	if s.sources.shared != nil {
		core.start("shared instances", s.sources.shared.Run)
	}
	core.start("config store", s.feed.Run)
	core.start("settling", func(ctx context.Context) error {
		err := s.settle(ctx)
		<-ctx.Done()
		return err
	})
	core.start("peers", func(ctx context.Context) error { return s.links.Run(ctx, s.feed.Clusters()) })
	core.start("revision", func(ctx context.Context) error { return s.age.run(ctx, s.topology.Revision) })
	if l := s.listeners["admin"]; l != nil {
		core.start("listen.admin", func(ctx context.Context) error { return s.admin.Serve(ctx, l) })
	}
	return nil
}

// ended is err, unless it only says that ctx has ended.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// startEdges starts what others connect to.
func (s *Service) startEdges(edges, ingress *stage) {
	if l := s.listeners["resolver"]; l != nil {
		edges.start("streams", s.stream.Run)
		edges.start("listen.resolver", func(ctx context.Context) error {
			first, cancel := context.WithTimeout(ctx, headStart)
			_ = s.identity.Wait(first) // without one it serves all the same, and /readyz says so
			cancel()
			return serveGRPC(ctx, s.grpc, l)
		})
	}
	s.startDNS(edges)
	s.startConsul(edges)
	if l := s.listeners["gateway"]; l != nil {
		ingress.start("listen.gateway", func(ctx context.Context) error { return s.gateway.Serve(ctx, l) })
		if s.peerGRPC != nil {
			ingress.start("peers' calls", s.servePeers)
		}
	}
	s.startApps(ingress)
}

// callsTimeout is how long calls that run may go on after the end.
const callsTimeout = 2 * time.Second

// headStart is how long connections wait for the first identity. Without one each would
// fail in its handshake, and the client not know why.
const headStart = 2 * time.Second

// serveGRPC serves until ctx ends, and lets calls that run finish.
func serveGRPC(ctx context.Context, server *grpc.Server, l net.Listener) error {
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		late := time.AfterFunc(callsTimeout, server.Stop)
		defer late.Stop()
		server.GracefulStop()
	})
	err := server.Serve(l)
	if stop() {
		server.Stop()
		return err
	}
	<-stopped
	return nil
}
