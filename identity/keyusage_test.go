package identity_test

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
)

// TestACertificateIsForWhatItIsUsedFor: one for servers alone makes no client, and one for
// clients alone no server.
func TestACertificateIsForWhatItIsUsedFor(t *testing.T) {
	ca := identitytest.NewCA(t)
	log := slog.New(slog.DiscardHandler)
	uses := func(all ...x509.ExtKeyUsage) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.ExtKeyUsage = all }
	}
	const server, client = x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth
	for _, c := range []struct {
		name           string
		server, client func(*x509.Certificate)
		wantServer     string // in the server's error; empty: no error
		wantClient     string
	}{
		{"both for one use", uses(server), uses(client), "", ""},
		{"both for both, as Sentry issues", uses(server, client), uses(server, client), "", ""},
		{"both for any", uses(x509.ExtKeyUsageAny), uses(x509.ExtKeyUsageAny), "", ""},
		{"neither says", uses(), uses(), "", ""},
		{"a client's certificate as a server's", uses(client), uses(client), "bad certificate", "its certificate is not for servers"},
		{"a server's certificate as a client's", uses(server), uses(server), "its certificate is not for clients", "bad certificate"},
		{"a mail certificate", uses(server), uses(x509.ExtKeyUsageEmailProtection), "its certificate is not for clients", "bad certificate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := source(t, ca.Config(west, c.server), log)
			o := source(t, ca.Config(checkout, c.client), log)
			serverErr, clientErr := handshake(t, s.ServerTLS(identity.Anyone), o.ClientTLS(identity.OneOf(west)))
			for _, e := range []struct {
				side, want string
				err        error
			}{{"server", c.wantServer, serverErr}, {"client", c.wantClient, clientErr}} {
				if (e.err == nil) != (e.want == "") || e.err != nil && !strings.Contains(e.err.Error(), e.want) {
					t.Errorf("%s: %v, want %q", e.side, e.err, e.want)
				}
			}
		})
	}
}

// A certificate that is not valid now says what that tells of the clocks.
func TestACertificateOfAnotherTimeTellsOfTheClocks(t *testing.T) {
	ca := identitytest.NewCA(t)
	for want, lives := range map[string][2]time.Duration{
		"the clock where it was made is at least 19m0s ahead of this machine's": {19 * time.Minute, time.Hour},
		"or this machine's clock is at least 20m0s ahead":                       {-time.Hour, -20 * time.Minute},
	} {
		pair := ca.Issue(identity.ServiceApp("", "east"), func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(lives[0]), time.Now().Add(lives[1])
		})
		block, _ := pem.Decode(pair.Cert)
		leaf, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		err = identity.VerifyBootstrap(&identity.Bootstrap{Peer: []*x509.Certificate{leaf}}, "", "east", catalog.Trust{Roots: string(ca.PEM())}, true)
		if untimely := (*identity.Untimely)(nil); !errors.As(err, &untimely) {
			t.Errorf("%v is %T", err, err)
		}
		wantError(t, "verify", err, want)
	}
}
