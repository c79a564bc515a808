// Package identitytest makes certificates for tests: a root, and leaves for Dapr apps that are
// good or wrong in one respect.
package identitytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
)

// TrustDomain is the trust domain of the apps, Dapr's default.
const TrustDomain = "public"

// CA is a certificate authority for one test.
type CA struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey

	above *CA // of an issuer
}

// Pair is a certificate with its key, both in PEM.
type Pair struct {
	Cert, Key []byte
}

// NewCA makes a root. Each edit may change the template before it is signed.
func NewCA(t testing.TB, edits ...func(*x509.Certificate)) *CA {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber:          serial(t),
		Subject:               pkix.Name{CommonName: "identitytest root"},
		NotBefore:             time.Now().Add(-time.Minute),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	for _, edit := range edits {
		edit(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatalf("sign a root: %v", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatalf("parse a root: %v", err)
	}
	return &CA{t: t, cert: cert, key: key}
}

// Intermediate makes an authority under this one. Its leaves come with its certificate.
func (ca *CA) Intermediate(edits ...func(*x509.Certificate)) *CA {
	ca.t.Helper()
	key := newKey(ca.t)
	text := ca.Sign(catalog.App{Namespace: "dapr-system", ID: "issuer"}, &key.PublicKey, append([]func(*x509.Certificate){func(c *x509.Certificate) {
		c.Subject.CommonName, c.URIs, c.ExtKeyUsage = "identitytest issuer", nil, nil
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	}}, edits...)...)
	block, _ := pem.Decode(text)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		ca.t.Fatalf("parse an issuer: %v", err)
	}
	return &CA{t: ca.t, cert: cert, key: key, above: ca}
}

// LongLived is an edit of a root that does not expire soon.
func LongLived(c *x509.Certificate) { c.NotAfter = time.Now().Add(90 * 24 * time.Hour) }

// PEM is the root's certificate.
func (ca *CA) PEM() []byte {
	if ca.above != nil {
		return ca.above.PEM()
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})
}

// Issue makes a certificate for an app, and a key. Each edit may change the template
// before it is signed.
func (ca *CA) Issue(app catalog.App, edits ...func(*x509.Certificate)) Pair {
	ca.t.Helper()
	key := newKey(ca.t)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		ca.t.Fatalf("encode a key: %v", err)
	}
	return Pair{
		Cert: ca.Sign(app, &key.PublicKey, edits...),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
	}
}

// Sign makes a certificate for an app's public key, in PEM with its issuer, as [CA.Issue] does.
func (ca *CA) Sign(app catalog.App, key any, edits ...func(*x509.Certificate)) []byte {
	ca.t.Helper()
	template := &x509.Certificate{
		SerialNumber: serial(ca.t),
		NotBefore:    time.Now().Add(-time.Minute),
		NotAfter:     time.Now().Add(time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		URIs:         []*url.URL{URI(ca.t, identity.ID{TrustDomain: TrustDomain, App: app}.String())},
	}
	for _, edit := range edits {
		edit(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key, ca.key)
	if err != nil {
		ca.t.Fatalf("sign a certificate for %s: %v", app, err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if ca.above != nil {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})...)
	}
	return text
}

// Config issues a certificate for an app and writes it, its key and the root into a
// directory of the test.
func (ca *CA) Config(app catalog.App, edits ...func(*x509.Certificate)) identity.Config {
	ca.t.Helper()
	files := identity.Files{
		Cert: filepath.Join(ca.t.TempDir(), "tls.crt"),
		Key:  filepath.Join(ca.t.TempDir(), "tls.key"),
		CA:   filepath.Join(ca.t.TempDir(), "ca.crt"),
	}
	pair := ca.Issue(app, edits...)
	Write(ca.t, files.Cert, pair.Cert)
	Write(ca.t, files.Key, pair.Key)
	Write(ca.t, files.CA, ca.PEM())
	return identity.Config{Files: &files}
}

// Write replaces a file in one step.
func Write(t testing.TB, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// In puts a certificate into a trust domain.
func In(t testing.TB, domain string, app catalog.App) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.URIs[0] = URI(t, identity.ID{TrustDomain: domain, App: app}.String())
	}
}

// URI parses a URI that the test wrote.
func URI(t testing.TB, s string) *url.URL {
	t.Helper()
	uri, err := url.Parse(s)
	if err != nil {
		t.Fatalf("parse %q: %v", s, err)
	}
	return uri
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("make a key: %v", err)
	}
	return key
}

func serial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		t.Fatalf("make a serial number: %v", err)
	}
	return n
}
