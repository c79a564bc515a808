package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/rand/v2"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"

	"github.com/isthmus-mesh/isthmus/internal/live"
)

// ServerCredentials are [Source.ServerTLS] for a gRPC server, plain text when insecure. Handlers
// get the caller from [FromContext]. A connection ends when a certificate of its chain expires,
// or when own roots change so that it would be refused.
func (s *Source) ServerCredentials(authorize func(ID) error) credentials.TransportCredentials {
	if s.Insecure() {
		return insecure.NewCredentials()
	}
	return s.server(func(cs tls.ConnectionState, at time.Time) (principal, error) {
		return s.verifyClient(cs, at, authorize)
	})
}

// Certificate returns the certificate that a server shows, as [tls.Config.GetCertificate] does.
type Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// OutsiderCredentials are [Source.ServerCredentials] with another certificate, for clients that
// check a host name.
func (s *Source) OutsiderCredentials(show Certificate, authorize func(ID) error) credentials.TransportCredentials {
	creds := s.ServerCredentials(authorize)
	if own, ok := creds.(*server); ok {
		own.shown = show
	}
	return creds
}

// ClientCredentials are [Source.ClientTLS] for a gRPC client, plain text when insecure. A
// connection ends like one of [Source.ServerCredentials]. [Source.Renewal] says when to reconnect
// before that.
func (s *Source) ClientCredentials(expect func(ID) error) credentials.TransportCredentials {
	if s.Insecure() {
		return insecure.NewCredentials()
	}
	return s.client("", func(chain []*x509.Certificate, at time.Time) error {
		own, err := s.ownRoots()
		if err == nil {
			_, err = verifyPeer(tls.ConnectionState{PeerCertificates: chain}, at, own, ofServer, expect)
		}
		return err
	})
}

// longestSpread bounds the jitter before a reconnect with a newer certificate: roots may change
// for thousands of clients at one moment.
const longestSpread = 5 * time.Second

// Renewal returns nil when a client should reconnect; ctx is that of a stream on the connection.
// That is when this process has a new certificate, or when the server should have one. Otherwise
// it returns the error of ctx when that ends.
func (s *Source) Renewal(ctx context.Context) error {
	var late <-chan time.Time
	var own *tls.Certificate
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(authInfo); ok {
			own = info.own
			timer := time.NewTimer(clientRenewIn(info.State.PeerCertificates, time.Now()))
			defer timer.Stop()
			late = timer.C
		}
	}
	for {
		m, _, changed := s.current.Follow()
		if own != nil && m.cert != own {
			left := max(0, time.Until(own.Leaf.NotAfter))
			live.Sleep(ctx, rand.N(min(longestSpread, left/10)+1))
			return ctx.Err()
		}
		select {
		case <-changed:
		case <-late:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// FromContext returns the other end of a gRPC call: in a server's handler, the caller. It is
// false for plain text, which happens only when insecure; callers then count as allowed.
func FromContext(ctx context.Context) (ID, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ID{}, false
	}
	info, ok := p.AuthInfo.(authInfo)
	return info.id, ok
}

// authInfo describes a connection.
type authInfo struct {
	credentials.TLSInfo
	id   ID               // of the other end
	peer string           // see principal
	own  *tls.Certificate // that this end has presented
	conn *trackedConn
}

// Stranger is the error of a handshake with a peer without a Dapr app's certificate, such as a load
// balancer that ends TLS.
type Stranger struct{ Err error }

// Error names the missing certificate.
func (s *Stranger) Error() string { return s.Err.Error() }

// Unwrap is the same.
func (s *Stranger) Unwrap() error { return s.Err }

// identify reads the other end's identity from a verified certificate.
func identify(conn net.Conn, info credentials.AuthInfo, err error) (net.Conn, authInfo, error) {
	if err != nil {
		return nil, authInfo{}, err
	}
	t, ok := info.(credentials.TLSInfo)
	if !ok || len(t.State.PeerCertificates) == 0 || len(t.State.PeerCertificates[0].URIs) != 1 {
		return nil, authInfo{}, errors.Join(&Stranger{errors.New("identity: handshake without a peer's certificate")}, conn.Close())
	}
	id, err := fromURI(t.State.PeerCertificates[0].URIs[0])
	if err != nil {
		return nil, authInfo{}, errors.Join(&Stranger{err}, conn.Close())
	}
	return conn, authInfo{TLSInfo: t, id: id}, nil
}
