package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Bootstrap is a connection of two services that can't verify each other's roots yet. Both ends
// have proved that they have the keys of their certificates, and nothing else.
type Bootstrap struct {
	// Binding is different for each connection, and the same at both ends of one: the TLS
	// exporter of RFC 9266.
	Binding []byte
	Own     [][]byte            // the chain that this end has presented, in DER
	Peer    []*x509.Certificate // that of the other end
	ID      ID                  // in the other end's certificate, unverified
}

// bindingLabel and bindingLength are those of RFC 9266, 2.
const (
	bindingLabel  = "EXPORTER-Channel-Binding"
	bindingLength = 32
)

// errBootstrapTLS refuses versions of TLS whose exporter does not stand for the whole handshake.
var errBootstrapTLS = errors.New("identity: a bootstrap takes TLS 1.3")

// BootstrapCredentials are for both ends of a bootstrap, which accept any certificate of a Dapr
// app. The messages on the connection have to prove the rest: see [BootstrapOf] and
// [VerifyBootstrap]. It needs an identity, so insecure sources have none: the result is nil.
func (s *Source) BootstrapCredentials() credentials.TransportCredentials {
	if s.Insecure() {
		return nil
	}
	version := func(cs tls.ConnectionState) error {
		if cs.Version != tls.VersionTLS13 {
			return errBootstrapTLS
		}
		return nil
	}
	c := &bootstrapCredentials{
		server: s.server(func(cs tls.ConnectionState, _ time.Time) (principal, error) { return principal{}, version(cs) }),
		client: s.client("", func([]*x509.Certificate, time.Time) error { return nil }),
	}
	c.TransportCredentials = c.client
	return c
}

// bootstrapCredentials are both sides in one.
type bootstrapCredentials struct {
	credentials.TransportCredentials
	client *client
	server *server
}

// ServerHandshake is the handshake of the side that is dialled.
func (c *bootstrapCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c.server.ServerHandshake(raw)
}

// Clone makes a copy.
func (c *bootstrapCredentials) Clone() credentials.TransportCredentials {
	copied := *c
	copied.TransportCredentials = c.TransportCredentials.Clone()
	return &copied
}

// BootstrapOf returns the bootstrap that a gRPC call belongs to.
func BootstrapOf(ctx context.Context) (*Bootstrap, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil, errors.New("identity: no connection")
	}
	info, ok := p.AuthInfo.(authInfo)
	if !ok || info.own == nil {
		return nil, errors.New("identity: a bootstrap needs certificates of both ends")
	}
	if info.State.Version != tls.VersionTLS13 {
		return nil, errBootstrapTLS
	}
	binding, err := info.State.ExportKeyingMaterial(bindingLabel, nil, bindingLength)
	if err != nil {
		return nil, fmt.Errorf("identity: export keying material: %w", err)
	}
	return &Bootstrap{Binding: binding, Own: info.own.Certificate, Peer: info.State.PeerCertificates, ID: info.id}, nil
}

// VerifyBootstrap checks that the other end of a bootstrap is the resolver service of a cluster, by
// the roots and the trust domain that it is to be believed with. Server tells which end it is.
func VerifyBootstrap(m *Bootstrap, namespace, cluster string, by catalog.Trust, server bool) error {
	use := ofClient
	if server {
		use = ofServer
	}
	_, err := newTrust(namespace, cluster, by).verify(m.Peer, time.Now(), nil, use)
	return err
}

// Authority returns the roots, in PEM, that the own certificate chains to, and its trust domain:
// what another cluster needs to verify it. Other roots of this process are not among them, since
// they may be another cluster's.
func (c *credential) Authority() (roots []byte, domain string, err error) {
	m, err := c.usable()
	if err != nil {
		return nil, "", err
	}
	if len(m.vouching) == 0 {
		return nil, "", errors.New("identity: the own certificate chains to none of the own roots")
	}
	return m.vouching.pem(), m.id.TrustDomain, nil
}

// Anchors returns all roots of this process in PEM, also those that came from other clusters.
func (c *credential) Anchors() ([]byte, error) {
	m, err := c.usable()
	if err != nil {
		return nil, err
	}
	return m.roots.pem(), nil
}

func (r roots) pem() []byte { return EncodePEM(r) }

// EncodePEM writes certificates in PEM, one after the other.
func EncodePEM(certs []*x509.Certificate) (text []byte) {
	for _, c := range certs {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return text
}
