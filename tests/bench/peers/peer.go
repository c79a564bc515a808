package main

import (
	"context"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
	"github.com/isthmus-mesh/isthmus/tests/bench/resolver"
)

// peer is another cluster.
type peer struct {
	*resolver.Service
	name string
	told told

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
func startPeer(ctx context.Context, certificates resolver.Certificates, name, service string, others int) (p *peer, err error) {
	p = &peer{name: name, conns: map[*counted]struct{}{}, shut: make(chan struct{})}
	close(p.shut)
	p.Service, err = resolver.New(ctx, resolver.Config{Cluster: name, Certificates: certificates, Peers: true, Dial: p.dial, Watch: p.told.watch})
	if err != nil {
		return nil, err
	}
	p.gate = p.PeerListener
	p.PeerListener = &door{p.gate, p}
	west := &catalog.Cluster{Name: ours, Gateways: []string{service}, StaleAfter: catalog.DefaultStaleAfter, RampUp: rampUp}
	p.Clusters.Store([]*catalog.Cluster{west})
	p.group.Go(func() error { return p.Run(ctx) })
	_, err = p.Topology.Apply(ctx, fill(name, ours, others, west))
	return p, err
}

// stop waits for its end, once its context has ended.
func (p *peer) stop() error { return p.group.Wait() }

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
	if p.gate, err = net.Listen("tcp", p.PeerAddress()); err != nil {
		return err
	}
	p.mu.Lock()
	p.away = false
	p.mu.Unlock()
	p.group.Go(func() error {
		_ = p.PeerServer.Serve(&door{p.gate, p}) // ends with the listener
		return nil
	})
	return nil
}

// hears waits until the cluster has heard ours.
func (p *peer) hears(ctx context.Context) error {
	return measure.Await(ctx, p.name+" hears "+ours, 5*time.Millisecond, func() error { return heard(ctx, p.Topology, 1) })
}

// traffic is what has gone through all connections, as the service sees it.
func (p *peer) traffic() (in, out count) {
	return p.asked.out.load().plus(p.asks.out.load()), p.asked.in.load().plus(p.asks.in.load())
}
