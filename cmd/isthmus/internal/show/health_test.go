package show

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

func TestWhatIsUnhealthy(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	healthy := func() *v1alpha1.StatusResponse {
		return &v1alpha1.StatusResponse{
			Identity: "insecure", Store: &v1alpha1.StoreStatus{Name: "consul", Ready: true},
			Sources: []*v1alpha1.SourceStatus{{Name: "consul", Ready: true}},
			Peers:   []*v1alpha1.PeerStatus{{Cluster: "east", State: "connected"}},
			Dns:     &v1alpha1.DNSStatus{Upstreams: []*v1alpha1.DNSUpstream{{Address: "10.0.0.1:53", Up: true}}},
		}
	}
	if wrong := Unhealthy(healthy(), now); len(wrong) > 0 {
		t.Errorf("of one that is healthy: %q", wrong)
	}
	for want, spoil := range map[string]func(*v1alpha1.StatusResponse){
		"identity: no Sentry":                      func(s *v1alpha1.StatusResponse) { s.IdentityError = "no Sentry" },
		"store consul: not read yet":               func(s *v1alpha1.StatusResponse) { s.Store.Ready = false },
		"store consul is away for ":                func(s *v1alpha1.StatusResponse) { s.Store.Error = "refused" },
		"refused: shop.yaml:3":                     func(s *v1alpha1.StatusResponse) { s.Refused = []*v1alpha1.RefusedObject{{Error: "shop.yaml:3: x"}} },
		"source consul: refused":                   func(s *v1alpha1.StatusResponse) { s.Sources[0].Error = "refused" },
		"source consul: not read yet":              func(s *v1alpha1.StatusResponse) { s.Sources[0].Ready = false },
		"source consul: 3 entries can't be used":   func(s *v1alpha1.StatusResponse) { s.Sources[0].RefusedCount = 3 },
		"peer east is stale: silent":               func(s *v1alpha1.StatusResponse) { s.Peers[0].State, s.Peers[0].Error = "stale", "silent" },
		"peer east: 2 of 5 callers":                func(s *v1alpha1.StatusResponse) { s.Peers[0].UnreachedBy, s.Peers[0].Callers = 2, 5 },
		"dns upstream 10.0.0.1:53 does not answer": func(s *v1alpha1.StatusResponse) { s.Dns.Upstreams[0].Up = false },
		"own certificate: spiffe://a/b expired at ": func(s *v1alpha1.StatusResponse) {
			s.Trust = []*v1alpha1.TrustStatus{{Use: "own certificate", Subject: "spiffe://a/b", Fingerprint: "00", NotBeforeUnixMs: 1, NotAfterUnixMs: 2}}
		},
	} {
		s := healthy()
		spoil(s)
		wrong := Unhealthy(s, now)
		if len(wrong) != 1 || !slices.ContainsFunc(wrong, func(one string) bool { return strings.HasPrefix(one, want) }) {
			t.Errorf("got %q, want %q", wrong, want)
		}
	}
}
