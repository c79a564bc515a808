package identity_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	sentryv1 "github.com/isthmus-mesh/isthmus/api/isthmus/sentry/v1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
)

// sentryID is the identity in a Sentry's certificate.
func sentryID(c *x509.Certificate) {
	c.URIs = []*url.URL{{Scheme: "spiffe", Host: "localhost", Path: "/ns/default/dapr-sentry"}}
}

// wrongSentry has Sentry's certificate and answers every RPC as configured. A real Sentry never
// misbehaves like that.
func wrongSentry(t *testing.T, ca *identitytest.CA, answer func(ctx context.Context, req *sentryv1.SignCertificateRequest) ([]byte, error)) *identity.Sentry {
	t.Helper()
	pair := ca.Issue(catalog.App{Namespace: "default", ID: "dapr-sentry"}, sentryID)
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&cert)), grpc.UnknownServiceHandler(
		func(_ any, stream grpc.ServerStream) error {
			var req sentryv1.SignCertificateRequest
			if err := stream.RecvMsg(&req); err != nil {
				return err
			}
			text, err := answer(stream.Context(), &req)
			if err != nil {
				return err
			}
			return stream.SendMsg(&sentryv1.SignCertificateResponse{WorkloadCertificate: text})
		}))
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return &identity.Sentry{Address: l.Addr().String(), TrustAnchors: string(ca.PEM())}
}

// signed is a certificate for the key in a request.
func signed(t *testing.T, ca *identitytest.CA, app catalog.App, req *sentryv1.SignCertificateRequest, edits ...func(*x509.Certificate)) []byte {
	block, _ := pem.Decode(req.GetCertificateSigningRequest())
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Error(err)
		return nil
	}
	return ca.Sign(app, csr.PublicKey, edits...)
}

func TestWrongAnswersOfSentry(t *testing.T) {
	ca := identitytest.NewCA(t)
	type request = *sentryv1.SignCertificateRequest
	tests := []struct {
		name   string
		answer func(ctx context.Context, req request) ([]byte, error)
		want   string
	}{
		{"a right answer", func(_ context.Context, r request) ([]byte, error) { return signed(t, ca, checkout, r), nil }, ""},
		{"nothing", func(context.Context, request) ([]byte, error) { return nil, nil }, "no certificate in it"},
		{"garbage", func(context.Context, request) ([]byte, error) { return []byte("garbage"), nil }, "not PEM"},
		{"a key in place of a certificate", func(context.Context, request) ([]byte, error) { return ca.Issue(checkout).Key, nil }, `PEM block "PRIVATE KEY"`},
		{"for another key", func(context.Context, request) ([]byte, error) { return ca.Issue(checkout).Cert, nil }, "is for another key"},
		{"for another app", func(_ context.Context, r request) ([]byte, error) { return signed(t, ca, orders, r), nil }, "names app shop/orders; want shop/checkout"},
		{"of another root", func(_ context.Context, r request) ([]byte, error) {
			return signed(t, identitytest.NewCA(t), checkout, r), nil
		}, "unknown authority"},
		{"that has expired", func(_ context.Context, r request) ([]byte, error) {
			return signed(t, ca, checkout, r, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) }), nil
		}, "expired"},
		{"none at all", func(ctx context.Context, _ request) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, "no answer within 500ms"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := identity.New(identity.Config{Sentry: wrongSentry(t, ca, tt.answer)}, checkout, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			s.SetSentryTimeout(time.Minute)
			if tt.name == "none at all" {
				s.SetSentryTimeout(500 * time.Millisecond)
			}
			wantError(t, "Load", s.Load(t.Context()), tt.want)
		})
	}
}

// When the file of trust anchors changes, the new roots count for peers at once, and a new
// certificate is requested.
func TestTrustAnchorsChange(t *testing.T) {
	oldCA, newCA := identitytest.NewCA(t), identitytest.NewCA(t)
	asked := make(chan struct{}, 100)
	cfg := wrongSentry(t, oldCA, func(_ context.Context, r *sentryv1.SignCertificateRequest) ([]byte, error) {
		asked <- struct{}{}
		return signed(t, oldCA, checkout, r), nil
	})
	cfg.TrustAnchorsFile, cfg.TrustAnchors = filepath.Join(t.TempDir(), "ca.crt"), ""
	identitytest.Write(t, cfg.TrustAnchorsFile, oldCA.PEM())
	s, err := identity.New(identity.Config{Sentry: cfg}, checkout, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	load := func(what string, requests int) {
		t.Helper()
		wantError(t, what, s.Load(t.Context()), "")
		if len(asked) != requests {
			t.Errorf("%s: Sentry was asked %d times; want %d", what, len(asked), requests)
		}
	}
	load("at start", 1)
	load("nothing to do", 1)
	peer := source(t, newCA.Config(west), slog.New(slog.DiscardHandler))
	_, clientErr := handshake(t, peer.ServerTLS(identity.Anyone), s.ClientTLS(identity.OneOf(west)))
	wantError(t, "a peer of new roots, before", clientErr, "unknown authority")

	identitytest.Write(t, cfg.TrustAnchorsFile, append(oldCA.PEM(), newCA.PEM()...))
	load("new roots", 1)
	serverErr, clientErr := handshake(t, serverTrusting(t, peer, oldCA), s.ClientTLS(identity.OneOf(west)))
	wantError(t, "server of new roots, after", serverErr, "")
	wantError(t, "client, after", clientErr, "")
	load("after new roots", 2)
	load("nothing to do again", 2)

	identitytest.Write(t, cfg.TrustAnchorsFile, newCA.PEM()[:50])
	wantError(t, "half-written roots", s.Load(t.Context()), "cut short")
	if err := s.Ready(); err != nil {
		t.Errorf("half-written roots: %v", err)
	}
}

// serverTrusting is a server with peer's certificate that trusts clients of ca.
func serverTrusting(t *testing.T, peer *identity.Source, ca *identitytest.CA) *tls.Config {
	conf := source(t, ca.Config(west), slog.New(slog.DiscardHandler)).ServerTLS(identity.OneOf(checkout))
	conf.GetCertificate = peer.ServerTLS(identity.Anyone).GetCertificate
	return conf
}
