package identity_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
)

// serviceOf is the identity of a cluster's resolver service from its Sentry.
func (s *sentry) serviceOf(name string) *identity.Source {
	s.t.Helper()
	cfg := s.config()
	cfg.AppTrustDomain = name + ".example"
	source, err := identity.New(identity.Config{Sentry: cfg}, identity.ServiceApp("", name), quiet)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
	ready(s.t, source)
	return source
}

// trust is the trust in a Cluster object for the sentry's cluster.
func (s *sentry) trust(name string) catalog.Trust {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "ca.crt"))
	if err != nil {
		s.t.Fatal(err)
	}
	return catalog.Trust{Domain: name + ".example", Roots: string(text)}
}

// Three clusters, each with a Sentry, roots and a trust domain of its own. West and east
// know each other; the third has what it needs but their trust.
func TestClustersOfTwoSentrysPeer(t *testing.T) {
	sentrys, services, addresses := map[string]*sentry{}, map[string]*identity.Source{}, map[string]string{}
	for _, name := range []string{"west", "east", "third"} {
		sentrys[name] = newSentry(t, "")
		sentrys[name].start()
		services[name] = sentrys[name].serviceOf(name)
		addresses[name] = serveStreams(t, services[name].PeeringCredentials())
	}
	services["west"].SetPeers("", map[string]catalog.Trust{"east": sentrys["east"].trust("east")})
	services["east"].SetPeers("", map[string]catalog.Trust{"west": sentrys["west"].trust("west")})
	services["third"].SetPeers("", map[string]catalog.Trust{"west": sentrys["west"].trust("west"), "east": sentrys["east"].trust("east")})
	for _, way := range [][2]string{{"west", "east"}, {"east", "west"}} {
		s, err := open(t, addresses[way[1]], services[way[0]].PeerCredentials(way[1]))
		if err != nil {
			t.Fatal(err)
		}
		if want := "spiffe://" + way[0] + ".example/ns/isthmus-system/isthmus-" + way[0]; s.peer != way[0] || s.id != want {
			t.Errorf("%s takes the caller for %q, %s; want %s", way[1], s.peer, s.id, want)
		}
	}
	if _, err := open(t, addresses["west"], services["third"].PeerCredentials("west")); err == nil {
		t.Error("west lets in the third")
	}
	// The third in east's name, by its own Sentry: that signs for whoever asks.
	liar := sentrys["third"].config()
	liar.AppTrustDomain = "east.example"
	asEast, err := identity.New(identity.Config{Sentry: liar}, identity.ServiceApp("", "east"), quiet)
	if err == nil {
		err = asEast.Load(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	asEast.SetPeers("", map[string]catalog.Trust{"west": sentrys["west"].trust("west")})
	if _, err := open(t, addresses["west"], asEast.PeerCredentials("west")); err == nil {
		t.Error("west takes the third for east")
	}
	_, err = open(t, serveStreams(t, asEast.PeeringCredentials()), services["west"].PeerCredentials("east"))
	if err == nil || !strings.Contains(err.Error(), "add east's root to Cluster east, spec.trust.roots") {
		t.Errorf("west connects to the third in place of east: %v", err)
	}
}
