package sandbox

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
)

// authorityLife is how long the certificates of a sandbox's authority last: not soon over.
const authorityLife = 90 * 24 * time.Hour

// Authority is a root certificate in memory. Sentries with issuers from the same
// Authority trust each other's sidecars.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// NewAuthority makes a root.
func NewAuthority() (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a root key: %w", err)
	}
	template, err := caTemplate("Isthmus sandbox root")
	if err != nil {
		return nil, err
	}
	cert, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make a root certificate: %w", err)
	}
	return &Authority{cert: cert, key: key}, nil
}

// ReadAuthority reads a root certificate and its key from files in PEM.
func ReadAuthority(cert, key string) (*Authority, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("read a root: %w", err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("read a root: %s signs nothing", key)
	}
	return &Authority{cert: pair.Leaf, key: signer}, nil
}

// Anchors is the root certificate in PEM.
func (a *Authority) Anchors() []byte { return certPEM(a.cert) }

// Issuer makes what a Sentry signs with: a certificate below the root and its key,
// both in PEM.
func (a *Authority) Issuer(name string) (cert, key []byte, err error) {
	issuer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make an issuer key for %s: %w", name, err)
	}
	template, err := caTemplate("Isthmus sandbox issuer " + name)
	if err != nil {
		return nil, nil, err
	}
	template.MaxPathLenZero = true
	issued, err := sign(template, a.cert, issuer.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("make an issuer certificate for %s: %w", name, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(issuer)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the issuer key for %s: %w", name, err)
	}
	return certPEM(issued), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// Leaf makes a certificate of an app and its key, both in PEM, as Dapr's Sentry would.
func (a *Authority) Leaf(trustDomain string, app catalog.App) (cert, key []byte, err error) {
	return a.LeafUntil(time.Now().Add(authorityLife), trustDomain, app)
}

// LeafUntil is [Authority.Leaf] with a certificate that expires at end.
func (a *Authority) LeafUntil(end time.Time, trustDomain string, app catalog.App) (cert, key []byte, err error) {
	id := identity.ID{TrustDomain: trustDomain, App: app}
	uri, err := url.Parse(id.String())
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate for %s: %w", app, err)
	}
	return a.leaf(app.String(), func(c *x509.Certificate) {
		c.URIs, c.NotBefore, c.NotAfter = []*url.URL{uri}, time.Now().Add(-time.Second), end
	})
}

// Server makes a certificate of a server at these names and IP addresses, and its key,
// both in PEM.
func (a *Authority) Server(hosts ...string) (cert, key []byte, err error) {
	return a.leaf(strings.Join(hosts, ","), func(c *x509.Certificate) {
		for _, host := range hosts {
			if ip := net.ParseIP(host); ip != nil {
				c.IPAddresses = append(c.IPAddresses, ip)
			} else {
				c.DNSNames = append(c.DNSNames, host)
			}
		}
	})
}

// Client makes a certificate of a user and its key, both in PEM, for servers that take
// the common name for the user, and organizations for its groups.
func (a *Authority) Client(user string, groups ...string) (cert, key []byte, err error) {
	return a.leaf(user, func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: user, Organization: groups} })
}

// leaf makes a certificate that signs no others.
func (a *Authority) leaf(name string, fill func(*x509.Certificate)) (cert, key []byte, err error) {
	fail := func(err error) ([]byte, []byte, error) {
		return nil, nil, fmt.Errorf("make a certificate for %s: %w", name, err)
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fail(err)
	}
	template, err := caTemplate(name)
	if err != nil {
		return fail(err)
	}
	template.IsCA, template.KeyUsage = false, x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	fill(template)
	leaf, err := sign(template, a.cert, own.Public(), a.key)
	if err != nil {
		return fail(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		return fail(err)
	}
	return certPEM(leaf), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func caTemplate(name string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make a serial number for %s: %w", name, err)
	}
	return &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: name, Organization: []string{"isthmus"}},
		NotBefore:             time.Now().Add(-time.Minute),
		NotAfter:              time.Now().Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}, nil
}

func sign(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func certPEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}
