package show

import (
	"cmp"
	"fmt"
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
		"identity: no Sentry":                       func(s *v1alpha1.StatusResponse) { s.IdentityError = "no Sentry" },
		"store consul: not read yet":                func(s *v1alpha1.StatusResponse) { s.Store.Ready = false },
		"store consul: away for ":                   func(s *v1alpha1.StatusResponse) { s.Store.Error = "refused" },
		"object: refused: shop.yaml:3":              func(s *v1alpha1.StatusResponse) { s.Refused = []*v1alpha1.RefusedObject{{Error: "shop.yaml:3: x"}} },
		"source consul: refused":                    func(s *v1alpha1.StatusResponse) { s.Sources[0].Error = "refused" },
		"source consul: not read yet":               func(s *v1alpha1.StatusResponse) { s.Sources[0].Ready = false },
		"source consul: 3 entries can't be used":    func(s *v1alpha1.StatusResponse) { s.Sources[0].RefusedCount = 3 },
		"peer east: stale: silent":                  func(s *v1alpha1.StatusResponse) { s.Peers[0].State, s.Peers[0].Error = "stale", "silent" },
		"peer east: 2 of 5 callers":                 func(s *v1alpha1.StatusResponse) { s.Peers[0].UnreachedBy, s.Peers[0].Callers = 2, 5 },
		"dns upstream 10.0.0.1:53: does not answer": func(s *v1alpha1.StatusResponse) { s.Dns.Upstreams[0].Up = false },
		"own certificate: spiffe://a/b expired at ": func(s *v1alpha1.StatusResponse) {
			s.Trust = []*v1alpha1.TrustStatus{{Use: "own certificate", Subject: "spiffe://a/b", Fingerprint: "00", NotBeforeUnixMs: 1, NotAfterUnixMs: 2}}
		},
	} {
		s := healthy()
		spoil(s)
		wrong := Unhealthy(s, now)
		if len(wrong) != 1 || !slices.ContainsFunc(wrong, func(p *v1alpha1.Unhealthy) bool { return strings.HasPrefix(Problem(p), want) }) {
			t.Errorf("got %q, want %q", wrong, want)
		}
	}
}

func TestTheSameOfSeveralPeersIsOneProblem(t *testing.T) {
	s := &v1alpha1.StatusResponse{Store: &v1alpha1.StoreStatus{Name: "consul", Ready: true}}
	for i := range 12 {
		address := fmt.Sprintf("10.0.0.%d:15443", i)
		s.Peers = append(s.Peers, &v1alpha1.PeerStatus{
			Cluster: fmt.Sprintf("peer-%d", i), State: "stale", Error: "dial " + address + ": connection refused",
			Gateways: []*v1alpha1.GatewayStatus{{Address: address}},
		})
	}
	s.Peers[3].Error = "its root is unknown"
	wrong := Unhealthy(s, time.Unix(1_000_000, 0))
	if len(wrong) != 2 {
		t.Fatalf("%d problems: %v", len(wrong), wrong)
	}
	for i, want := range []string{
		"peers peer-0, peer-1, peer-2, peer-4, peer-5, peer-6, peer-7, peer-8 and 3 more: stale: dial 10.0.0.0:15443: connection refused (peer-0)",
		"peer peer-3: stale: its root is unknown",
	} {
		if got := Problem(wrong[i]); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestNamesAreInTheirNaturalOrder(t *testing.T) {
	want := []string{"a", "a-2", "a-10", "a-10b", "a-011", "b", "peer-2", "peer-10", "peer-10-1"}
	for i := range want {
		for j := range want {
			if got := natural(want[i], want[j]); cmp.Compare(got, 0) != cmp.Compare(i, j) {
				t.Errorf("%s and %s: %d", want[i], want[j], got)
			}
		}
	}
}
