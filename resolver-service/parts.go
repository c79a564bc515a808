package resolverservice

import (
	"context"
	"net"
	"sync"
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
	for _, p := range s.parts {
		if p.Restore == nil {
			continue
		}
		if err := p.Restore(ctx); err != nil {
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
	s.startParts(core, true)
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
	if l := s.resolver; l != nil {
		edges.start("streams", s.stream.Run)
		edges.start("listen.resolver", func(ctx context.Context) error {
			first, cancel := context.WithTimeout(ctx, headStart)
			_ = s.identity.Wait(first) // without one it serves all the same, and /readyz says so
			cancel()
			return s.serveResolver(ctx, l)
		})
	}
	s.startParts(edges, false)
	if l := s.listeners["gateway"]; l != nil {
		ingress.start("listen.gateway", func(ctx context.Context) error {
			s.afterPredecessor(ctx)
			return s.gateway.Serve(ctx, l)
		})
		if s.peerGRPC != nil {
			ingress.start("peers' calls", s.servePeers)
		}
	}
	s.startApps(ingress)
	if s.before != nil && s.listeners["gateway"] == nil {
		ingress.start("taking over", func(ctx context.Context) error {
			s.afterPredecessor(ctx)
			<-ctx.Done()
			return nil
		})
	}
}

// callsTimeout is how long calls that run may go on after the end.
const callsTimeout = 2 * time.Second

// headStart is how long connections wait for the first identity. Without one each would
// fail in its handshake, and the client not know why.
const headStart = 2 * time.Second

// serveResolver serves sidecars and operators until ctx ends.
func (s *Service) serveResolver(ctx context.Context, l net.Listener) error {
	if s.trusted == nil {
		return serveGRPC(ctx, l, s.grpc)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.trusted.Serve(s.handover) }) // ends when it is stopped
	defer serving.Wait()
	return serveGRPC(ctx, l, s.grpc, s.trusted)
}

// serveGRPC has the first of the servers serve until ctx ends. Then all of them let calls
// that run finish.
func serveGRPC(ctx context.Context, l net.Listener, servers ...*grpc.Server) error {
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		late := time.AfterFunc(callsTimeout, func() { each(servers, (*grpc.Server).Stop) })
		defer late.Stop()
		each(servers, (*grpc.Server).GracefulStop)
	})
	err := servers[0].Serve(l)
	if stop() {
		each(servers, (*grpc.Server).Stop)
		return err
	}
	<-stopped
	return nil
}

// each calls do for all servers at once, and waits.
func each(servers []*grpc.Server, do func(*grpc.Server)) {
	var all sync.WaitGroup
	for _, server := range servers {
		all.Go(func() { do(server) })
	}
	all.Wait()
}
