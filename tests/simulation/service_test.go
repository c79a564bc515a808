package simulation

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/peering"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/objects"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

var discardLog = slog.New(slog.NewTextHandler(io.Discard, nil))

// settleDelay is how long after all sources are known the service calls Settle, as the real one
// does.
const settleDelay = 5 * time.Second

// service is one life of one replica of a cluster's resolver service. All its parts are real
// except for the store, the source of instances and the network.
type service struct {
	replica  *replica
	topology *topology.Topology
	feed     *objects.Feed
	links    *peering.Links
	server   *peering.Server
	grpc     *grpc.Server
	stream   *stream.Server
	sidecars *grpc.Server       // of sidecars
	leave    context.CancelFunc // ends the streams
	settled  chan struct{}      // closed once views have what they had before a restart
	sourced  chan struct{}      // closed once the source of instances is known
	running  atomic.Int64       // version of the applied instances; -1 before the first

	actors     *topology.Followed[*catalog.ActorView] // nil before the first look
	claims     map[string]int                         // the oldest versions of other clusters' claims that it may still go by; -1: none
	claimsSeen int                                    // the version of the objects when these were looked at

	ctx       context.Context
	cancel    context.CancelFunc
	parts     sync.WaitGroup
	streaming sync.WaitGroup // what needs the parts
}

// start starts a replica. With memory it has the instances of its last life at once.
func (r *replica) start(memory bool) { r.clock.do(func() { r.run(memory) }) }

func (r *replica) run(memory bool) {
	w, c := r.cluster.world, r.cluster
	s := &service{replica: r, settled: make(chan struct{}), sourced: make(chan struct{}), claims: map[string]int{}}
	for _, name := range clusterNames {
		s.claims[name] = -1
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.running.Store(-1)
	source, err := identity.New(identity.Config{Insecure: true}, identity.ServiceApp("", c.name), discardLog)
	if err != nil {
		w.fail("identity of %s: %v", r.host, err)
		return
	}
	var corrupt func(catalog.Object) catalog.Object
	if w.mutation != (mutation{}) {
		corrupt = w.mutation.corrupt(r)
	}
	s.topology = topology.New(topology.Config{Cluster: c.name, Network: c.network, Domain: catalog.DefaultDomain, Open: true}, discardLog)
	s.feed = objects.NewFeed(&store{objects: c.objects, access: r.store, corrupt: corrupt}, s.topology, discardLog)
	s.feed.After(s.sourced)
	cfg := peering.Config{Cluster: c.name, Domain: catalog.DefaultDomain, Dial: w.dialPeers(r.host), MaxKnown: w.maxKnown}
	s.links = peering.NewLinks(cfg, s.topology, source, discardLog)
	s.server = peering.NewServer(cfg, s.topology, discardLog)
	peering.Join(s.links, s.server)
	s.grpc = grpc.NewServer(grpc.WaitForHandlers(true), grpc.StreamInterceptor(r.watchRevisions))
	v1alpha1.RegisterPeeringServer(s.grpc, s.server)
	s.part("topology", s.topology.Run)
	if memory && r.remembered > 0 {
		if err := s.runs(r.remembered, c.instances.at(r.remembered)); err != nil {
			w.fail("%s: instances of before: %v", r.host, err)
		}
	}
	s.part("instances", s.followInstances)
	s.part("objects", s.feed.Run)
	s.part("links", func(ctx context.Context) error { return s.links.Run(ctx, s.feed.Clusters()) })
	s.part("settling", s.settle)
	r.service = s
	for _, g := range c.gateways {
		if g.up && g.target == r {
			g.listen()
		}
	}
	s.serveSidecars()
}

// serveSidecars serves the streams of sidecars.
func (s *service) serveSidecars() {
	r, w := s.replica, s.replica.cluster.world
	id, err := newIdentity(r.cluster.name, identity.ServiceApp("", r.cluster.name))
	if err == nil {
		s.stream, err = stream.New(stream.Config{Cluster: r.cluster.name, Settled: s.settled, Unreachable: s.links.SetUnreachable},
			s.topology, prometheus.NewRegistry(), discardLog)
	}
	if err != nil {
		w.fail("%s: %v", r.host, err)
		return
	}
	l, err := w.net.Host(r.host).Listen(resolverPort)
	if err != nil {
		w.fail("%s: %v", r.host, err)
		return
	}
	s.sidecars = grpc.NewServer(append(stream.ServerOptions(), grpc.Creds(id.ServerCredentials(func(identity.ID) error { return nil })))...)
	v1alpha1.RegisterResolverServer(s.sidecars, s.stream)
	var ctx context.Context
	ctx, s.leave = context.WithCancel(s.ctx)
	s.parts.Go(func() { _ = id.Run(ctx) }) // returns nil
	s.streaming.Go(func() {
		if err := s.stream.Run(ctx); err != nil {
			w.fail("%s: streams: %v", r.host, err)
		}
	})
	s.streaming.Go(func() { _ = s.sidecars.Serve(l) })
}

// isSettled tells whether views have what they had before a restart.
func (s *service) isSettled() bool {
	select {
	case <-s.settled:
		return true
	default:
		return false
	}
}

// version is that of the objects that it knows.
func (s *service) version() int {
	version, err := strconv.Atoi(string(s.feed.Status().Version))
	if err != nil {
		panic(fmt.Sprintf("version %q of the simulated store", s.feed.Status().Version))
	}
	return version
}

func (s *service) part(name string, run func(context.Context) error) {
	s.parts.Go(func() {
		if err := run(s.ctx); err != nil && s.ctx.Err() == nil {
			s.replica.cluster.world.fail("%s: %s ended by itself: %v", s.replica.host, name, err)
		}
	})
}

// settle waits as the real service does.
func (s *service) settle(ctx context.Context) error {
	for _, heard := range []<-chan struct{}{s.links.Settled(), s.sourced} {
		select {
		case <-heard:
		case <-ctx.Done():
			return nil
		}
	}
	close(s.settled)
	if live.Sleep(ctx, settleDelay) {
		s.topology.Settle()
	}
	return nil
}

// followInstances follows the source of instances, and keeps the last state while that is out of
// reach.
func (s *service) followInstances(ctx context.Context) error {
	for {
		err := read(ctx, s.replica.cluster.instances, s.replica.source, s.runs)
		if ctx.Err() != nil {
			return nil
		}
		if err != errCut {
			return err
		}
		if !live.Sleep(ctx, 100*time.Millisecond) {
			return nil
		}
	}
}

// runs applies the full set of the source of instances.
func (s *service) runs(version int, state map[topology.InstanceKey]catalog.Instance) error {
	change := topology.InstanceChange{Source: "shared", Full: true, Put: slices.Collect(maps.Values(state))}
	if _, err := s.topology.Apply(s.ctx, topology.Change{Instances: []topology.InstanceChange{change}}); err != nil {
		return err
	}
	if s.running.Swap(int64(version)) < 0 {
		close(s.sourced)
	}
	return nil
}

// stop ends a replica; kill as kill -9 does.
func (r *replica) stop(kill bool) {
	if s := r.service; s != nil {
		r.service = nil
		r.clock.do(func() { r.end(s, kill) })
	}
}

func (r *replica) end(s *service, kill bool) {
	r.remembered = max(0, int(s.running.Load()))
	if kill {
		r.cluster.world.net.Host(r.host).Kill()
		for _, g := range r.cluster.gateways {
			if g.target == r {
				g.close()
			}
		}
	}
	s.leave()
	s.sidecars.Stop()
	s.streaming.Wait()
	if kill {
		s.server.Stop()
	} else {
		s.server.Leave(time.Second)
	}
	s.grpc.Stop()
	if s.actors != nil {
		s.actors.Close()
	}
	s.cancel()
	s.parts.Wait()
	for _, g := range r.cluster.gateways {
		if g.target == r {
			g.close()
		}
	}
}

// objects are the true objects at the version that the service has; nil before the first.
func (s *service) objects() map[catalog.Key]catalog.Object {
	if !s.feed.Status().Synced {
		return nil
	}
	return s.replica.cluster.objects.at(s.version())
}

// watchRevisions checks that revisions never decrease on a stream to a peer.
func (r *replica) watchRevisions(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return handle(srv, &watched{ServerStream: ss, replica: r, method: info.FullMethod})
}

type watched struct {
	grpc.ServerStream
	replica *replica
	method  string
	last    uint64
}

func (s *watched) SendMsg(m any) error {
	if s.method == v1alpha1.Peering_Exports_FullMethodName && s.replica.cluster.mute.Load() {
		return status.Error(codes.Unavailable, "no exports come through")
	}
	if r, ok := m.(interface{ GetRevision() uint64 }); ok && r.GetRevision() != 0 {
		if r.GetRevision() < s.last {
			s.replica.cluster.world.fail("revision: %s tells a peer revision %d after %d on one stream of %s", s.replica.host, r.GetRevision(), s.last, s.method)
		}
		s.last = r.GetRevision()
	}
	return s.ServerStream.SendMsg(m)
}
