package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"time"

	sentryv1 "github.com/isthmus-mesh/isthmus/api/isthmus/sentry/v1"
)

// ErrSignsNothing is the error of [Source.Sign] without a Sentry.
var ErrSignsNothing = errors.New("the identity is not from Dapr's Sentry, which alone signs for others: configure identity: {sentry: {address: …}}")

// MaxRequest bounds a request for a certificate, in bytes. To check a key of any size takes any time.
const MaxRequest = 16 << 10

// Sign has this process' Sentry sign a PKCS #10 request in PEM for another app, and returns the
// certificate in PEM, leaf first. token makes what proves to Sentry's JWKS validator that the app
// may have it, for an audience and a subject; nil where Sentry asks for nothing.
func (c *credential) Sign(ctx context.Context, id ID, csr []byte, token func(audience, subject string) (string, error)) ([]byte, error) {
	own, ok := c.origin.(*sentryOrigin)
	if !ok {
		return nil, ErrSignsNothing
	}
	if len(csr) > MaxRequest {
		return nil, fmt.Errorf("a request for a certificate of %d bytes; at most %d are passed on", len(csr), MaxRequest)
	}
	o := *own
	o.app = id.App
	anchors, _, err := o.anchors(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", &o, err)
	}
	req := &sentryv1.SignCertificateRequest{
		Id: id.App.ID, Namespace: id.App.Namespace, TrustDomain: id.TrustDomain, CertificateSigningRequest: csr,
	}
	if token != nil {
		sentry, err := o.cfg.id()
		if err != nil {
			return nil, err
		}
		if req.Token, err = token(sentry.String(), id.String()); err != nil {
			return nil, err
		}
		req.TokenValidator = sentryv1.TokenValidator_TOKEN_VALIDATOR_JWKS
	}
	text, err := o.sign(ctx, anchors, req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", &o, err)
	}
	chain, err := parseCertificates(text)
	if err == nil {
		var got ID
		if got, err = idOf(chain[0]); err == nil && got != id {
			err = fmt.Errorf("it has signed for %s; want %s", got, id)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", &o, err)
	}
	return text, nil
}

// HasToken tells whether a token of the own app's goes to Sentry, which then signs for no other.
func (c *credential) HasToken() bool {
	o, ok := c.origin.(*sentryOrigin)
	return ok && (o.cfg.Token != "" || o.cfg.TokenFile != "")
}

// selfSignedFor is longer than anybody needs a self-signed certificate.
const selfSignedFor = 48 * time.Hour

// SelfSigned makes a certificate with its key, and the root that signed it, in PEM. The root's key
// is gone, so it vouches for nothing else.
func SelfSigned(id ID) (cert *tls.Certificate, root []byte, err error) {
	uri, err := url.Parse(id.String())
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	template := func(name string) *x509.Certificate {
		serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // never fails
		return &x509.Certificate{
			SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Minute), NotAfter: now.Add(selfSignedFor), BasicConstraintsValid: true,
		}
	}
	authority, leaf := template("isthmus self-signed root"), template(id.App.ID)
	authority.IsCA, authority.KeyUsage = true, x509.KeyUsageCertSign
	leaf.URIs, leaf.KeyUsage, leaf.ExtKeyUsage = []*url.URL{uri}, x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{ofServer, ofClient}
	rootKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	rootDER, err := x509.CreateCertificate(rand.Reader, authority, authority, rootKey.Public(), rootKey)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, authority, key.Public(), rootKey)
	if err != nil {
		return nil, nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: parsed}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: rootDER}), err
}

// Request makes a key, and a PKCS #10 request for it in PEM, which has no name: Sentry decides that.
func Request() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate request: %w", err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr}), nil
}
