package nameresolution

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// order is the targets of one round; failed lookups are their errors.
func order(t *testing.T, r *round) (targets []string) {
	t.Helper()
	for {
		to, ok, err := r.take(t.Context())
		if !ok {
			return targets
		}
		if err != nil {
			targets = append(targets, "error: "+err.Error())
			continue
		}
		targets = append(targets, strings.TrimPrefix(to.target, "passthrough:///"))
	}
}

func TestARoundTriesEachReplicaOnceAndTheLostOneLast(t *testing.T) {
	s := newReplicas([]string{"10.0.0.1:7400", "10.0.0.2:7400", "unix:///run/isthmus.sock", "10.0.0.3:7400"})
	lost := replica{"10.0.0.2:7400", "passthrough:///10.0.0.2:7400"}
	first := map[string]int{}
	for range 600 {
		got := order(t, s.round(lost))
		if len(got) != 4 || got[3] != "10.0.0.2:7400" {
			t.Fatalf("order %v, want four and the lost one last", got)
		}
		first[got[0]]++
	}
	for address, n := range first {
		if n < 120 || n > 280 {
			t.Errorf("%s is first in %d of 600 rounds, want about 200: %v", address, n, first)
		}
	}
}

func TestANameStandsForAllItsAddresses(t *testing.T) {
	s := newReplicas([]string{"resolver.example:7400"})
	answer, failure := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("::ffff:10.0.0.1"), netip.MustParseAddr("fd00::1")}, error(nil)
	s.lookup = func(_ context.Context, host string) ([]netip.Addr, error) {
		if host != "resolver.example" {
			t.Errorf("looked up %q", host)
		}
		return answer, failure
	}
	want := []string{"10.0.0.1:7400", "[fd00::1]:7400"}
	if s.several() {
		t.Error("before the first lookup there are several replicas, want one")
	}
	if got := order(t, s.round(replica{})); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("a round has %v, want %v", got, want)
	}
	if !s.several() {
		t.Error("a name with two addresses is one replica, want several")
	}
	lost := replica{"resolver.example:7400", "passthrough:///10.0.0.1:7400"}
	for range 20 {
		if got := order(t, s.round(lost)); got[1] != "10.0.0.1:7400" {
			t.Errorf("order %v, want the lost one last", got)
		}
	}
	if got, want := lost.String(), "resolver.example:7400 (10.0.0.1:7400)"; got != want {
		t.Errorf("a replica is called %s, want %s", got, want)
	}

	failure = errors.New("no such host")
	if got := order(t, s.round(replica{})); len(got) != 2 {
		t.Errorf("after a lookup that failed, a round has %v, want what was known", got)
	}
	answer, failure = []netip.Addr{netip.MustParseAddr("10.0.0.9")}, nil
	if got, want := order(t, s.round(replica{})), []string{"10.0.0.9:7400"}; !slices.Equal(got, want) {
		t.Errorf("after the name was changed, a round has %v, want %v", got, want)
	}

	none := newReplicas([]string{"a.example:1", "10.0.0.1:7400"})
	none.lookup = func(context.Context, string) ([]netip.Addr, error) { return nil, nil }
	got := slices.Sorted(slices.Values(order(t, none.round(replica{}))))
	if len(got) != 2 || !strings.Contains(got[1], "a.example:1") || got[0] != "10.0.0.1:7400" {
		t.Errorf("with a name that stands for nothing, a round has %v", got)
	}
}
