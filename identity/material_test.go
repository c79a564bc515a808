package identity

import (
	"bytes"
	"encoding/pem"
	"testing"
	"time"
)

// Accepted text has as many certificates as PEM blocks, and no garbage.
func FuzzParseCertificates(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"))
	f.Add([]byte("-----BEGIN CERTIFICATE-----"))
	f.Add([]byte("garbage"))
	f.Add([]byte(" \n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		certs, err := parseCertificates(text)
		if err != nil {
			return
		}
		if n := bytes.Count(text, []byte("-----BEGIN CERTIFICATE-----")); len(certs) == 0 || len(certs) > n {
			t.Errorf("%d certificates of %d blocks", len(certs), n)
		}
		var again []byte
		for _, c := range certs {
			again = append(again, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
		}
		if once, err := parseCertificates(again); err != nil || len(once) != len(certs) {
			t.Errorf("written again: %d certificates, %v; want %d", len(once), err, len(certs))
		}
	})
}

// A renewal is due by whichever clock comes first, so that neither a wall clock that
// is set back nor a machine that slept keeps an old certificate.
func TestDue(t *testing.T) {
	start := time.Now()
	m := &material{obtained: start}
	m.renewIn(time.Hour)
	tests := []struct {
		name string
		now  time.Time
		want bool
	}{
		{"at once", start, false},
		{"a minute before", start.Add(59 * time.Minute), false},
		{"on time", start.Add(time.Hour), true},
		{"the wall clock jumped ahead", start.Round(0).Add(2 * time.Hour), true},
		{"the wall clock jumped back", start.Round(0).Add(-2 * time.Hour), false},
	}
	for _, tt := range tests {
		if got := m.due(tt.now); got != tt.want {
			t.Errorf("%s: due %v; want %v", tt.name, got, tt.want)
		}
	}
	m.renewAt = start.Add(100 * time.Hour) // as a wall clock that was set back sees it
	if !m.due(start.Add(time.Hour)) {
		t.Error("not due after an hour by the monotonic clock")
	}
}
