package guests

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/isthmus-mesh/isthmus/identity"
)

// tokenLasts is how long Sentry takes a token, beside the skew that it allows.
const tokenLasts = time.Minute

// Key signs the tokens by which Sentry's JWKS validator believes that an app may have a certificate.
type Key struct {
	own *ecdsa.PrivateKey
	id  string
}

// ReadKey reads the private key of an elliptic curve, P-256, from a file in PEM.
func ReadKey(path string) (*Key, error) {
	text, err := identity.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("guests.key: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("guests.key %s: not PEM; make one by openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256", path)
	}
	var parsed any
	if parsed, err = x509.ParsePKCS8PrivateKey(block.Bytes); err != nil {
		parsed, err = x509.ParseECPrivateKey(block.Bytes)
	}
	own, ok := parsed.(*ecdsa.PrivateKey)
	if err != nil || !ok || own.Curve.Params().BitSize != 256 {
		return nil, fmt.Errorf("guests.key %s: no private key of curve P-256; make one by openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256", path)
	}
	public, err := x509.MarshalPKIXPublicKey(own.Public())
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(public)
	return &Key{own, base64.RawURLEncoding.EncodeToString(sum[:16])}, nil
}

// JWKS is what Sentry checks tokens by. It has no secret.
func (k *Key) JWKS() ([]byte, error) {
	return json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: k.own.Public(), KeyID: k.id, Algorithm: string(jose.ES256), Use: "sig"}}})
}

// token says to Sentry, the audience, that it may sign for a subject.
func (k *Key) token(audience, subject string) (string, error) {
	by, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: k.own, KeyID: k.id}}, nil)
	if err != nil {
		return "", fmt.Errorf("guests.key: %w", err)
	}
	now := time.Now()
	return jwt.Signed(by).Claims(jwt.Claims{
		Audience: jwt.Audience{audience}, Subject: subject, IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(tokenLasts)),
	}).Serialize()
}
