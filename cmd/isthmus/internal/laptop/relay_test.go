package laptop

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	sentryv1 "github.com/isthmus-mesh/isthmus/api/isthmus/sentry/v1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
)

// The relay gives a certificate to whoever knows the word in the sidecar's file, for its app, and to nobody
// else. A program that checks Sentry as daprd does takes it for Sentry.
func TestTheRelayIsForItsSidecar(t *testing.T) {
	orders := catalog.App{Namespace: "shop", ID: "orders"}
	host, root, err := identity.SelfSigned(identity.ID{TrustDomain: "laptop.guest.public", App: orders})
	if err != nil {
		t.Fatal(err)
	}
	var asked []catalog.App
	signed := identity.EncodePEM([]*x509.Certificate{host.Leaf})
	r, err := newRelay(t.TempDir(), orders, func(_ context.Context, app catalog.App, _ []byte) ([]byte, error) {
		asked = append(asked, app)
		return signed, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.server.Stop()
	if info, err := os.Stat(r.token); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file with the word: %v, %v", info, err)
	}
	word, err := os.ReadFile(r.token)
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		id, namespace, token, want string
	}{
		"its sidecar":             {"orders", "shop", string(word), ""},
		"no word":                 {"orders", "shop", "", "for one sidecar"},
		"another word":            {"orders", "shop", strings.ToLower(string(word)), "for one sidecar"},
		"another app":             {"payments", "shop", string(word), "for shop/orders alone"},
		"the app of another name": {"orders", "finance", string(word), "for shop/orders alone"},
	} {
		t.Run(what, func(t *testing.T) {
			asked = nil
			err := r.ask(t, &sentryv1.SignCertificateRequest{Id: c.id, Namespace: c.namespace, Token: c.token})
			if c.want == "" && (err != nil || len(asked) != 1) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || len(asked) > 0) {
				t.Errorf("got %v, and the host was asked for %v; want %q", err, asked, c.want)
			}
		})
	}
	// The component in the sidecar checks Sentry, too, and gets as far as the certificate, which is of another key here.
	source, err := identity.New(identity.Config{Sentry: &identity.Sentry{Address: r.address, TrustAnchors: string(r.root) + string(root), TokenFile: r.token}}, orders, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := source.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "is for another key") {
		t.Errorf("the source takes the relay for something else than a Sentry: %v", err)
	}
}

// ask asks for a certificate, and takes any certificate for the relay's.
func (r *relay) ask(t *testing.T, req *sentryv1.SignCertificateRequest) error {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(r.root) {
		t.Fatal(errors.New("no root"))
	}
	conn, err := grpc.NewClient("passthrough:///"+r.address, grpc.WithTransportCredentials(credentials.NewTLS(anyOf(roots))))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var resp sentryv1.SignCertificateResponse
	err = conn.Invoke(t.Context(), "/dapr.proto.sentry.v1.CA/SignCertificate", req, &resp)
	if err == nil && (len(resp.GetWorkloadCertificate()) == 0 || !resp.GetValidUntil().IsValid()) {
		t.Errorf("daprd would refuse %v", &resp)
	}
	return err
}

// anyOf is TLS with a server below the roots, whatever its name.
func anyOf(roots *x509.CertPool) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(cs tls.ConnectionState) error {
		_, err := cs.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots})
		return err
	}}
}
