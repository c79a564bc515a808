package identity_test

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
)

// A connection ends when the certificate that authenticated it expires, on either side, for both
// kinds of clients.
func TestAConnectionEndsWhenACertificateExpires(t *testing.T) {
	ca := identitytest.NewCA(t)
	service := identity.ServiceApp("", "west")
	for _, c := range []struct{ what, server, client string }{{"the client's", "long", "short"}, {"the server's", "short", "long"}} {
		t.Run(c.what, func(t *testing.T) {
			var err error
			for _, life := range []time.Duration{2 * time.Second, 15 * time.Second, 45 * time.Second} { // a slow machine needs longer to connect
				lives := map[string]func(*x509.Certificate){
					"long": func(*x509.Certificate) {}, "short": func(c *x509.Certificate) { c.NotAfter = time.Now().Add(life) },
				}
				server := source(t, ca.Config(service, lives[c.server]), quiet)
				client := source(t, ca.Config(checkout, lives[c.client]), quiet)
				var s *stream
				if s, err = open(t, serveStreams(t, server.ServerCredentials(identity.Anyone)), client.ClientCredentials(identity.OneOf(service))); err == nil {
					s.ends(t)
					return
				}
			}
			t.Error(err)
		})
	}
}

// A client should reconnect when it has another certificate, and before the server's expires; not
// earlier.
func TestAClientIsToldWhenToComeBack(t *testing.T) {
	ca := identitytest.NewCA(t)
	service := identity.ServiceApp("", "west")
	server := source(t, ca.Config(service), quiet)
	cfg := ca.Config(checkout)
	client := source(t, cfg, quiet)
	connected := func(to *identity.Source) *stream {
		s, err := open(t, serveStreams(t, to.ServerCredentials(identity.Anyone)), client.ClientCredentials(identity.OneOf(service)))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	told := make(chan error, 1)
	s := connected(server)
	go func() { told <- client.Renewal(s.Context()) }()
	select {
	case err := <-told:
		t.Fatalf("told at once: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	pair := ca.Issue(checkout)
	identitytest.Write(t, cfg.Files.Key, pair.Key)
	identitytest.Write(t, cfg.Files.Cert, pair.Cert)
	if err := client.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-told; err != nil {
		t.Errorf("with another certificate: %v", err)
	}
	old := func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-58*time.Second), time.Now().Add(42*time.Second)
	}
	if err := client.Renewal(connected(source(t, ca.Config(service, old), quiet)).Context()); err != nil {
		t.Errorf("with a server whose certificate is old: %v", err)
	}
}
