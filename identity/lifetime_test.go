package identity

import (
	"crypto/x509"
	"testing"
	"time"
)

// For any validity of a peer's certificate, its connection is replaced when about a third of that
// is left.
func TestAConnectionIsMadeAnewWhateverItsCertificateLasts(t *testing.T) {
	const year = 365 * 24 * time.Hour
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, life := range []time.Duration{time.Hour, 24 * time.Hour, 10 * year, 50 * year, 100 * year, 290 * year} {
		in, ok := renewIn(&x509.Certificate{NotBefore: now, NotAfter: now.Add(life)}, now)
		if left := life - in; !ok || left < life/100*33 || left > life/100*41 {
			t.Errorf("of %s there are %s left when it is made anew", life, left)
		}
	}
	if in, ok := renewIn(&x509.Certificate{NotBefore: now, NotAfter: now.Add(-time.Hour)}, now); ok {
		t.Errorf("one that ended before it began is made anew in %s", in)
	}
}
