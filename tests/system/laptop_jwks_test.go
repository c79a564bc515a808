package system

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// What docs/how-to/laptop.md says of Kubernetes, with a Sentry that wants a token of everybody: the key made
// and its public half printed as there, a laptop joins, and its sidecar has its certificate.
func TestALaptopJoinsWhereSentryWantsTokens(t *testing.T) {
	t.Parallel()
	needsBinaries(t)
	h := &host{&mesh{}}
	var err error
	if h.Sandbox, err = sandbox.New(t.TempDir(), quiet); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.close(); err != nil {
			t.Error(err)
		}
	})
	if h.authority, err = sandbox.NewAuthority(); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "guests.pem")
	if out, err := exec.CommandContext(t.Context(), "openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key).CombinedOutput(); err != nil {
		t.Fatalf("openssl: %v\n%s", err, out)
	}
	isthmus, err := sandbox.Binary("isthmus")
	if err != nil {
		t.Fatal(err)
	}
	jwks, err := exec.CommandContext(t.Context(), isthmus, "dev", "jwks", key).Output()
	if err != nil {
		t.Fatal(err)
	}
	sentry, err := h.Sentry(meshtest.Within(t, meshtest.Patience), sandbox.SentryOptions{Cluster: "west", Authority: h.authority, JWKS: strings.TrimSpace(string(jwks)), Lifetime: "40s"})
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(own, []byte(tokenBy(t, key, jwks, "spiffe://localhost/ns/default/dapr-sentry", "spiffe://public/ns/isthmus-system/isthmus-west")), 0o600); err != nil {
		t.Fatal(err)
	}
	identity := map[string]any{"sentry": map[string]any{"address": sentry.Address, "trustAnchorsFile": sentry.AnchorsFile, "tokenFile": own}}
	start := func(guests map[string]any) {
		h.west, err = h.Cluster(meshtest.Within(t, meshtest.Patience), sandbox.ClusterOptions{
			Name: "west", Authority: h.authority, Sentry: sentry, Settings: map[string]any{"identity": identity, "guests": guests},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	start(nil)
	if _, errs, err := h.isthmus(t, h.west, "", "dev", "invite", "anna-laptop", "--app", "shop/orders", "--gateway", h.west.Gateway); err == nil || !strings.Contains(errs, "(no-sentry)") || !strings.Contains(errs, "guests.key") {
		t.Errorf("without the key: %v\n%s", err, errs)
	}
	if err := h.west.Stop(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
	start(map[string]any{"key": key})
	g := h.join(t, h.invite(t))
	// Certificates are renewed on the way that the first ones came.
	meshtest.Eventually(t, meshtest.Patience, func() error {
		log, err := os.ReadFile(h.west.LogFile())
		for _, app := range []string{"shop/orders", "isthmus-system/isthmus-anna-laptop"} {
			if n := strings.Count(string(log), `msg="certificate for a guest" cluster=west peer=anna-laptop app=`+app); err == nil && n < 3 {
				err = fmt.Errorf("%d certificates of %s", n, app)
			}
		}
		return err
	})
	if err := g.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	<-g.Process.Done()
	h.gone(t, g)
}

// tokenBy is a token of the service's own, as Kubernetes would give it one.
func tokenBy(t *testing.T, path string, jwks []byte, audience, subject string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	_, id, _ := strings.Cut(string(jwks), `"kid":"`)
	id, _, _ = strings.Cut(id, `"`)
	by, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key.(*ecdsa.PrivateKey), KeyID: id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(by).Claims(jwt.Claims{Audience: jwt.Audience{audience}, Subject: subject, Expiry: jwt.NewNumericDate(time.Now().Add(time.Hour))}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}
