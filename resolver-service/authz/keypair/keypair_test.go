package keypair

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/identity"
)

// late is when certificates of tests run out that are to be valid.
var late = time.Unix(1<<32, 0)

// write writes a certificate with a serial number, and its key.
func write(t *testing.T, dir string, serial int64) (cert, key string) {
	t.Helper()
	return writeUntil(t, dir, serial, late)
}

func writeUntil(t *testing.T, dir string, serial int64, end time.Time) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), DNSNames: []string{"dns.example"}, NotBefore: time.Unix(0, 0), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	save(t, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	save(t, key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
	return cert, key
}

func save(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestANewCertificateIsUsed checks that an unusable one leaves the old certificate in use.
func TestANewCertificateIsUsed(t *testing.T) {
	dir := t.TempDir()
	cert, key := write(t, dir, 1)
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p, err := Load(identity.DNSCertificate, cert, key, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		serial := func() int64 {
			time.Sleep(lookEvery)
			c, err := p.Get(nil)
			if err != nil {
				t.Fatal(err)
			}
			return c.Leaf.SerialNumber.Int64()
		}
		for step, c := range []struct {
			change func()
			serial int64
			fails  bool
		}{
			{func() {}, 1, false},
			{func() { write(t, dir, 2) }, 2, false},
			{func() { save(t, key, []byte("half of")) }, 2, true},
			{func() { os.Remove(cert) }, 2, true},
			{func() { save(t, cert, make([]byte, 1<<20+1)) }, 2, true},
			{func() { write(t, dir, 3) }, 3, false},
		} {
			c.change()
			if got := serial(); got != c.serial {
				t.Errorf("step %d: certificate %d, want %d", step, got, c.serial)
			}
			if said := p.Trusted(); (said.Err != nil) != c.fails || said.Use != identity.DNSCertificate || !said.NotAfter.Equal(late) || said.Subject != "dns.example" {
				t.Errorf("step %d: %+v", step, said)
			}
		}
		// The status shows the error before any client connects.
		save(t, key, []byte("half of"))
		time.Sleep(lookEvery)
		if err := p.Trusted().Err; err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("without a client: %v", err)
		}
		if n := strings.Count(log.String(), "new files unusable"); n != 2 {
			t.Errorf("said %d times: %s", n, log.String())
		}
	})
}

// TestWhatIsOutOfTimeIsSaid checks the log: a handshake informs only the client.
func TestWhatIsOutOfTimeIsSaid(t *testing.T) {
	for end, want := range map[time.Time]bool{late: false, time.Unix(1, 0): true} {
		cert, key := writeUntil(t, t.TempDir(), 1, end)
		var log bytes.Buffer
		if _, err := Load(identity.DNSCertificate, cert, key, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(log.String(), "not valid now"); got != want {
			t.Errorf("until %s: %q", end, log.String())
		}
	}
}

func TestFilesThatCanNotBeReadSayWhatToDo(t *testing.T) {
	_, err := Load(identity.ConsulCertificate, filepath.Join(t.TempDir(), "tls.crt"), "x", slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "tls.crt") || !strings.Contains(err.Error(), "name a certificate") {
		t.Error(err)
	}
}
