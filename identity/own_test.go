package identity_test

import (
	"testing"

	"google.golang.org/grpc/credentials"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
)

// west has east's root among its own, as sidecars that call east do.
func TestARootThatAClusterObjectNamesVouchesForNobodyElse(t *testing.T) {
	own, eastCA, newCA := identitytest.NewCA(t), identitytest.NewCA(t), identitytest.NewCA(t)
	cfg := own.Config(identity.ServiceApp("", "west"))
	bundle := string(own.PEM()) + string(eastCA.PEM()) + string(newCA.PEM())
	identitytest.Write(t, cfg.Files.CA, []byte(bundle))
	west := source(t, cfg, quiet)
	for name, address := range map[string]string{"": serveStreams(t, west.ServerCredentials(identity.Anyone)), "north": serveStreams(t, west.PeeringCredentials())} {
		for what, c := range map[string]struct {
			said string // the roots of Cluster east
			by   *identitytest.CA
			in   bool
		}{
			"its own root": {string(eastCA.PEM()), own, true},
			"a root that nobody names, such as the next": {string(eastCA.PEM()), newCA, true},
			"east's root":                            {string(eastCA.PEM()), eastCA, false},
			"east's root that nobody names":          {"", eastCA, true},
			"a root of an authority that both share": {string(own.PEM()) + string(eastCA.PEM()), eastCA, true},
		} {
			t.Run(name+" by "+what, func(t *testing.T) {
				west.SetPeers("", map[string]catalog.Trust{"east": {Roots: c.said}, "north": {}})
				app := identity.CLIApp("")
				if name != "" {
					app = identity.ServiceApp("", name)
				}
				_, err := open(t, address, credentials.NewTLS(presenting(t, c.by.Issue(app))(west)))
				if (err == nil) != c.in {
					t.Errorf("let in: %v, want %v (%v)", err == nil, c.in, err)
				}
			})
		}
	}
}

func TestAnOperatorsConnectionEndsOnceItsRootIsAnotherClusters(t *testing.T) {
	own, eastCA := identitytest.NewCA(t), identitytest.NewCA(t)
	cfg := own.Config(identity.ServiceApp("", "west"))
	identitytest.Write(t, cfg.Files.CA, []byte(string(own.PEM())+string(eastCA.PEM())))
	west := source(t, cfg, quiet)
	s, err := open(t, serveStreams(t, west.ServerCredentials(identity.Anyone)),
		credentials.NewTLS(presenting(t, eastCA.Issue(identity.CLIApp("")))(west)))
	if err != nil {
		t.Fatal(err)
	}
	west.SetPeers("", map[string]catalog.Trust{"east": {Roots: string(eastCA.PEM())}})
	s.ends(t)
}
