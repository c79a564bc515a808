package identity_test

import (
	"testing"
	"unicode"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
)

// Roots come from objects. For any text, the peer is refused or has roots, and their description
// is safe for a terminal.
func FuzzPeersRoots(f *testing.F) {
	ca := identitytest.NewCA(f)
	f.Add("east.example", string(ca.PEM()))
	f.Add("", string(ca.PEM())+string(ca.PEM()))
	f.Add("East", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	f.Add("a b", "hello")
	s, err := identity.New(ca.Config(west), west, quiet)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, domain, roots string) {
		s.SetPeers("", map[string]catalog.Trust{"east": {Domain: domain, Roots: roots}})
		all := s.Trusted()
		if len(all) == 0 {
			t.Fatal("nothing is told of a peer")
		}
		for _, c := range all {
			if c.Cluster != "east" || c.Use != identity.PeerRoot {
				t.Fatalf("told of %+v", c)
			}
			for _, r := range c.Subject {
				if !unicode.IsPrint(r) {
					t.Fatalf("subject %q", c.Subject)
				}
			}
		}
	})
}
