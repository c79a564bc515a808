package identity_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/logged"
)

// served is the resolver service of west with its identity in files, in a bubble of
// fake time.
type served struct {
	t     *testing.T
	ca    *identitytest.CA
	files *identity.Files
	*identity.Source
	log *logBuffer
}

// withFiles runs test with a source that keeps itself fresh.
func withFiles(t *testing.T, prepare func(ca *identitytest.CA) identity.Config, test func(s *served)) {
	synctest.Test(t, func(t *testing.T) {
		s := &served{t: t, ca: identitytest.NewCA(t), log: &logBuffer{}}
		cfg := prepare(s.ca)
		s.files = cfg.Files
		var err error
		if s.Source, err = identity.New(cfg, west, slog.New(slog.NewTextHandler(s.log, nil))); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		synctest.Wait()
		test(s)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func goodFiles(ca *identitytest.CA) identity.Config { return ca.Config(west) }

// look lets the source look at its files again.
func (s *served) look() {
	time.Sleep(4 * time.Second)
	synctest.Wait()
}

// shows is the certificate that a client of the service now sees.
func (s *served) shows() *x509.Certificate {
	s.t.Helper()
	a, b := net.Pipe()
	server := tls.Server(a, s.ServerTLS(identity.Anyone))
	client := tls.Client(b, s.ClientTLS(identity.OneOf(west)))
	done := make(chan error, 1)
	go func() {
		done <- server.Handshake()
		_, _ = io.Copy(io.Discard, server)
		server.Close()
	}()
	if err := client.Handshake(); err != nil {
		s.t.Fatalf("client: %v", err)
	}
	if err := <-done; err != nil {
		s.t.Fatalf("server: %v", err)
	}
	cert := client.ConnectionState().PeerCertificates[0]
	client.Close()
	return cert
}

// logBuffer is a log that can be read while it is written.
type logBuffer struct{ logged.Buffer }

func (b *logBuffer) count(s string) int { return strings.Count(b.String(), s) }

func TestFilesAreReadAgain(t *testing.T) {
	withFiles(t, goodFiles, func(s *served) {
		before := s.shows()
		pair := s.ca.Issue(west)
		identitytest.Write(t, s.files.Cert, pair.Cert)
		identitytest.Write(t, s.files.Key, pair.Key)
		s.look()
		if after := s.shows(); after.SerialNumber.Cmp(before.SerialNumber) == 0 {
			t.Error("still the old certificate")
		}
	})
}

func TestHalfWrittenFilesKeepTheOldIdentity(t *testing.T) {
	other := west
	other.ID = "isthmus-east"
	tests := []struct {
		name  string
		spoil func(s *served, pair identitytest.Pair)
		want  string
	}{
		{"new certificate, old key", func(s *served, p identitytest.Pair) { identitytest.Write(t, s.files.Cert, p.Cert) }, "private key does not match"},
		{"old certificate, new key", func(s *served, p identitytest.Pair) { identitytest.Write(t, s.files.Key, p.Key) }, "private key does not match"},
		{"certificate cut short", func(s *served, p identitytest.Pair) { identitytest.Write(t, s.files.Cert, p.Cert[:100]) }, "failed to find any PEM data"},
		{"empty key", func(s *served, p identitytest.Pair) { identitytest.Write(t, s.files.Key, nil) }, "failed to find any PEM data"},
		{"roots cut short", func(s *served, p identitytest.Pair) { identitytest.Write(t, s.files.CA, s.ca.PEM()[:100]) }, "not PEM, or cut short"},
		{"no roots", func(s *served, p identitytest.Pair) { identitytest.Write(t, s.files.CA, nil) }, "no certificate in it"},
		{"key removed", func(s *served, p identitytest.Pair) { remove(t, s.files.Key) }, "no such file"},
		{"a directory in the key's place", func(s *served, p identitytest.Pair) {
			remove(t, s.files.Key)
			if err := os.Mkdir(s.files.Key, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "want a file"},
		{"another cluster's pair", func(s *served, _ identitytest.Pair) {
			p := s.ca.Issue(other)
			identitytest.Write(t, s.files.Cert, p.Cert)
			identitytest.Write(t, s.files.Key, p.Key)
		}, "names app isthmus-system/isthmus-east; want isthmus-system/isthmus-west"},
		{"a pair that has expired", func(s *served, _ identitytest.Pair) {
			p := s.ca.Issue(west, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) })
			identitytest.Write(t, s.files.Cert, p.Cert)
			identitytest.Write(t, s.files.Key, p.Key)
		}, "expired at"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			withFiles(t, goodFiles, func(s *served) {
				before := s.shows()
				pair := s.ca.Issue(west)
				tt.spoil(s, pair)
				s.look()
				s.look()
				wantError(t, "Err", s.Err(), tt.want)
				if err := s.Ready(); err != nil {
					t.Errorf("not ready: %v", err)
				}
				if after := s.shows(); after.SerialNumber.Cmp(before.SerialNumber) != 0 {
					t.Error("the old certificate is gone")
				}
				if n := s.log.count("the old certificate stays in use"); n != 1 {
					t.Errorf("logged %d times; want once", n)
				}
				_ = os.Remove(s.files.Key) // a directory in one case
				identitytest.Write(t, s.files.Cert, pair.Cert)
				identitytest.Write(t, s.files.Key, pair.Key)
				identitytest.Write(t, s.files.CA, s.ca.PEM())
				s.look()
				if err := s.Err(); err != nil {
					t.Errorf("after the rest was written: %v", err)
				}
				if after := s.shows(); after.SerialNumber.Cmp(before.SerialNumber) == 0 {
					t.Error("after the rest was written: still the old certificate")
				}
			})
		})
	}
}

// Kubernetes mounts a secret as links through ..data, a link that it swaps.
func TestSymlinkSwap(t *testing.T) {
	dir := t.TempDir()
	mount := func(version string, pair identitytest.Pair, roots []byte) {
		sub := filepath.Join(dir, version)
		if err := os.Mkdir(sub, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key, "ca.crt": roots} {
			identitytest.Write(t, filepath.Join(sub, name), text)
		}
		link := filepath.Join(dir, "..data_tmp")
		if err := os.Symlink(version, link); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link, filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	prepare := func(ca *identitytest.CA) identity.Config {
		mount("v1", ca.Issue(west), ca.PEM())
		files := identity.Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), CA: filepath.Join(dir, "ca.crt")}
		for _, path := range []string{files.Cert, files.Key, files.CA} {
			if err := os.Symlink(filepath.Join("..data", filepath.Base(path)), path); err != nil {
				t.Fatal(err)
			}
		}
		return identity.Config{Files: &files}
	}
	withFiles(t, prepare, func(s *served) {
		before := s.shows()
		renewed := identitytest.NewCA(t) // the roots change too
		mount("v2", renewed.Issue(west), renewed.PEM())
		s.look()
		if after := s.shows(); after.SerialNumber.Cmp(before.SerialNumber) == 0 {
			t.Error("still the old certificate")
		}
		if n := s.log.count("level=WARN"); n != 0 {
			t.Errorf("%d warnings during a clean swap", n)
		}
	})
}

func TestFilesThatAreLate(t *testing.T) {
	var pair identitytest.Pair
	prepare := func(ca *identitytest.CA) identity.Config {
		cfg := ca.Config(west)
		text, err := os.ReadFile(cfg.Files.Cert)
		if err != nil {
			t.Fatal(err)
		}
		pair.Cert = text
		remove(t, cfg.Files.Cert)
		return cfg
	}
	withFiles(t, prepare, func(s *served) {
		s.look()
		wantError(t, "Ready", s.Ready(), s.files.Cert+": no such file")
		wantError(t, "Ready", s.Ready(), "retrying in ")
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
		defer cancel()
		wantError(t, "Wait", s.Wait(ctx), "no such file")
		identitytest.Write(t, s.files.Cert, pair.Cert)
		s.look()
		if err := s.Wait(s.t.Context()); err != nil {
			t.Error(err)
		}
		if id, ok := s.ID(); !ok || id.App != west {
			t.Errorf("identity %v, %v; want %s", id, ok, west)
		}
	})
}

func TestExpiryIsAnnounced(t *testing.T) {
	withFiles(t, goodFiles, func(s *served) { // valid for an hour from now
		time.Sleep(40 * time.Minute)
		synctest.Wait()
		if n := s.log.count("about to expire"); n != 0 {
			t.Errorf("%d warnings with 20 minutes left; want none", n)
		}
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		if n := s.log.count("about to expire"); n != 1 {
			t.Errorf("%d warnings with 5 minutes left; want one", n)
		}
		if err := s.Ready(); err != nil {
			t.Errorf("with 5 minutes left: %v", err)
		}
		if at, ok := s.Expires(); !ok || time.Until(at).Round(time.Minute) != 5*time.Minute {
			t.Errorf("expires %s, %v; want 5 minutes from now", at, ok)
		}
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		wantError(t, "Ready", s.Ready(), "certificate of isthmus-system/isthmus-west expired at")
		time.Sleep(time.Hour)
		if about, ended := s.log.count("about to expire"), s.log.count("certificate has expired"); about != 1 || ended != 1 {
			t.Errorf("%d warnings, and %d times that it has expired; want one each", about, ended)
		}
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		go func() { _ = tls.Server(a, s.ServerTLS(identity.Anyone)).Handshake() }()
		wantError(t, "client", tls.Client(b, s.ClientTLS(identity.Anyone)).Handshake(), "tls: ")
	})
}

func TestForeignCertificateIsAnnounced(t *testing.T) {
	prepare := func(ca *identitytest.CA) identity.Config {
		cfg := ca.Config(west)
		identitytest.Write(t, cfg.Files.CA, identitytest.NewCA(t).PEM())
		return cfg
	}
	withFiles(t, prepare, func(s *served) {
		if n := s.log.count("does not chain to the configured roots"); n != 1 {
			t.Errorf("%d warnings; want one", n)
		}
		if err := s.Ready(); err != nil {
			t.Errorf("not ready: %v", err)
		}
	})
}

func TestAForeignCertificateThatIsRefusedIsAnnouncedOnce(t *testing.T) {
	prepare := func(ca *identitytest.CA) identity.Config {
		cfg := ca.Config(identity.CLIApp(""))
		identitytest.Write(t, cfg.Files.CA, identitytest.NewCA(t).PEM())
		return cfg
	}
	withFiles(t, prepare, func(s *served) {
		time.Sleep(time.Minute) // it is read every two seconds
		synctest.Wait()
		if n := s.log.count("does not chain to the configured roots"); n != 1 {
			t.Errorf("%d warnings; want one", n)
		}
		wantError(t, "Ready", s.Ready(), "certificate names app isthmus-system/isthmus-cli")
	})
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// An issuer may end before what it has signed, and the certificate counts no longer than that. It may
// also have come with one that nobody needs.
func TestACertificateEndsWithItsIssuer(t *testing.T) {
	ends := func(in time.Duration) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.NotAfter = time.Now().Add(in) }
	}
	byIssuer := func(ca *identitytest.CA) identity.Config { return ca.Intermediate(ends(10 * time.Minute)).Config(west) }
	withFiles(t, byIssuer, func(s *served) {
		own := s.Own()[0]
		if at, _ := s.Expires(); time.Until(at).Round(time.Minute) != 10*time.Minute || !own.NotAfter.Equal(at) {
			t.Errorf("expires %s, and trust says %s; want 10 minutes from now", at, own.NotAfter)
		}
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		if n := s.log.count("about to expire"); n != 1 {
			t.Errorf("%d warnings with a minute left; want one", n)
		}
		time.Sleep(2 * time.Minute)
		wantError(t, "Ready", s.Ready(), "certificate of isthmus-system/isthmus-west counts no more, since its issuer CN=identitytest issuer")
	})
	withFiles(t, func(ca *identitytest.CA) identity.Config {
		return ca.Intermediate(ends(-time.Second)).Config(west)
	}, func(s *served) { wantError(t, "Ready", s.Ready(), "since its issuer CN=identitytest issuer") })
	withFiles(t, func(ca *identitytest.CA) identity.Config {
		cfg := ca.Config(west)
		text, err := os.ReadFile(cfg.Files.Cert)
		if err != nil {
			t.Fatal(err)
		}
		identitytest.Write(t, cfg.Files.Cert, append(text, ca.Issue(orders, ends(5*time.Minute)).Cert...))
		return cfg
	}, func(s *served) {
		if at, _ := s.Expires(); time.Until(at).Round(time.Minute) != time.Hour {
			t.Errorf("with a certificate that nobody needs: expires %s; want an hour from now", at)
		}
	})
}
