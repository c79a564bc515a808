package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/peering"
	"github.com/isthmus-mesh/isthmus/resolver-service/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// peer is another cluster.
type peer struct {
	name     string
	topology *topology.Topology
	links    *peering.Links
	peering  *peering.Server
	server   *grpc.Server
	address  string
	told     told

	asked traffic // through connections that the service made to this peer
	asks  traffic // and this one to the service

	mu    sync.Mutex
	conns map[*counted]struct{}
	away  bool          // nobody can connect, either way
	shut  chan struct{} // closed while connections are taken
	gate  net.Listener
	group errgroup.Group
}

// startPeer starts a cluster that exports to ours and has a link to it, until ctx ends.
func startPeer(ctx context.Context, at place, name, service string, others int) (*peer, error) {
	p := &peer{name: name, conns: map[*counted]struct{}{}, shut: make(chan struct{})}
	close(p.shut)
	app := identity.ServiceApp("", name)
	id, err := identity.New(at.identity(app), app, quiet)
	if err != nil {
		return nil, err
	}
	if err := id.Load(ctx); err != nil {
		return nil, err
	}
	p.topology = topology.New(topology.Config{Cluster: name, Domain: catalog.DefaultDomain, Open: true}, quiet)
	p.links, p.peering = newPeering(name, p.dial, p.topology, id)
	p.server = grpc.NewServer(append(stream.ServerOptions(), grpc.MaxRecvMsgSize(4<<20),
		grpc.Creds(id.PeeringCredentials()), grpc.StreamInterceptor(p.told.watch))...)
	pb.RegisterPeeringServer(p.server, p.peering)
	if p.gate, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	p.address = p.gate.Addr().String()

	west := &catalog.Cluster{Name: ours, Gateways: []string{service}, StaleAfter: catalog.DefaultStaleAfter, RampUp: rampUp}
	var clusters live.Value[[]*catalog.Cluster]
	clusters.Store([]*catalog.Cluster{west})
	p.group.Go(func() error { return p.topology.Run(ctx) })
	p.group.Go(func() error { return p.links.Run(ctx, &clusters) })
	p.serve(p.gate)
	_, err = p.topology.Apply(ctx, fill(name, ours, others, west))
	return p, err
}

func (p *peer) serve(l net.Listener) {
	p.group.Go(func() error {
		_ = p.server.Serve(&door{l, p}) // ends with the listener
		return nil
	})
}

// stop ends it, once its context has ended.
func (p *peer) stop() error {
	p.peering.Stop()
	p.server.Stop()
	return p.group.Wait()
}

// door is a listener whose connections are counted, and can be held up.
type door struct {
	net.Listener
	peer *peer
}

// Accept waits for a connection.
func (d *door) Accept() (net.Conn, error) {
	conn, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	d.peer.mu.Lock()
	shut := d.peer.shut
	d.peer.mu.Unlock()
	<-shut
	return d.peer.count(conn, &d.peer.asked), nil
}

func (p *peer) dial(ctx context.Context, address string) (net.Conn, error) {
	p.mu.Lock()
	away := p.away
	p.mu.Unlock()
	if away {
		return nil, syscall.ECONNREFUSED
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return p.count(conn, &p.asks), nil
}

func (p *peer) count(conn net.Conn, t *traffic) net.Conn {
	c := &counted{Conn: conn, traffic: t, closed: p.forget}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = struct{}{}
	return c
}

func (p *peer) forget(c *counted) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// connections are how many there are with the service, both ways.
func (p *peer) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// cut ends every connection between this peer and the service.
func (p *peer) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Conn.Close() // whoever reads it learns of it
	}
}

// hold has nobody's connection taken any more until the function that it returns is
// called.
func (p *peer) hold() (release func()) {
	shut := make(chan struct{})
	p.mu.Lock()
	p.shut = shut
	p.mu.Unlock()
	return func() { close(shut) }
}

// leave makes the cluster one that is not there: its gateway refuses connections.
func (p *peer) leave() {
	p.mu.Lock()
	p.away = true
	p.mu.Unlock()
	_ = p.gate.Close()
	p.cut()
}

// comeBack makes it be there again, where it was.
func (p *peer) comeBack() (err error) {
	if p.gate, err = net.Listen("tcp", p.address); err != nil {
		return err
	}
	p.mu.Lock()
	p.away = false
	p.mu.Unlock()
	p.serve(p.gate)
	return nil
}

// hears waits until the cluster has heard ours.
func (p *peer) hears(ctx context.Context) error {
	for limit := time.Now().Add(patience); time.Now().Before(limit); time.Sleep(5 * time.Millisecond) {
		told, err := p.topology.Report(ctx, watcher, watcher)
		if err != nil {
			return err
		}
		if all := told.Clusters; len(all) == 1 && all[0].Heard {
			return nil
		}
	}
	return errors.New("cluster " + p.name + " does not hear " + ours)
}

// traffic is what has gone through all connections, as the service sees it.
func (p *peer) traffic() (in, out count) {
	return p.asked.out.load().plus(p.asks.out.load()), p.asked.in.load().plus(p.asks.in.load())
}
