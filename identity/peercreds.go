package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

// PeerCredentials are for a gRPC client of another cluster's resolver service. The service is
// checked against the trust of [Source.SetPeers], at each handshake and at each change of the
// trust. They are plain text when insecure.
func (s *Source) PeerCredentials(cluster string) credentials.TransportCredentials {
	if s.Insecure() {
		return insecure.NewCredentials()
	}
	return s.client(cluster, func(chain []*x509.Certificate, at time.Time) error {
		err := s.verifyService(cluster, chain, at)
		s.peers.notePresented(cluster, chain, err)
		return err
	})
}

// PeeringCredentials are for a gRPC server that accepts only resolver services of the clusters in
// [Source.SetPeers], each by its own trust. Handlers get the calling cluster from [FromPeer].
// They are plain text when insecure.
func (s *Source) PeeringCredentials() credentials.TransportCredentials {
	if s.Insecure() {
		return insecure.NewCredentials()
	}
	return s.server(s.verifyPeerClient)
}

// TunnelCredentials are [Source.PeerCredentials] for a connection that [Source.Prolong] keeps.
func (s *Source) TunnelCredentials(cluster string) credentials.TransportCredentials {
	creds := s.PeerCredentials(cluster)
	if c, ok := creds.(*client); ok {
		c.lasts = true
	}
	return creds
}

// TunnelingCredentials are [Source.PeeringCredentials] for connections that [Source.Prolong] keeps.
func (s *Source) TunnelingCredentials() credentials.TransportCredentials {
	creds := s.PeeringCredentials()
	if c, ok := creds.(*server); ok {
		c.lasts = true
	}
	return creds
}

// Peer returns the cluster whose resolver service a handshake with [Source.TunnelingCredentials] was
// with.
func Peer(info credentials.AuthInfo) (cluster string, ok bool) {
	own, ok := info.(authInfo)
	return own.peer, ok && own.peer != ""
}

// FromPeer returns the cluster whose resolver service makes a call, at a server with
// [Source.PeeringCredentials].
func FromPeer(ctx context.Context) (cluster string, ok bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", false
	}
	return Peer(p.AuthInfo)
}

// client is the client side of TLS. The embedded credentials answer everything but the handshake.
type client struct {
	credentials.TransportCredentials
	source  *Source
	cluster string // of a peer, which sometimes reconnects to present its newest certificate; empty for other servers
	lasts   bool   // see trackedConn
	verify  func(chain []*x509.Certificate, at time.Time) error
}

func (s *Source) client(cluster string, verify func([]*x509.Certificate, time.Time) error) *client {
	return &client{TransportCredentials: credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12}), source: s, cluster: cluster, verify: verify}
}

// Clone makes a copy.
func (c *client) Clone() credentials.TransportCredentials {
	copied := *c
	copied.TransportCredentials = c.TransportCredentials.Clone()
	return &copied
}

// ClientHandshake does a client's handshake.
func (c *client) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	s, at := c.source, time.Now()
	w := &trackedConn{Conn: raw, owner: &s.connections, cluster: c.cluster, lasts: c.lasts}
	cfg := s.clientTLS(func(cs tls.ConnectionState) error { return c.verify(cs.PeerCertificates, at) })
	var own *tls.Certificate
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (_ *tls.Certificate, err error) {
		own, err = s.certificate()
		return own, err
	}
	conn, info, err := identify(credentials.NewTLS(cfg).ClientHandshake(ctx, authority, w))
	if err != nil {
		return nil, nil, err
	}
	info.own, info.conn = own, w
	chain := info.State.PeerCertificates
	if err := s.connections.track(w, chain, func() error { return c.verify(chain, at) }); err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return conn, info, nil
}

// server is the server side of TLS.
type server struct {
	credentials.TransportCredentials
	source *Source
	lasts  bool // see trackedConn
	verify func(cs tls.ConnectionState, at time.Time) (principal, error)
	shown  Certificate // nil: the source's own
}

func (s *Source) server(verify func(tls.ConnectionState, time.Time) (principal, error)) *server {
	return &server{TransportCredentials: credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12}), source: s, verify: verify}
}

// Clone makes a copy.
func (c *server) Clone() credentials.TransportCredentials {
	copied := *c
	copied.TransportCredentials = c.TransportCredentials.Clone()
	return &copied
}

// ServerHandshake does a server's handshake.
func (c *server) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	s, at := c.source, time.Now()
	w := &trackedConn{Conn: raw, owner: &s.connections, lasts: c.lasts}
	var was principal
	cfg := s.serverTLS(func(cs tls.ConnectionState) (err error) {
		if _, err = s.usable(); err == nil {
			was, err = c.verify(cs, at)
		}
		return err
	})
	if c.shown != nil {
		cfg.GetCertificate = c.shown
	}
	var own *tls.Certificate
	show := cfg.GetCertificate
	cfg.GetCertificate = func(hello *tls.ClientHelloInfo) (_ *tls.Certificate, err error) {
		own, err = show(hello)
		return own, err
	}
	conn, info, err := identify(credentials.NewTLS(cfg).ServerHandshake(w))
	if err != nil {
		return nil, nil, err
	}
	info.peer, info.own, info.conn, w.cluster = was.peer, own, w, was.peer
	if err := s.connections.track(w, info.State.PeerCertificates, func() error {
		now, err := c.verify(info.State, at)
		if err == nil && now != was {
			err = errTrustChanged
		}
		return err
	}); err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	if was.peer != "" {
		s.peers.notePresented(was.peer, info.State.PeerCertificates, nil)
	}
	return conn, info, nil
}
