package answers

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// TestNoReplicaIsMissedInSilence has a name whose addresses change, one that stands for the same replica,
// and one that fails.
func TestNoReplicaIsMissedInSilence(t *testing.T) {
	r := NewReplicas([]string{"resolver:7400", "10.0.0.1:7400"}, insecure.NewCredentials())
	t.Cleanup(r.close)
	var listed []netip.Addr
	var lookup error
	r.lookup = func(context.Context, string) ([]netip.Addr, error) { return listed, lookup }
	runs := map[string]string{"10.0.0.1:7400": r.run, "10.0.0.2:7400": "two", "[fd00::2]:7400": "two", "10.0.0.3:7400": "three", "10.0.0.4:7400": ""}
	addresses := func(all ...string) (ips []netip.Addr) {
		for _, a := range all {
			ips = append(ips, netip.MustParseAddr(a))
		}
		return ips
	}
	var none *Replicas
	if all, missing := ask(t, none, nil); len(all)+len(missing) > 0 {
		t.Errorf("one service misses %v", missing)
	}
	if _, missing := ask(t, NewReplicas(nil, nil), nil); len(missing) != 1 || missing[0].GetAddress() != "" {
		t.Errorf("nothing says where the others are, and %v are missing", missing)
	}
	for _, step := range []struct {
		what    string
		listed  []netip.Addr
		lookup  error
		down    string
		want    []string // replicas that answer
		missing []string
	}{
		{what: "one of two families", listed: addresses("10.0.0.1", "10.0.0.2", "fd00::2", "10.0.0.3"), want: []string{"two", "three"}},
		{what: "one is not ready", listed: addresses("10.0.0.1", "10.0.0.2"), want: []string{"two", "three"}},
		{what: "one is away", listed: addresses("10.0.0.2", "10.0.0.3"), down: "10.0.0.3:7400", want: []string{"two"}, missing: []string{"10.0.0.3:7400"}},
		{what: "DNS fails", lookup: errors.New("no answer"), want: []string{"two", "three"}, missing: []string{"resolver:7400"}},
		{what: "it has ended", listed: addresses("10.0.0.2"), down: "10.0.0.3:7400", want: []string{"two"}},
		{what: "it stays so", listed: addresses("10.0.0.2"), want: []string{"two"}},
		{what: "an older one", listed: addresses("10.0.0.4"), want: []string{"two"}, missing: []string{"10.0.0.4:7400"}},
	} {
		listed, lookup = step.listed, step.lookup
		all, missing := ask(t, r, func(address string) (string, error) {
			if address == step.down {
				return "", errors.New("connection refused")
			}
			return runs[address], nil
		})
		got := map[string]bool{}
		for _, run := range all {
			got[run] = true
		}
		ok := len(all) == len(step.want) && len(missing) == len(step.missing)
		for _, want := range step.want {
			ok = ok && got[want]
		}
		for i := range missing {
			ok = ok && missing[i].GetAddress() == step.missing[i] && missing[i].GetWhy() != ""
		}
		if !ok {
			t.Errorf("%s: %v, missing %v; want %v, missing %v", step.what, all, missing, step.want, step.missing)
		}
	}
}

// ask asks all replicas for their runs.
func ask(t *testing.T, r *Replicas, run func(address string) (string, error)) ([]string, []*v1alpha1.MissingReplica) {
	return askEach(t.Context(), r, func(_ context.Context, conn grpc.ClientConnInterface) (string, string, error) {
		name, err := run(conn.(*grpc.ClientConn).CanonicalTarget()[len("passthrough:///"):])
		return name, name, err
	})
}
