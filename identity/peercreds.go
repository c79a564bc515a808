package identity

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

// PeerCredentials are for a gRPC client of another cluster's resolver service, which
// is checked against what [Source.SetPeers] said of that cluster, at each handshake and
// whenever that changes. They are plain text when insecure.
func (s *Source) PeerCredentials(namespace, cluster string) credentials.TransportCredentials {
	if s.Insecure() {
		return insecure.NewCredentials()
	}
	return &toPeer{credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12}), s, namespace, cluster}
}

// ServiceCredentials are [Source.ServerCredentials] that let in peers' resolver
// services, too, by the roots that [Source.SetPeers] names for them. Handlers must ask
// [FromPeer]: such a caller may do only what a peer may.
func (s *Source) ServiceCredentials(authorize func(ID) error) credentials.TransportCredentials {
	if s.Insecure() {
		return insecure.NewCredentials()
	}
	return &service{credentials.NewTLS(s.ServerTLS(authorize)), s, authorize}
}

// FromPeer is the cluster whose resolver service makes a call, when it is believed by
// that cluster's roots alone and not by this one's. It may call nothing but what is for
// peers, whatever app its certificate names.
func FromPeer(ctx context.Context) (cluster string, ok bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", false
	}
	info, ok := p.AuthInfo.(authInfo)
	return info.peer, ok && info.peer != ""
}

// toPeer is the client's side of TLS to one cluster's resolver service. What it embeds
// answers for all but the handshake.
type toPeer struct {
	credentials.TransportCredentials
	source             *Source
	namespace, cluster string
}

// Clone makes a copy.
func (c *toPeer) Clone() credentials.TransportCredentials {
	copied := *c
	copied.TransportCredentials = c.TransportCredentials.Clone()
	return &copied
}

// ClientHandshake is the client's side of TLS.
func (c *toPeer) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	s, at := c.source, time.Now()
	w := &watched{Conn: raw, peers: &s.peers}
	// No session is resumed: there is no cache of them.
	cfg := &tls.Config{
		MinVersion:           tls.VersionTLS12,
		InsecureSkipVerify:   true, // replaced by VerifyConnection
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return s.certificate() },
		VerifyConnection: func(cs tls.ConnectionState) error {
			_, err := s.verifyService(c.namespace, c.cluster, cs.PeerCertificates, at)
			s.peers.note(c.cluster, cs.PeerCertificates, err)
			return err
		},
	}
	conn, info, err := identify(credentials.NewTLS(cfg).ClientHandshake(ctx, authority, w))
	if err != nil {
		return nil, nil, err
	}
	chain := info.(authInfo).State.PeerCertificates
	err = s.peers.watch(w, chain[0], func() error {
		_, err := s.verifyService(c.namespace, c.cluster, chain, at)
		return err
	})
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return conn, info, nil
}

// service is the server's side of TLS for sidecars, operators and peers.
type service struct {
	credentials.TransportCredentials
	source    *Source
	authorize func(ID) error
}

// Clone makes a copy.
func (c *service) Clone() credentials.TransportCredentials {
	return &service{c.TransportCredentials.Clone(), c.source, c.authorize}
}

// ServerHandshake is the server's side of TLS.
func (c *service) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	s, at := c.source, time.Now()
	w := &watched{Conn: raw, peers: &s.peers}
	var who standing
	cfg := s.serverTLS(func(cs tls.ConnectionState) (err error) {
		if _, err = s.usable(); err == nil {
			who, err = s.verifyClient(cs, at, c.authorize)
		}
		return err
	})
	conn, info, err := identify(credentials.NewTLS(cfg).ServerHandshake(w))
	if err != nil {
		return nil, nil, err
	}
	known := info.(authInfo)
	known.peer = who.peer
	if cluster, ok := s.peers.service(who.id.App); ok {
		if err := c.keep(w, cluster, who, known.State); err != nil {
			return nil, nil, errors.Join(err, conn.Close())
		}
	}
	return conn, known, nil
}

// keep has the connection of a resolver service watched. One that must be believed for
// another reason than before is ended: what it may do differs.
func (c *service) keep(w *watched, cluster string, was standing, cs tls.ConnectionState) error {
	at := time.Now()
	err := c.source.peers.watch(w, cs.PeerCertificates[0], func() error {
		now, err := c.source.verifyClient(cs, at, c.authorize)
		if err == nil && now != was {
			err = errors.New("identity: the trust in cluster " + cluster + " has changed; it may come back")
		}
		return err
	})
	if err == nil {
		c.source.peers.note(cluster, cs.PeerCertificates, nil)
	}
	return err
}
