package identity_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// patience is how long a test waits for what should happen, also where this machine is slow.
const patience = 5 * time.Minute

// sentry is Dapr's own, with credentials that outlive a restart of it.
type sentry struct {
	t       *testing.T
	binary  string
	dir     string
	address string
	process *exec.Cmd
}

// newSentry makes a Sentry that is not started. mtls is what stands under spec.mtls
// beside enabled: true.
func newSentry(t *testing.T, mtls string) *sentry {
	t.Helper()
	s := &sentry{t: t, binary: programstest.Path(t, "sentry"), dir: t.TempDir(), address: freeAddress(t)}
	config := "apiVersion: dapr.io/v1alpha1\nkind: Configuration\nmetadata: {name: sentry}\nspec:\n  mtls:\n    enabled: true\n" + mtls
	identitytest.Write(t, filepath.Join(s.dir, "config.yaml"), []byte(config))
	t.Cleanup(s.stop)
	return s
}

// freeAddress is one that nobody else is given.
func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := sandbox.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// start runs Sentry and returns once it answers. The first start makes the roots.
func (s *sentry) start() {
	s.t.Helper()
	_, port, err := net.SplitHostPort(s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	_, healthz, err := net.SplitHostPort(freeAddress(s.t))
	if err != nil {
		s.t.Fatal(err)
	}
	s.process = exec.Command(s.binary, "--config", filepath.Join(s.dir, "config.yaml"), "--issuer-credentials", s.dir,
		"--listen-address", "127.0.0.1", "--port", port, "--healthz-listen-address", "127.0.0.1", "--healthz-port", healthz, "--enable-metrics=false")
	s.process.Env = append(os.Environ(), "NAMESPACE=default")
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.process.Stdout, s.process.Stderr = log, log
	if err := s.process.Start(); err != nil {
		s.t.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		if conn, err := net.DialTimeout("tcp", s.address, time.Second); err == nil {
			conn.Close()
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	text, _ := os.ReadFile(log.Name())
	s.t.Fatalf("sentry does not listen on %s after %s: %s", s.address, patience, text)
}

func (s *sentry) stop() {
	if s.process == nil {
		return
	}
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
	s.process = nil
}

func (s *sentry) config() *identity.Sentry {
	return &identity.Sentry{Address: s.address, TrustAnchorsFile: filepath.Join(s.dir, "ca.crt")}
}

// run keeps an identity fresh until the test ends.
func run(t *testing.T, cfg *identity.Sentry, log *slog.Logger) *identity.Source {
	t.Helper()
	s, err := identity.New(identity.Config{Sentry: cfg}, checkout, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("Run goes on a minute after its context ended")
		}
	})
	return s
}

// ready waits for an identity.
func ready(t *testing.T, s *identity.Source) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Wait(ctx); err != nil {
		t.Fatal(err)
	}
}

// eventually waits for something that other processes bring about.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatalf("not within %s: %s", patience, what)
}

// serialOf is the serial number that the source's certificate now has, if that is valid.
func serialOf(s *identity.Source) (string, error) {
	cert, err := s.ServerTLS(identity.Anyone).GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		return "", err
	}
	return cert.Leaf.SerialNumber.String(), nil
}

// shortLived tests with a Sentry whose certificates have a short life, and with longer ones
// where this machine is so slow that they end before it comes to them.
func shortLived(t *testing.T, test func(*sentry) error, lives ...time.Duration) {
	t.Helper()
	var err error
	for _, life := range lives {
		s := newSentry(t, "    workloadCertTTL: "+life.String()+"\n    allowedClockSkew: 1s\n")
		s.start()
		if err = test(s); err == nil {
			return
		}
		t.Logf("with certificates of %s: %v", life, err)
	}
	t.Error(err)
}

func TestSentryIssuesAndRenews(t *testing.T) {
	shortLived(t, func(sentry *sentry) error { return renews(t, sentry) }, 3*time.Second, 15*time.Second, 45*time.Second)
}

// renews fails also where a certificate expires before it is renewed.
func renews(t *testing.T, sentry *sentry) error {
	s := run(t, sentry.config(), slog.New(slog.DiscardHandler))
	ready(t, s)
	if id, _ := s.ID(); id.String() != "spiffe://public/ns/shop/checkout" {
		t.Errorf("identity %s; want spiffe://public/ns/shop/checkout", id)
	}
	if err := errors.Join(handshake(t, s.ServerTLS(identity.OneOf(checkout)), s.ClientTLS(identity.OneOf(checkout)))); err != nil {
		return err
	}
	serial, err := serialOf(s)
	for range 2 {
		before := serial
		eventually(t, "a renewal", func() bool { serial, err = serialOf(s); return err != nil || serial != before })
	}
	return err
}

func TestSentryIsDownAtStart(t *testing.T) {
	sentry := newSentry(t, "")
	sentry.start()
	eventually(t, "roots", func() bool { _, err := os.Stat(filepath.Join(sentry.dir, "ca.crt")); return err == nil })
	sentry.stop()

	var log logBuffer
	s := run(t, sentry.config(), slog.New(slog.NewTextHandler(&log, nil)))
	eventually(t, "an error", func() bool { return s.Err() != nil && strings.Contains(s.Err().Error(), "retrying") })
	wantError(t, "Ready", s.Ready(), "identity: sentry "+sentry.address+": ")
	wantError(t, "Ready", s.Ready(), "connection refused; retrying in ")
	if strings.Contains(s.Ready().Error(), "desc =") {
		t.Errorf("error in gRPC's words: %v", s.Ready())
	}
	if n := log.count("no identity yet"); n != 1 {
		t.Errorf("logged %d times; want once", n)
	}
	sentry.start()
	ready(t, s)
	if s.Err() != nil || s.Ready() != nil {
		t.Errorf("errors %v, %v; want none", s.Err(), s.Ready())
	}
}

func TestSentryGoesAwayLater(t *testing.T) {
	shortLived(t, func(sentry *sentry) error { return goesAway(t, sentry) }, 6*time.Second, 20*time.Second, 45*time.Second)
}

func goesAway(t *testing.T, sentry *sentry) error {
	s := run(t, sentry.config(), slog.New(slog.DiscardHandler))
	ready(t, s)
	sentry.stop()
	before, err := serialOf(s)
	if err != nil {
		return err
	}
	eventually(t, "a renewal that fails", func() bool { return s.Err() != nil })
	if after, err := serialOf(s); after != before {
		return fmt.Errorf("the certificate that is still valid is not used: %w", err)
	}
	eventually(t, "expiry", func() bool {
		err := s.Ready()
		return err != nil && strings.Contains(err.Error(), "certificate of shop/checkout expired at") &&
			strings.Contains(err.Error(), "connection refused; retrying in ")
	})
	sentry.start()
	eventually(t, "a new certificate", func() bool { return s.Ready() == nil })
	return nil
}

func TestSentryRefusedByUs(t *testing.T) {
	sentry := newSentry(t, "")
	sentry.start()
	tests := []struct {
		name string
		cfg  func(*identity.Sentry)
		want string
	}{
		{"other trust anchors", func(c *identity.Sentry) {
			c.TrustAnchorsFile, c.TrustAnchors = "", string(identitytest.NewCA(t).PEM())
		}, "its certificate does not chain to the trust anchors"},
		{"another trust domain", func(c *identity.Sentry) { c.TrustDomain = "cluster.local" },
			"it is spiffe://localhost/ns/default/dapr-sentry; want spiffe://cluster.local/ns/default/dapr-sentry: set trustDomain and namespace"},
		{"another namespace", func(c *identity.Sentry) { c.Namespace = "dapr-system" }, "want spiffe://localhost/ns/dapr-system/dapr-sentry"},
		{"no file of anchors", func(c *identity.Sentry) { c.TrustAnchorsFile = "/nowhere/ca.crt" }, "trustAnchorsFile: stat /nowhere/ca.crt: no such file"},
		{"no token file", func(c *identity.Sentry) { c.TokenFile = "/nowhere/token" }, "tokenFile: stat /nowhere/token: no such file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := sentry.config()
			tt.cfg(cfg)
			s, err := identity.New(identity.Config{Sentry: cfg}, checkout, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			wantError(t, "Load", s.Load(t.Context()), tt.want)
			wantError(t, "Ready", s.Ready(), tt.want)
		})
	}
}

func TestSentryHangs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // connections wait in the backlog and are never answered
	anchors := string(identitytest.NewCA(t).PEM())
	cfg := &identity.Sentry{Address: l.Addr().String(), TrustAnchors: anchors}

	s, err := identity.New(identity.Config{Sentry: cfg}, checkout, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s.SetSentryTimeout(300 * time.Millisecond)
	start := time.Now()
	wantError(t, "Load", s.Load(t.Context()), "no answer within 300ms")
	if took := time.Since(start); took > time.Minute {
		t.Errorf("an attempt took %s", took)
	}
	running := run(t, cfg, slog.New(slog.DiscardHandler)) // whose end the clean-up checks
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	wantError(t, "Wait", running.Wait(ctx), "first attempt not finished")
}

func TestSentryWantsAToken(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sentry := newSentry(t, "    tokenValidators:\n    - name: jwks\n      options:\n        source: "+strconv.Quote(jwks(t, key))+"\n")
	sentry.start()
	good := filepath.Join(t.TempDir(), "token")
	identitytest.Write(t, good, []byte(jwt(t, key, "spiffe://public/ns/shop/checkout")+"\n"))
	other := filepath.Join(t.TempDir(), "token")
	identitytest.Write(t, other, []byte(jwt(t, key, "spiffe://public/ns/shop/orders")))

	load := func(file string, token identity.Secret) error {
		cfg := sentry.config()
		cfg.TokenFile, cfg.Token = file, token
		s, err := identity.New(identity.Config{Sentry: cfg}, checkout, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return s.Load(t.Context())
	}
	wantError(t, "without a token", load("", ""), "no token was sent: set tokenFile")
	wantError(t, "with another app's token", load(other, ""), "refused to sign for app shop/checkout: PermissionDenied")
	forged := load("", "hunter2.hunter2.hunter2")
	wantError(t, "with a forged token", forged, "PermissionDenied")
	if strings.Contains(forged.Error(), "hunter2") {
		t.Errorf("the token stands in the error: %v", forged)
	}
	if err := load(good, ""); err != nil {
		t.Errorf("with its token: %v", err)
	}
}

// jwks is the public key as a JSON Web Key Set, and jwt a token for Sentry signed
// with the private one (RFC 7515, RFC 7517).
func jwks(t *testing.T, key *ecdsa.PrivateKey) string {
	t.Helper()
	point, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	x, y := point[1:33], point[33:]
	return fmt.Sprintf(`{"keys":[{"kty":"EC","crv":"P-256","alg":"ES256","use":"sig","kid":"test","x":%q,"y":%q}]}`, b64(x), b64(y))
}

func jwt(t *testing.T, key *ecdsa.PrivateKey, subject string) string {
	t.Helper()
	claims, err := json.Marshal(map[string]any{
		"sub": subject, "aud": "spiffe://localhost/ns/default/dapr-sentry",
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	})
	if err != nil {
		t.Fatal(err)
	}
	text := b64([]byte(`{"alg":"ES256","kid":"test","typ":"JWT"}`)) + "." + b64(claims)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	var signature [64]byte
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + b64(signature[:])
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
