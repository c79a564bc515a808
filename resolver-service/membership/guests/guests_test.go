package guests

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func write(t *testing.T, kind string, der []byte, err error) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key.pem")
	if err == nil {
		err = os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// A token is for one audience and one subject, for a minute, and the JWKS tells that the key has made it. The
// JWKS has nothing private.
func TestATokenIsCheckedByTheJWKS(t *testing.T) {
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(own)
	key, readErr := ReadKey(write(t, "PRIVATE KEY", der, err))
	if readErr != nil {
		t.Fatal(readErr)
	}
	text, err := key.JWKS()
	var set jose.JSONWebKeySet
	if err != nil || json.Unmarshal(text, &set) != nil || len(set.Keys) != 1 || !set.Keys[0].IsPublic() || strings.Contains(string(text), `"d":`) {
		t.Fatalf("%v: %s", err, text)
	}
	token, err := key.token("sentry", "spiffe://a/ns/b/c")
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	var claims jwt.Claims
	if err := parsed.Claims(set, &claims); err != nil {
		t.Fatal(err)
	}
	if err := claims.Validate(jwt.Expected{AnyAudience: jwt.Audience{"sentry"}, Subject: "spiffe://a/ns/b/c"}); err != nil || time.Until(claims.Expiry.Time()) > tokenLasts {
		t.Errorf("%v, %+v", err, claims)
	}
}

// What is no such key is refused with what makes one.
func TestKeysOfOtherKinds(t *testing.T) {
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	large, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaDER, rsaErr := x509.MarshalPKCS8PrivateKey(other)
	largeDER, largeErr := x509.MarshalPKCS8PrivateKey(large)
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, path := range map[string]string{
		"RSA": write(t, "PRIVATE KEY", rsaDER, rsaErr), "another curve": write(t, "PRIVATE KEY", largeDER, largeErr), "text": text,
	} {
		if _, err := ReadKey(path); err == nil || !strings.Contains(err.Error(), "openssl genpkey") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A guest asks so often, and leaves nothing behind.
func TestAGuestAsksSoOften(t *testing.T) {
	s := New(Config{})
	let := 0
	for range 10 * askBurst {
		if s.limiter("anna").Allow() {
			let++
		}
	}
	if let < askBurst || let > 2*askBurst {
		t.Errorf("%d of %d in a row", let, 10*askBurst)
	}
	if !s.limiter("bob").Allow() {
		t.Error("another guest waits for it")
	}
	s.forget([]*catalog.Cluster{{Name: "bob", Guest: &catalog.Guest{}}})
	if len(s.limiters) != 1 {
		t.Errorf("%d limiters for one guest", len(s.limiters))
	}
}
