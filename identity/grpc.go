package identity

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

// ServerCredentials are [Source.ServerTLS] for a gRPC server, plain text when
// insecure. Handlers learn who calls from [FromContext].
func (s *Source) ServerCredentials(authorize func(ID) error) credentials.TransportCredentials {
	if s.Insecure() {
		return insecure.NewCredentials()
	}
	return identified{credentials.NewTLS(s.ServerTLS(authorize))}
}

// ClientCredentials are [Source.ClientTLS] for a gRPC client, plain text when
// insecure.
func (s *Source) ClientCredentials(expect func(ID) error) credentials.TransportCredentials {
	if s.Insecure() {
		return insecure.NewCredentials()
	}
	return identified{credentials.NewTLS(s.ClientTLS(expect))}
}

// FromContext is who is at the other end of a gRPC call: in a server's handler the
// caller. It is false when the connection is plain text, which happens only when
// insecure was asked for; callers then count as allowed.
func FromContext(ctx context.Context) (ID, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ID{}, false
	}
	info, ok := p.AuthInfo.(authInfo)
	return info.id, ok
}

// identified is TLS that remembers who the other end is.
type identified struct {
	credentials.TransportCredentials
}

// authInfo is what a connection of identified is known by.
type authInfo struct {
	credentials.TLSInfo
	id   ID
	peer string // see standing
}

// ClientHandshake is the client's side of TLS.
func (c identified) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return identify(c.TransportCredentials.ClientHandshake(ctx, authority, conn))
}

// ServerHandshake is the server's side of TLS.
func (c identified) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return identify(c.TransportCredentials.ServerHandshake(conn))
}

// Clone makes a copy.
func (c identified) Clone() credentials.TransportCredentials {
	return identified{c.TransportCredentials.Clone()}
}

// identify reads who the other end is from a certificate that was verified already.
func identify(conn net.Conn, info credentials.AuthInfo, err error) (net.Conn, credentials.AuthInfo, error) {
	if err != nil {
		return nil, nil, err
	}
	t, ok := info.(credentials.TLSInfo)
	if !ok || len(t.State.PeerCertificates) == 0 || len(t.State.PeerCertificates[0].URIs) != 1 {
		return nil, nil, errors.Join(errors.New("identity: handshake without a peer's certificate"), conn.Close())
	}
	id, err := fromURI(t.State.PeerCertificates[0].URIs[0])
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return conn, authInfo{TLSInfo: t, id: id}, nil
}
