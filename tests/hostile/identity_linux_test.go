package hostile

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// The trust domains of the two clusters. Their certificates come from one root.
const (
	westDomain = "west.example"
	eastDomain = "east.example"
)

// app is an app of the namespace that most tests use.
func app(id string) catalog.App { return catalog.App{Namespace: "shop", ID: id} }

// caller is a certificate, or none, and the address that its connections come from.
type caller struct {
	cert *tls.Certificate // nil: none
	from netip.Addr       // zero: whatever the kernel takes
}

// certified makes a caller with a certificate that is valid for a week.
func certified(t testing.TB, by *sandbox.Authority, domain string, a catalog.App) caller {
	t.Helper()
	return certifiedUntil(t, time.Now().Add(7*24*time.Hour), by, domain, a)
}

func certifiedUntil(t testing.TB, end time.Time, by *sandbox.Authority, domain string, a catalog.App) caller {
	t.Helper()
	cert, key, err := by.LeafUntil(end, domain, a)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return caller{cert: &pair}
}

// at is the caller at another address of loopback.
func (c caller) at(address string) caller {
	c.from = netip.MustParseAddr(address)
	return c
}

// tls is a client that checks nothing: attackers do not care whom they reach.
func (c caller) tls(serverName string, protocols ...string) *tls.Config {
	cfg := &tls.Config{ServerName: serverName, InsecureSkipVerify: true, NextProtos: protocols}
	if c.cert != nil {
		cfg.Certificates = []tls.Certificate{*c.cert}
	}
	return cfg
}

// dial connects from the caller's address.
func (c caller) dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	if c.from.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.from, 0))
	}
	return d.DialContext(ctx, "tcp", address)
}

// dialTLS is [caller.dial] with a TLS handshake.
func (c caller) dialTLS(ctx context.Context, address, serverName string, protocols ...string) (*tls.Conn, error) {
	raw, err := c.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, c.tls(serverName, protocols...))
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	return conn, nil
}

// grpc makes a gRPC client. The server name leads through a gateway.
func (c caller) grpc(address, serverName string) (*grpc.ClientConn, error) {
	return c.grpcBy(address, serverName, func(ctx context.Context, _, address string) (net.Conn, error) { return c.dial(ctx, address) })
}

// grpcBy is [caller.grpc] where connections are made in another way.
func (c caller) grpcBy(address, serverName string, dial func(ctx context.Context, network, address string) (net.Conn, error)) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+address, grpc.WithNoProxy(),
		grpc.WithTransportCredentials(credentials.NewTLS(c.tls(serverName))),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return dial(ctx, "tcp", address) }))
}

// client is [caller.grpc] for a test, which closes it.
func (c caller) client(t testing.TB, address, serverName string) *grpc.ClientConn {
	t.Helper()
	conn, err := c.grpc(address, serverName)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// certificateFiles writes a certificate of an app, and the root, as "identity: {files}" and
// ISTHMUS_IDENTITY read them.
func certificateFiles(t testing.TB, by *sandbox.Authority, domain string, a catalog.App) identity.Files {
	t.Helper()
	cert, key, err := by.Leaf(domain, a)
	if err != nil {
		t.Fatal(err)
	}
	return keyFiles(t, cert, key, by.Anchors())
}

func keyFiles(t testing.TB, cert, key, ca []byte) identity.Files {
	t.Helper()
	dir := t.TempDir()
	f := identity.Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), CA: filepath.Join(dir, "ca.pem")}
	for path, text := range map[string][]byte{f.Cert: cert, f.Key: key, f.CA: ca} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return f
}
