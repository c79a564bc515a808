package identity_test

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
)

// The configured address leads to something that is no Sentry.
func TestNoSentryThere(t *testing.T) {
	ca := identitytest.NewCA(t)
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	plain := listen()
	web := &http.Server{ReadHeaderTimeout: time.Minute}
	pair := ca.Issue(catalog.App{Namespace: "default", ID: "dapr-sentry"}, sentryID)
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	other := listen()
	g := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&cert)))
	served := make(chan struct{}, 2)
	go func() { _ = web.Serve(plain); served <- struct{}{} }()
	go func() { _ = g.Serve(other); served <- struct{}{} }()
	defer func() {
		_ = web.Close()
		g.Stop()
		<-served
		<-served
	}()
	gone := freeAddress(t)
	tests := []struct {
		name, address, want string
	}{
		{"nobody listens", gone, gone + ": connection refused"},
		{"a web server", plain.Addr().String(), "first record does not look like a TLS handshake"},
		{"another gRPC server", other.Addr().String(), "it speaks gRPC but is no Sentry"},
		{"no such host", "sentry.invalid:443", "443: lookup sentry.invalid"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := identity.New(identity.Config{Sentry: &identity.Sentry{Address: tt.address, TrustAnchors: string(ca.PEM())}}, checkout, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			err = s.Load(t.Context())
			wantError(t, "Load", err, "identity: sentry "+tt.address+": ")
			wantError(t, "Load", err, tt.want)
		})
	}
}
