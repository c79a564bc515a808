package check

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"golang.org/x/net/http2"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
)

// Within is how long a network check takes at most.
const Within = 2 * time.Second

// maxVisits is how many gateways are tried at a time, with two connections each.
const maxVisits = 128

// largeHello is the least size of the ClientHello that a sidecar sends, in bytes.
const largeHello = 1522

// Prober tries the gateways of peers.
type Prober struct {
	Identity  *identity.Source
	Namespace string // of Isthmus' own apps
	Domain    catalog.Domain
	Within    time.Duration // for one gateway, both connections

	places chan struct{}
}

// NewProber returns a prober for one run of the checks.
func NewProber(source *identity.Source, namespace string, domain catalog.Domain) *Prober {
	return &Prober{Identity: source, Namespace: namespace, Domain: domain, Within: Within, places: make(chan struct{}, maxVisits)}
}

// visit is what was found at one gateway.
type visit struct {
	cluster, address string
	large            greeting
	small            greeting // without mTLS it is not tried
	insecure         bool
	id               identity.ID // of whom it leads to; zero: no Dapr app
	trust            error       // why that is not the cluster's resolver service
}

// greeting is what came of a ClientHello.
type greeting struct {
	dial     error // no connection
	answered bool  // something came back
	err      error // of the handshake
	refused  error // of the other end, after the handshake
	state    tls.ConnectionState
}

// silent tells whether nothing came back in time.
func (g *greeting) silent() bool { return g.dial == nil && !g.answered && timedOut(g.err) }

// alert tells whether the other end ended the handshake with an alert.
func (g *greeting) alert(text string) bool {
	return g.err != nil && strings.Contains(g.err.Error(), "remote error: tls: "+text)
}

func timedOut(err error) bool {
	var t net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}

// visit tries all gateways of a peer, side by side.
func (p *Prober) visit(ctx context.Context, peer *v1alpha1.PeerStatus) []*visit {
	done := make(chan *visit)
	for _, g := range peer.GetGateways() {
		go func() {
			p.places <- struct{}{}
			defer func() { <-p.places }()
			done <- p.try(ctx, peer.GetCluster(), g.GetAddress())
		}()
	}
	var all []*visit
	for range peer.GetGateways() {
		all = append(all, <-done)
	}
	return all
}

func (p *Prober) try(ctx context.Context, cluster, address string) *visit {
	ctx, cancel := context.WithTimeout(ctx, p.Within)
	defer cancel()
	v := &visit{cluster: cluster, address: address, insecure: p.Identity.Insecure()}
	if v.insecure {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if v.large.dial = err; err == nil {
			conn.Close()
		}
		return v
	}
	small := make(chan greeting)
	go func() { small <- p.greet(ctx, v, false) }()
	v.large = p.greet(ctx, v, true)
	v.small = <-small
	if v.large.err == nil && v.large.dial == nil {
		v.id, v.trust = p.Identity.CheckPeer(cluster, v.large.state)
	}
	return v
}

// greet makes one handshake as a peer does, with a ClientHello that fills a packet, or with a
// small one.
func (p *Prober) greet(ctx context.Context, v *visit, large bool) (g greeting) {
	cfg := p.Identity.CheckTLS()
	cfg.ServerName = p.Domain.PeerHost(v.cluster)
	cfg.NextProtos = []string{http2.NextProtoTLS, catalog.CheckProtocol}
	if large {
		for range largeHello / 255 {
			cfg.NextProtos = append(cfg.NextProtos, strings.Repeat("-", 255))
		}
	} else {
		cfg.CurvePreferences = []tls.CurveID{tls.X25519, tls.CurveP256}
	}
	p.handshake(ctx, v.address, cfg, &g)
	return g
}

// handshake connects, makes a handshake and sees whether our certificate is taken.
func (p *Prober) handshake(ctx context.Context, address string, cfg *tls.Config, g *greeting) {
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		g.dial = err
		return
	}
	defer raw.Close()
	heard := &heardConn{Conn: raw}
	conn := tls.Client(heard, cfg)
	g.err = conn.HandshakeContext(ctx)
	if g.answered = heard.any; g.err != nil {
		return
	}
	g.state = conn.ConnectionState()
	g.refused = accepted(ctx, conn)
}

// accepted is the error of a server that ends a connection once it has seen our certificate. One
// that takes it, or says nothing in time, has none.
func accepted(ctx context.Context, conn *tls.Conn) error {
	if end, ok := ctx.Deadline(); ok {
		conn.SetDeadline(end)
	}
	frames := http2.NewFramer(conn, conn)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return err
	}
	if err := frames.WriteSettings(); err != nil {
		return err
	}
	if _, err := frames.ReadFrame(); err != nil && !timedOut(err) {
		return err
	}
	return nil
}

// heardConn knows whether anything was read.
type heardConn struct {
	net.Conn
	any bool
}

func (c *heardConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.any = c.any || n > 0
	return n, err
}
