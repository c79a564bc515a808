package identity_test

import (
	"bytes"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
)

// keeping is a source that keeps its certificate, with a Sentry that is not there.
func keeping(t *testing.T, ca *identitytest.CA, dir string) (s *identity.Source, path string) {
	t.Helper()
	return keepingBy(t, ca, dir, freeAddress(t))
}

// keepingBy names the Sentry.
func keepingBy(t *testing.T, ca *identitytest.CA, dir, address string) (s *identity.Source, path string) {
	t.Helper()
	s, err := identity.New(identity.Config{Sentry: &identity.Sentry{Address: address, TrustAnchors: string(ca.PEM()), Keep: dir}}, checkout, quiet)
	if err != nil {
		t.Fatal(err)
	}
	path, err = s.KeptPath()
	if err != nil {
		t.Fatal(err)
	}
	return s, path
}

// A kept certificate counts while it is valid, is the one that is wanted, and nobody else could have
// read or written it.
func TestAKeptCertificateCounts(t *testing.T) {
	ca, other := identitytest.NewCA(t), identitytest.NewCA(t)
	lives := func(from, to time.Duration) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.NotBefore, c.NotAfter = time.Now().Add(from), time.Now().Add(to) }
	}
	text := func(by *identitytest.CA, app catalog.App, edits ...func(*x509.Certificate)) []byte {
		pair := by.Issue(app, edits...)
		return append(pair.Key, pair.Cert...)
	}
	of := func(by *identitytest.CA, key *identitytest.CA) []byte {
		return append(key.Issue(checkout).Key, by.Issue(checkout).Cert...)
	}
	for what, c := range map[string]struct {
		text   []byte
		mode   os.FileMode
		counts bool
	}{
		"in its first half":        {text(ca, checkout), 0o600, true},
		"in its second half":       {text(ca, checkout, lives(-20*time.Hour, time.Hour)), 0o600, true},
		"expired":                  {text(ca, checkout, lives(-20*time.Hour, -time.Minute)), 0o600, false},
		"not valid yet":            {text(ca, checkout, lives(time.Hour, 2*time.Hour)), 0o600, false},
		"of another authority":     {text(other, checkout), 0o600, false},
		"of another app":           {text(ca, identity.CLIApp("")), 0o600, false},
		"with another key":         {of(ca, other), 0o600, false},
		"that its group may read":  {text(ca, checkout), 0o640, false},
		"that others may write":    {text(ca, checkout), 0o602, false},
		"cut off":                  {text(ca, checkout)[:400], 0o600, false},
		"that is no certificate":   {[]byte("hello"), 0o600, false},
		"without anything":         {nil, 0o600, false},
		"with a second one before": {append(text(other, checkout), text(ca, checkout)...), 0o600, false},
	} {
		t.Run(what, func(t *testing.T) {
			s, path := keeping(t, ca, t.TempDir())
			identitytest.Write(t, path, c.text)
			if err := os.Chmod(path, c.mode); err != nil {
				t.Fatal(err)
			}
			err := s.Load(t.Context())
			if (err == nil) != c.counts || err != nil && !errors.Is(err, identity.ErrNoSentry) {
				t.Error(err)
			}
			if id, ok := s.ID(); ok != c.counts || ok && id.App != checkout {
				t.Errorf("it is %s", id)
			}
		})
	}
	t.Run("a link to it", func(t *testing.T) {
		s, path := keeping(t, ca, t.TempDir())
		identitytest.Write(t, path+".other", text(other, checkout))
		if err := errors.Join(os.Chmod(path+".other", 0o644), os.Symlink(path+".other", path)); err != nil {
			t.Fatal(err)
		}
		if err := s.Load(t.Context()); err == nil {
			t.Error("it counts")
		}
	})
}

// Where its issuer is about to end, a new certificate is asked for.
func TestACertificateIsRenewedBeforeItsIssuerEnds(t *testing.T) {
	ca := identitytest.NewCA(t)
	for in, asks := range map[time.Duration]bool{40 * time.Second: true, 40 * time.Minute: false} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		asked := make(chan struct{}, 1)
		go func() {
			if conn, err := l.Accept(); err == nil {
				asked <- struct{}{}
				conn.Close()
			}
		}()
		s, path := keepingBy(t, ca, t.TempDir(), l.Addr().String())
		pair := ca.Intermediate(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(in) }).Issue(checkout)
		identitytest.Write(t, path, append(pair.Key, pair.Cert...))
		if err := s.Load(t.Context()); err != nil {
			t.Errorf("the issuer ends in %s: %v", in, err)
		}
		l.Close()
		if len(asked) == 1 != asks {
			t.Errorf("the issuer ends in %s: asks is %v", in, !asks)
		}
	}
}

// Roots may come and go within seconds. The last good ones stay, and so does the certificate: it is
// renewed also while there are none.
func TestRootsComeAndGo(t *testing.T) {
	a, b, c := identitytest.NewCA(t), identitytest.NewCA(t), identitytest.NewCA(t)
	anchors := filepath.Join(t.TempDir(), "ca.crt")
	identitytest.Write(t, anchors, a.PEM())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	asked := make(chan struct{}, 1)
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			select {
			case asked <- struct{}{}:
			default:
			}
			conn.Close()
		}
	}()
	s, err := identity.New(identity.Config{Sentry: &identity.Sentry{Address: l.Addr().String(), TrustAnchorsFile: anchors, Keep: t.TempDir()}}, checkout, quiet)
	if err != nil {
		t.Fatal(err)
	}
	path, err := s.KeptPath()
	if err != nil {
		t.Fatal(err)
	}
	pair := a.Issue(checkout)
	identitytest.Write(t, path, append(pair.Key, pair.Cert...))
	s.SetSentryTimeout(200 * time.Millisecond)
	both := append(a.PEM(), b.PEM()...)
	for _, step := range []struct {
		what  string
		write []byte // nil: the file is deleted
		roots []byte
		says  string
	}{
		{"A", a.PEM(), a.PEM(), ""},
		{"A and B", both, both, ""},
		{"B", b.PEM(), b.PEM(), ""},
		{"empty", []byte{}, b.PEM(), "no certificate in it"},
		{"deleted", nil, b.PEM(), "put Sentry's ca.crt there"},
		{"C", c.PEM(), c.PEM(), ""},
	} {
		if step.write == nil {
			if err := os.Remove(anchors); err != nil {
				t.Fatal(err)
			}
		} else {
			identitytest.Write(t, anchors, step.write)
		}
		err := s.Load(t.Context())
		if step.says == "" && err != nil {
			t.Errorf("%s: %v", step.what, err)
		}
		if step.says != "" {
			wantError(t, step.what, err, step.says)
			wantError(t, step.what+", in the status", s.Err(), step.says)
			select {
			case <-asked: // for a certificate under B
			default:
				t.Errorf("%s: the renewal waits", step.what)
			}
		}
		if got, err := s.Anchors(); err != nil || !bytes.Equal(got, step.roots) {
			t.Errorf("%s: the roots are others, %v", step.what, err)
		}
		if err := s.Ready(); err != nil {
			t.Errorf("%s: %v", step.what, err)
		}
	}
}

// A command has its certificate from Sentry once. While that one is frozen, it goes by what it has.
func TestACertificateOutlivesAFrozenSentry(t *testing.T) {
	sentry := newSentry(t, "")
	sentry.start()
	dir := filepath.Join(t.TempDir(), "cache")
	load := func(domain string) (*identity.Source, error) {
		cfg := sentry.config()
		cfg.Keep, cfg.AppTrustDomain = dir, domain
		s, err := identity.New(identity.Config{Sentry: cfg}, checkout, quiet)
		if err != nil {
			t.Fatal(err)
		}
		s.SetSentryTimeout(time.Second)
		return s, s.Load(t.Context())
	}
	first, err := load("public")
	for err != nil && errors.Is(err, identity.ErrNoSentry) { // on a busy machine
		first, err = load("public")
	}
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	if info, err := files[0].Info(); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := sentry.process.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	again, err := load("public")
	if err != nil {
		t.Fatal(err)
	}
	is, _ := first.Expires()
	if got, _ := again.Expires(); !got.Equal(is) {
		t.Errorf("it ends %s, and that of before %s", got, is)
	}
	if _, err := load("other.example"); !errors.Is(err, identity.ErrNoSentry) {
		t.Errorf("one that was never there: %v", err)
	}
}
