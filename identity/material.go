package identity

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// material is what handshakes need. It is immutable.
type material struct {
	id    ID
	cert  *tls.Certificate // with its Leaf
	roots roots

	vouching roots             // those of roots that the certificate chains to
	ends     *x509.Certificate // the one that ends first of those that peers verify it by

	from       [32]byte      // fingerprint of the origin's input
	obtained   time.Time     // with a monotonic reading
	renewAfter time.Duration // monotonic time from obtained to renewal
	renewAt    time.Time     // the same as wall clock time; zero if the origin doesn't renew
}

// roots are the certificates that peers' certificates must chain to.
type roots []*x509.Certificate

// GetX509BundleForTrustDomain makes roots an [x509bundle.Source]. Dapr puts apps into trust
// domain "public" by default, whatever the control plane. So one set of roots serves every trust
// domain. Roots of peers are in [trust].
func (r roots) GetX509BundleForTrustDomain(td spiffeid.TrustDomain) (*x509bundle.Bundle, error) {
	return x509bundle.FromX509Authorities(td, r), nil
}

// newMaterial combines a certificate and roots, and reads the identity.
func newMaterial(cert *tls.Certificate, roots roots) (*material, error) {
	if n := len(cert.Leaf.URIs); n != 1 {
		return nil, fmt.Errorf("certificate has %d URI SANs; want one, spiffe://<trust domain>/ns/<namespace>/<app-id>", n)
	}
	id, err := fromURI(cert.Leaf.URIs[0])
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	m := &material{id: id, cert: cert, obtained: time.Now()}
	m.trust(roots)
	return m, nil
}

// trust sets the roots. An issuer that was presented with the leaf may end before it.
func (m *material) trust(by roots) {
	m.roots = by
	if m.vouching, m.ends = by.vouchingFor(m.cert.Certificate); m.ends == nil {
		m.ends = m.cert.Leaf
	}
}

// check checks that the material is valid and names the app, unless app is zero.
func (m *material) check(app catalog.App, now time.Time) error {
	if app != (catalog.App{}) && m.id.App != app {
		return fmt.Errorf("certificate names app %s; want %s", m.id.App, app)
	}
	return m.valid(now)
}

// valid checks the certificate's validity period, which ends with its issuer's.
func (m *material) valid(now time.Time) error {
	leaf := m.cert.Leaf
	switch {
	case !m.ends.Equal(leaf) && now.After(m.ends.NotAfter):
		return fmt.Errorf("certificate of %s counts no more, since its issuer %s expired at %s; by this machine's clock it is %s",
			m.id.App, describe(m.ends), m.ends.NotAfter.Format(time.RFC3339), toMinute(now))
	case now.After(leaf.NotAfter):
		return fmt.Errorf("certificate of %s expired at %s; by this machine's clock it is %s",
			m.id.App, leaf.NotAfter.Format(time.RFC3339), toMinute(now))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("certificate of %s is not valid before %s; by this machine's clock it is %s",
			m.id.App, leaf.NotBefore.Format(time.RFC3339), toMinute(now))
	}
	return nil
}

// toMinute formats a time to the minute, so that a lasting error keeps its text.
func toMinute(now time.Time) string { return now.UTC().Format("2006-01-02T15:04Z") }

// due tells whether to renew. Either clock decides: the wall clock may be set back, and the
// monotonic clock stops while the machine sleeps.
func (m *material) due(now time.Time) bool {
	return now.Sub(m.obtained) >= m.renewAfter || !now.Round(0).Before(m.renewAt.Round(0))
}

// renewIn makes the material due after d.
func (m *material) renewIn(d time.Duration) {
	m.renewAfter, m.renewAt = d, m.obtained.Add(d)
}

// parseCertificates reads PEM that holds only certificates.
func parseCertificates(text []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for len(bytes.TrimSpace(text)) > 0 {
		block, rest := pem.Decode(text)
		if block == nil {
			return nil, errors.New("not PEM, or cut short")
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("PEM block %q; want CERTIFICATE only", block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		certs, text = append(certs, cert), rest
	}
	if len(certs) == 0 {
		return nil, errors.New("no certificate in it")
	}
	return certs, nil
}
