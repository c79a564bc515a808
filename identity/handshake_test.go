package identity_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
)

var (
	west     = identity.ServiceApp("", "west")
	checkout = catalog.App{Namespace: "shop", ID: "checkout"}
	orders   = catalog.App{Namespace: "shop", ID: "orders"}
)

// source loads an identity once.
func source(t *testing.T, cfg identity.Config, log *slog.Logger) *identity.Source {
	t.Helper()
	s, err := identity.New(cfg, catalog.App{}, log)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// handshake connects a client to a server over loopback and returns each side's
// error once a byte has gone both ways, or failed to.
func handshake(t *testing.T, server, client *tls.Config) (serverErr, clientErr error) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			done <- err
			return
		}
		defer conn.Close()
		done <- echoOnce(conn)
	}()
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: time.Minute}, Config: client}
	conn, clientErr := dialer.DialContext(t.Context(), "tcp", l.Addr().String())
	if clientErr == nil {
		_, clientErr = conn.Write([]byte("x"))
		if clientErr == nil { // in TLS 1.3 a client learns of its refusal with its first read
			_, clientErr = io.ReadFull(conn, make([]byte, 1))
		}
		conn.Close()
	}
	return <-done, clientErr
}

func echoOnce(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	var b [1]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return err
	}
	_, err := conn.Write(b[:])
	return err
}

// A checkout's sidecar connects to the resolver service of west; one thing differs
// per line.
func TestHandshake(t *testing.T) {
	ca, other := identitytest.NewCA(t), identitytest.NewCA(t)
	expired := func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	}
	uris := func(all ...string) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			c.URIs = nil
			for _, s := range all {
				c.URIs = append(c.URIs, identitytest.URI(t, s))
			}
		}
	}
	isCA := func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	}
	tests := []struct {
		name       string
		client     func(server *identity.Source) *tls.Config
		authorize  func(identity.ID) error
		wantServer string // in the server's error; empty: no error
		wantClient string
	}{
		{name: "both as they should be",
			client: trusted(t, ca.Config(checkout), west)},
		{name: "TLS 1.2 is enough",
			client: func(s *identity.Source) *tls.Config {
				c := trusted(t, ca.Config(checkout), west)(s)
				c.MaxVersion = tls.VersionTLS12
				return c
			}},
		{name: "the client trusts another root",
			client:     trusted(t, other.Config(checkout), west),
			wantServer: "bad certificate", wantClient: "unknown authority"},
		{name: "the client's certificate is of another root",
			client:     presenting(t, other.Issue(checkout)),
			wantServer: "unknown authority", wantClient: "bad certificate"},
		{name: "the server is another cluster's service",
			client:     trusted(t, ca.Config(checkout), identity.ServiceApp("", "east")),
			wantServer: "bad certificate", wantClient: "it is app isthmus-system/isthmus-west; want isthmus-system/isthmus-east"},
		{name: "the server is in another namespace",
			client:     trusted(t, ca.Config(checkout), identity.ServiceApp("mesh", "west")),
			wantServer: "bad certificate", wantClient: "want mesh/isthmus-west"},
		{name: "the client is another app",
			client: trusted(t, ca.Config(orders), west), authorize: identity.OneOf(checkout),
			wantServer: "it is app shop/orders; want shop/checkout", wantClient: "bad certificate"},
		{name: "the client is the same app-id in another namespace",
			client: trusted(t, ca.Config(catalog.App{Namespace: "test", ID: "checkout"}), west), authorize: identity.OneOf(checkout),
			wantServer: "it is app test/checkout; want shop/checkout", wantClient: "bad certificate"},
		{name: "the client's certificate has expired",
			client:     presenting(t, ca.Issue(checkout, expired)),
			wantServer: "expired", wantClient: "bad certificate"},
		{name: "the client has no certificate",
			client:     func(*identity.Source) *tls.Config { return &tls.Config{InsecureSkipVerify: true} },
			wantServer: "client didn't provide a certificate", wantClient: "certificate required"},
		{name: "two URI SANs",
			client:     presenting(t, ca.Issue(checkout, uris("spiffe://public/ns/shop/checkout", "spiffe://public/ns/shop/orders"))),
			wantServer: "more than one URI SAN", wantClient: "bad certificate"},
		{name: "no URI SAN",
			client:     presenting(t, ca.Issue(checkout, uris())),
			wantServer: "no URI SAN", wantClient: "bad certificate"},
		{name: "a SPIFFE ID that is no app's",
			client:     presenting(t, ca.Issue(checkout, uris("spiffe://public/sa/checkout"))),
			wantServer: "is no Dapr app", wantClient: "bad certificate"},
		{name: "a path that goes on after the app-id",
			client:     presenting(t, ca.Issue(checkout, uris("spiffe://public/ns/shop/checkout/v2"))),
			wantServer: "app-id", wantClient: "bad certificate"},
		{name: "a certificate that may sign others",
			client:     presenting(t, ca.Issue(checkout, isCA)),
			wantServer: "CA flag", wantClient: "bad certificate"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := source(t, ca.Config(west), slog.New(slog.DiscardHandler))
			authorize := identity.Anyone
			if tt.authorize != nil {
				authorize = tt.authorize
			}
			serverErr, clientErr := handshake(t, server.ServerTLS(authorize), tt.client(server))
			wantError(t, "server", serverErr, tt.wantServer)
			wantError(t, "client", clientErr, tt.wantClient)
		})
	}
}

func TestNobodyIsLetInWithoutAuthorization(t *testing.T) {
	ca := identitytest.NewCA(t)
	a := source(t, ca.Config(west), slog.New(slog.DiscardHandler))
	serverErr, _ := handshake(t, a.ServerTLS(nil), a.ClientTLS(identity.Anyone))
	wantError(t, "server", serverErr, "no authorize function was given")
	_, clientErr := handshake(t, a.ServerTLS(identity.Anyone), a.ClientTLS(nil))
	wantError(t, "client", clientErr, "no authorize function was given")
}

// trusted is a client with an identity of ours that expects one app.
func trusted(t *testing.T, cfg identity.Config, expect catalog.App) func(*identity.Source) *tls.Config {
	return func(*identity.Source) *tls.Config {
		return source(t, cfg, slog.New(slog.DiscardHandler)).ClientTLS(identity.OneOf(expect))
	}
}

// presenting is a client that presents a certificate, valid or not.
func presenting(t *testing.T, pair identitytest.Pair) func(*identity.Source) *tls.Config {
	return func(*identity.Source) *tls.Config {
		cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{cert}}
	}
}

func wantError(t *testing.T, who string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: %v", who, err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("%s: error %v; want one with %q", who, err, want)
	}
}

func TestHandshakeBeforeThereIsAnIdentity(t *testing.T) {
	ca := identitytest.NewCA(t)
	server := source(t, ca.Config(west), slog.New(slog.DiscardHandler))
	client, err := identity.New(ca.Config(checkout), checkout, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	_, clientErr := handshake(t, server.ServerTLS(identity.Anyone), client.ClientTLS(identity.OneOf(west)))
	wantError(t, "client", clientErr, "first attempt not finished")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := client.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait: %v; want it to end with its context", err)
	}
}

func TestInsecureSaysSo(t *testing.T) {
	var log strings.Builder
	s, err := identity.New(identity.Config{Insecure: true}, west, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"level=WARN", "plain text", "register as any app", "identity: files"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log %q lacks %q", log.String(), want)
		}
	}
	if !s.Insecure() || s.Ready() != nil || s.Wait(ctx) != nil || s.ServerTLS(nil) != nil || s.ClientTLS(nil) != nil {
		t.Error("want it ready at once and without TLS")
	}
}
