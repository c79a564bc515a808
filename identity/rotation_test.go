package identity_test

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
)

func certificatesOf(t testing.TB, text []byte) (all []*x509.Certificate) {
	t.Helper()
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// Roots are replaced only by what the holder of one that stays vouches for.
func TestASuccessionOfRoots(t *testing.T) {
	old, next, other := identitytest.NewCA(t), identitytest.NewCA(t), identitytest.NewCA(t)
	expired := identitytest.NewCA(t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	early := identitytest.NewCA(t, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) })
	pems := func(all ...*identitytest.CA) (text string) {
		for _, ca := range all {
			text += string(ca.PEM())
		}
		return text
	}
	service := identity.ServiceApp("", "east")
	chain := func(ca *identitytest.CA) []*x509.Certificate { return certificatesOf(t, ca.Issue(service).Cert) }
	issuer := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificatesOf(t, next.Intermediate().Issue(service).Cert)[1].Raw}))
	for what, c := range map[string]struct {
		old, next string
		by        []*x509.Certificate
		word      string
	}{
		"one more":                             {pems(old), pems(old, next), chain(old), ""},
		"one more, by an issuer":               {pems(old), pems(old, next), chain(old.Intermediate()), ""},
		"the same":                             {pems(old, next), pems(next, old), chain(old), ""},
		"the new one in use, and alone":        {pems(old, next), pems(next), chain(next), ""},
		"back to the old one":                  {pems(old, next), pems(old), chain(old), ""},
		"the new one alone, and not in use":    {pems(old, next), pems(next), chain(old), identity.RootsUnproven},
		"back, and the new one in use":         {pems(old, next), pems(old), chain(next), identity.RootsUnproven},
		"another one instead":                  {pems(old), pems(next), chain(next), identity.RootsUnproven},
		"one more, by itself":                  {pems(old), pems(old, next), chain(next), identity.RootsUnproven},
		"one more, by nobody":                  {pems(old), pems(old, next), nil, identity.RootsUnproven},
		"of another cluster":                   {pems(old), pems(old, other), chain(old), identity.RootsTaken},
		"one that was there and is another's":  {pems(old, other), pems(old, other), chain(old), ""},
		"an expired one":                       {pems(old), pems(old, expired), chain(old), identity.RootsUntimely},
		"one of tomorrow":                      {pems(old), pems(old, early), chain(old), identity.RootsUntimely},
		"one that its own key has not signed":  {pems(old), pems(old) + issuer, chain(old), identity.RootsUnsigned},
		"none":                                 {pems(old), "", chain(old), identity.RootsMalformed},
		"something beside them":                {pems(old), pems(old) + string(old.Issue(checkout).Key), chain(old), identity.RootsMalformed},
		"a certificate that is no authority's": {pems(old), pems(old) + string(old.Issue(checkout).Cert), chain(old), identity.RootsMalformed},
		"too many":                             {pems(old), pems(old, next, other, identitytest.NewCA(t), identitytest.NewCA(t), identitytest.NewCA(t), identitytest.NewCA(t), identitytest.NewCA(t), identitytest.NewCA(t)), chain(old), identity.RootsTooMany},
	} {
		s := identity.Succession{Old: c.old, Next: c.next, Chain: c.by, Taken: certificatesOf(t, other.PEM()), At: time.Now()}
		done, err := s.Check()
		var refused *identity.RootsRefusal
		word := ""
		if errors.As(err, &refused) {
			word = refused.Word
		}
		if word != c.word {
			t.Errorf("%s: %v, want %q", what, err, c.word)
		}
		if err == nil && !slices.EqualFunc(certificatesOf(t, []byte(done.Roots)), certificatesOf(t, []byte(c.next)), (*x509.Certificate).Equal) {
			t.Errorf("%s: the roots are other ones", what)
		}
	}
	// A certificate that has expired meanwhile vouches for nothing.
	late := identity.Succession{Old: pems(old), Next: pems(old, next), Chain: chain(old), At: time.Now().Add(2 * time.Hour)}
	if _, err := late.Check(); err == nil {
		t.Error("an expired certificate vouches for roots")
	}
}

// Whatever a peer announces, what is taken has a root of before that vouches for it, and no key.
func FuzzSuccession(f *testing.F) {
	old, next := identitytest.NewCA(f), identitytest.NewCA(f)
	chain := certificatesOf(f, old.Issue(identity.ServiceApp("", "east")).Cert)
	f.Add(append(old.PEM(), next.PEM()...))
	f.Add(next.PEM())
	f.Add(append(old.PEM(), old.Issue(checkout).Key...))
	f.Fuzz(func(t *testing.T, text []byte) {
		s := identity.Succession{Old: string(old.PEM()), Next: string(text), Chain: chain, Taken: certificatesOf(t, next.PEM()), At: time.Now()}
		done, err := s.Check()
		if err == nil && (len(done.Added)+len(done.Removed) > 0 || len(identity.RootsIn(done.Roots)) == 0) {
			t.Errorf("added %v, removed %v", done.Added, done.Removed)
		}
	})
}
