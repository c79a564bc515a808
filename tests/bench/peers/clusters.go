package peers

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/process"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/tests/bench/harness"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
)

// start is what the service that is measured needs to know.
type start struct {
	Certificates                  harness.Certificates
	Exports, Peers, Used, Watched int // Watched: apps of each peer in use that the watcher may call
}

// sight is that the watcher's view has an app, by its ID, that may be called or not.
type sight struct {
	App   string
	Ready bool
}

// seen is when, as Unix time in nanoseconds.
type seen struct {
	Sight sight
	At    int64
}

// service runs the service that is measured, and answers the benchmark.
func service(b *harness.B, begin start) map[string]any {
	var told told
	s := b.NewService(harness.Config{Cluster: ours, Certificates: begin.Certificates, Peers: true, Listener: harness.Listen(), Watch: told.watch})
	s.Run(b, func(ctx context.Context) error { return process.SaveMemory(ctx, s.Topology.Ready()) })
	w := &catalog.AppEndpoints{App: watcher}
	clusters := map[string]*catalog.Cluster{} // that may ask, and are not asked yet
	objects := []catalog.Object{w}
	for i := range begin.Peers {
		for j := range begin.Watched {
			if i < begin.Used {
				w.Endpoints = append(w.Endpoints, catalog.Endpoint{App: appOf(peerName(i), j)})
			}
		}
		clusters[peerName(i)] = &catalog.Cluster{Name: peerName(i), StaleAfter: catalog.DefaultStaleAfter}
		objects = append(objects, clusters[peerName(i)])
	}
	s.Clusters.Store(slices.Collect(maps.Values(clusters)))
	harness.Apply(b, s.Topology, fill(ours, "*", begin.Exports, objects...))
	var mu sync.Mutex
	var sights []seen
	b.Go(func(ctx context.Context) error {
		follow(ctx, s.Topology, func(one seen) {
			mu.Lock()
			defer mu.Unlock()
			sights = append(sights, one)
		})
		return nil
	})
	return map[string]any{
		"PeerAddress": s.PeerListener.Addr().String, "Memory": harness.Settled, "Told": told.load,
		"Seen": func() []seen {
			mu.Lock()
			defer mu.Unlock()
			defer func() { sights = nil }()
			return sights
		},
		"Change": func(n int) {
			for i := range n {
				harness.Apply(b, s.Topology, flip(ours, i/2, i))
				time.Sleep(50 * time.Millisecond)
			}
		},
		// Use has one more app call an app of a peer, and answers how long it took until it could.
		"Use": func(peer string) time.Duration {
			caller, callee := catalog.App{Namespace: harness.Namespace, ID: "caller-of-" + peer}, appOf(peer, 0)
			began := time.Now()
			harness.Apply(b, s.Topology, topology.Change{Objects: &topology.ObjectChange{Put: []catalog.Object{&catalog.AppEndpoints{App: caller, Endpoints: []catalog.Endpoint{{App: callee}}}}}})
			b.Await("a link at rest is of use", time.Millisecond, func() {
				harness.Assert(s.Topology.Resolve(caller, callee).Outcome == catalog.OK, "it leads nowhere")
			})
			return time.Since(began)
		},
		// Link adds gateways, and answers how long it took until each of their clusters had said all that it
		// exports, and could be relied on.
		"Link": func(gateways map[string]string) time.Duration {
			began := time.Now()
			var change topology.ObjectChange
			for name, gateway := range gateways {
				asked := *clusters[name]
				asked.Gateways = []string{gateway}
				clusters[name] = &asked
				change.Put = append(change.Put, &asked)
			}
			linked := 0
			for _, c := range clusters {
				linked += len(c.Gateways)
			}
			harness.Apply(b, s.Topology, topology.Change{Objects: &change})
			s.Clusters.Store(slices.Collect(maps.Values(clusters)))
			b.Await("all clusters are heard", time.Millisecond, func() { heard(b, s.Topology, linked) })
			took := time.Since(began)
			s.Topology.Settle()
			return took
		},
	}
}

// heard fails unless so many clusters are heard.
func heard(ctx context.Context, t *topology.Topology, clusters int) {
	for _, s := range harness.Must(t.Inventory().Report(ctx, watcher, watcher)).Clusters {
		if s.Heard {
			clusters--
		}
	}
	harness.Assert(clusters == 0, "not all clusters are heard")
}

// follow follows the decisions in the watcher's view until ctx ends.
func follow(ctx context.Context, t *topology.Topology, note func(seen)) {
	sub := t.Subscribe(watcher)
	defer sub.Close()
	for before, err := sub.Next(ctx, nil); err == nil; {
		var view *catalog.View
		if view, err = sub.Next(ctx, before); err != nil {
			return
		}
		at := time.Now().UnixNano()
		for edit := range view.Entries.Diff(&before.Entries, func(a, b *catalog.Entry) bool { return a == b }) {
			if !edit.Remove {
				note(seen{sight{edit.App.ID, edit.Value.Outcome() == catalog.OK}, at})
			}
		}
		before = view
	}
}

// told counts what a server of exports says.
type told struct {
	exports atomic.Int64 // that were sent
	firsts  atomic.Int64 // first sets that are complete
}

// sent is what was said so far.
type sent struct{ Exports, Firsts int64 }

func (t *told) load() sent { return sent{t.exports.Load(), t.firsts.Load()} }

// watch counts what is sent on one stream.
func (t *told) watch(server any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return handle(server, &countedStream{ServerStream: ss, told: t})
}

type countedStream struct {
	grpc.ServerStream
	told     *told
	complete bool // of the goroutine that sends
}

// SendMsg sends a message, and counts what is in it.
func (s *countedStream) SendMsg(m any) error {
	err := s.ServerStream.SendMsg(m)
	if m, ok := m.(*pb.ExportsResponse); ok && err == nil {
		s.told.exports.Add(int64(len(m.GetPut())))
		if !s.complete && !m.GetMore() {
			s.complete = true
			s.told.firsts.Add(1)
		}
	}
	return err
}

func peerName(i int) string { return fmt.Sprintf("peer-%04d", i) }

// peer is another cluster.
type peer struct {
	*harness.Service
	name        string
	told        told
	asked, asks *servers.Proxy // through which the service's connections to it go, and its own to the service
}

// newPeer is a peer that listens there, and reaches the service at an address.
func newPeer(b *harness.B, name, service string, on net.Listener) *peer {
	p := &peer{name: name}
	p.asked, p.asks = harness.Must(servers.NewProxy(on.Addr().String())), harness.Must(servers.NewProxy(service))
	b.Defer(p.asked.Close)
	b.Defer(p.asks.Close)
	return p
}

// serve runs the peer until the end, with a link to the service's cluster, to which it exports. It is
// one of so many clusters, and may call so many apps there.
func (p *peer) serve(b *harness.B, certificates harness.Certificates, on net.Listener, trust catalog.Trust, many, exports, calls int) {
	p.Service = b.NewService(harness.Config{Cluster: p.name, Certificates: certificates, Peers: true, Many: -many, Listener: on, Watch: p.told.watch})
	west := &catalog.Cluster{Name: ours, Gateways: []string{p.asks.Addr()}, StaleAfter: catalog.DefaultStaleAfter, Trust: trust}
	p.Clusters.Store([]*catalog.Cluster{west})
	p.Run(b)
	w := &catalog.AppEndpoints{App: watcher}
	for i := range calls {
		w.Endpoints = append(w.Endpoints, catalog.Endpoint{App: appOf(ours, i)})
	}
	harness.Apply(b, p.Topology, fill(p.name, ours, exports, west, w))
}

// cut ends every connection between this peer and the service, and takes none until mend.
func (p *peer) cut() { p.asked.Refuse(); p.asks.Refuse() }

func (p *peer) mend() { harness.Check(p.asked.Mend()); harness.Check(p.asks.Mend()) }

// traffic is the bytes that have gone through all connections, as the service sees it: TLS included,
// TCP and IP not.
func (p *peer) traffic() (in, out float64) {
	asked, asks := p.asked.Traffic(), p.asks.Traffic()
	return float64(asked.Received + asks.Sent), float64(asked.Sent + asks.Received)
}
