package servers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

// clientAuthority signs the client certificates that an API server takes.
type clientAuthority struct {
	key         *ecdsa.PrivateKey
	root        *x509.Certificate
	certificate []byte // of the root, in PEM
}

func newClientAuthority() (*clientAuthority, error) {
	a := &clientAuthority{root: &x509.Certificate{
		Subject: pkix.Name{CommonName: "clients"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	a.certificate, err = a.sign(a.root, a.key)
	return a, err
}

// sign makes a certificate for a key, in PEM.
func (a *clientAuthority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, err
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = serial, time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, a.root, key.Public(), a.key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
}

// ClientKubeconfig writes a kubeconfig as [Kubeconfig] does, of somebody with a client certificate
// and perhaps a token.
func (k *Kubernetes) ClientKubeconfig(path, addr, user, token string, groups ...string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	certificate, err := k.clients.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: user, Organization: groups}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, key)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	encoded := func(text []byte) string { return base64.StdEncoding.EncodeToString(text) }
	as := fmt.Sprintf("{client-certificate-data: %s, client-key-data: %s, token: %q}", encoded(certificate),
		encoded(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})), token)
	return writeKubeconfig(path, addr, k.CA(), as)
}
