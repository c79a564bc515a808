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
		in, ok := renewIn(now, now.Add(life), now)
		if left := life - in; !ok || left < life/100*33 || left > life/100*41 {
			t.Errorf("of %s there are %s left when it is made anew", life, left)
		}
	}
	if in, ok := renewIn(now, now.Add(-time.Hour), now); ok {
		t.Errorf("one that ended before it began is made anew in %s", in)
	}
}

// An issuer that ends before what it has signed ends the connection, and is renewed before. What had
// expired when the chain was verified was not needed.
func TestAConnectionEndsWithAnIssuer(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	ends := func(in time.Duration) *x509.Certificate {
		return &x509.Certificate{NotBefore: now.Add(-time.Minute), NotAfter: now.Add(in)}
	}
	chain := []*x509.Certificate{ends(24 * time.Hour), ends(time.Hour), ends(-time.Second)}
	if in := closeIn(chain, false, now); in != time.Hour {
		t.Errorf("a connection lasts %s; want an hour", in)
	}
	for what, in := range map[string]time.Duration{"a peer's": closeIn(chain, true, now), "a client's": clientRenewIn(chain, now)} {
		if in < 35*time.Minute || in > 42*time.Minute {
			t.Errorf("%s is made anew in %s; want about 40 minutes", what, in)
		}
	}
}
