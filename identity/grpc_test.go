package identity_test

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
)

// server is a gRPC server that records its last caller.
type server struct {
	address string
	callers chan caller
}

type caller struct {
	id    identity.ID
	known bool
}

func serve(t *testing.T, creds credentials.TransportCredentials) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{address: l.Addr().String(), callers: make(chan caller, 1)}
	g := grpc.NewServer(grpc.Creds(creds), grpc.UnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			id, known := identity.FromContext(ctx)
			s.callers <- caller{id, known}
			return next(ctx, req)
		}))
	healthpb.RegisterHealthServer(g, health.NewServer())
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return s
}

// dial opens a connection; each call of the result is one RPC over it.
func dial(t *testing.T, address string, creds credentials.TransportCredentials) func() (*peer.Peer, error) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return func() (*peer.Peer, error) {
		var p peer.Peer
		_, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}, grpc.Peer(&p))
		return &p, err
	}
}

func TestCallerIsKnown(t *testing.T) {
	ca := identitytest.NewCA(t)
	service := source(t, ca.Config(west), slog.New(slog.DiscardHandler))
	sidecar := source(t, ca.Config(checkout), slog.New(slog.DiscardHandler))
	s := serve(t, service.ServerCredentials(identity.Anyone))
	p, err := dial(t, s.address, sidecar.ClientCredentials(identity.OneOf(west)))()
	if err != nil {
		t.Fatal(err)
	}
	want := caller{identity.ID{TrustDomain: identitytest.TrustDomain, App: checkout}, true}
	if got := <-s.callers; got != want {
		t.Errorf("caller %v; want %v", got, want)
	}
	if id, ok := identity.FromContext(peer.NewContext(t.Context(), p)); !ok || id.App != west {
		t.Errorf("server %v, %v; want %s", id, ok, west)
	}
	if _, ok := identity.FromContext(t.Context()); ok {
		t.Error("a context without a call has a caller")
	}
}

func TestInsecureCallerIsUnknown(t *testing.T) {
	plain, err := identity.New(identity.Config{Insecure: true}, west, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, plain.ServerCredentials(nil))
	if _, err := dial(t, s.address, plain.ClientCredentials(nil))(); err != nil {
		t.Fatal(err)
	}
	if got := <-s.callers; got.known {
		t.Errorf("caller %v; want nobody known", got)
	}
}

func TestPlainTextAndTLSDoNotMix(t *testing.T) {
	ca := identitytest.NewCA(t)
	plain, err := identity.New(identity.Config{Insecure: true}, west, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	secure := source(t, ca.Config(west), slog.New(slog.DiscardHandler))
	for name, pair := range map[string][2]*identity.Source{
		"plain text to TLS": {plain, secure},
		"TLS to plain text": {secure, plain},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, pair[1].ServerCredentials(identity.Anyone))
			_, err := dial(t, s.address, pair[0].ClientCredentials(identity.Anyone))()
			if status.Code(err) != codes.Unavailable {
				t.Errorf("error %v; want unavailable", err)
			}
		})
	}
}

// A server rotates its certificate and its roots. A connection stays while its root does. New
// connections use the new ones.
func TestRotationUnderALiveServer(t *testing.T) {
	oldCA, newCA := identitytest.NewCA(t), identitytest.NewCA(t)
	cfg := oldCA.Config(west)
	service := source(t, cfg, slog.New(slog.DiscardHandler))
	s := serve(t, service.ServerCredentials(identity.Anyone))
	oldClient := source(t, oldCA.Config(checkout), slog.New(slog.DiscardHandler))
	newClient := source(t, newCA.Config(checkout), slog.New(slog.DiscardHandler))

	connected := dial(t, s.address, oldClient.ClientCredentials(identity.OneOf(west)))
	call := func(f func() (*peer.Peer, error)) error {
		_, err := f()
		if err == nil {
			<-s.callers
		}
		return err
	}
	if err := call(connected); err != nil {
		t.Fatal(err)
	}
	if err := call(dial(t, s.address, newClient.ClientCredentials(identity.OneOf(west)))); err == nil {
		t.Error("before: a client of the new roots was let in")
	}

	pair := newCA.Issue(west, func(c *x509.Certificate) { c.SerialNumber.SetInt64(42) })
	identitytest.Write(t, cfg.Files.Cert, pair.Cert)
	identitytest.Write(t, cfg.Files.Key, pair.Key)
	roots := func(pem []byte) {
		t.Helper()
		identitytest.Write(t, cfg.Files.CA, pem)
		if err := service.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	roots(append(oldCA.PEM(), newCA.PEM()...))
	if err := call(connected); err != nil {
		t.Errorf("with both roots: a client lost its connection: %v", err)
	}
	roots(newCA.PEM())
	if err := call(connected); err == nil {
		t.Error("without its root: a client still has its connection")
	}
	p, err := dial(t, s.address, newClient.ClientCredentials(identity.OneOf(west)))()
	if err != nil {
		t.Fatalf("after: a client of the new roots: %v", err)
	}
	<-s.callers
	if id, ok := identity.FromContext(peer.NewContext(t.Context(), p)); !ok || id.App != west {
		t.Errorf("after: server %v; want %s", id, west)
	}
	if err := call(dial(t, s.address, oldClient.ClientCredentials(identity.OneOf(west)))); err == nil {
		t.Error("after: a new connection of a client of the old roots was let in")
	}
}
