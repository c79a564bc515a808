package rotation

import (
	"crypto/x509"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/resolver-service/membership/rotation"
)

// world is a cluster with two replicas, two sidecars and two peers, as it shows itself.
type world struct {
	old, new, other *x509.Certificate
	seen            *Seen
	west, north     *v1alpha1.TrustReport
}

func newWorld(t *testing.T) *world {
	root := func() *x509.Certificate { return identity.RootsIn(string(identitytest.NewCA(t).PEM()))[0] }
	w := &world{old: root(), new: root(), other: root()}
	w.west, w.north = w.reports(w.old), w.reports(w.old)
	w.west.Accepts = true
	peers := func(west, north *v1alpha1.TrustReport) []*v1alpha1.PeerRotation {
		all := []*v1alpha1.PeerRotation{{Cluster: "west", Roots: text([]*x509.Certificate{w.other})}, {Cluster: "north"}}
		if west != nil {
			all[0].Reports = append(all[0].Reports, west)
		}
		if north != nil {
			all[1].Reports = append(all[1].Reports, north)
		}
		return all
	}
	sidecar := func(id, address string) *v1alpha1.CertifiedSidecar {
		now := time.Now()
		return &v1alpha1.CertifiedSidecar{
			Sidecar:  &v1alpha1.SidecarState{App: &v1alpha1.App{Namespace: "shop", Id: id}, Address: address, TrustAnchors: names([]*x509.Certificate{w.old})},
			SignedBy: names([]*x509.Certificate{w.old}), FromUnixMs: now.UnixMilli(), UntilUnixMs: now.Add(time.Hour).UnixMilli(),
		}
	}
	w.seen = &Seen{Messages: []*v1alpha1.ShowRotationResponse{
		{Cluster: "east", Replica: "a", Peers: peers(w.west, nil)},
		{Sidecars: []*v1alpha1.CertifiedSidecar{sidecar("orders", "10.0.0.1:50002"), sidecar("cart", "10.0.0.2:50002")}},
		{Cluster: "east", Replica: "b", Peers: peers(nil, w.north)},
	}}
	w.has(w.old, w.other)
	w.signs(w.old)
	return w
}

func (w *world) reports(roots ...*x509.Certificate) *v1alpha1.TrustReport {
	m := &v1alpha1.TrustReport{}
	for _, name := range names(roots) {
		sum, _ := hex.DecodeString(name)
		m.Roots = append(m.Roots, sum)
	}
	return m
}

// has gives services and sidecars of the cluster their trust anchors.
func (w *world) has(roots ...*x509.Certificate) {
	for _, m := range w.seen.Messages {
		m.Roots = text(roots)
		for _, s := range m.GetSidecars() {
			s.Sidecar.TrustAnchors = names(roots)
		}
	}
}

func (w *world) signs(root *x509.Certificate) {
	for _, m := range w.seen.Messages {
		m.Signing = names([]*x509.Certificate{root})
		for _, s := range m.GetSidecars() {
			s.SignedBy = m.Signing
		}
	}
}

func (w *world) announces(roots ...*x509.Certificate) {
	for _, m := range w.seen.Messages {
		m.Announced = text(roots)
	}
}

// trusted has both peers trust roots.
func (w *world) trusted(roots ...*x509.Certificate) {
	for _, m := range []*v1alpha1.TrustReport{w.west, w.north} {
		m.Roots = w.reports(roots...).Roots
	}
}

// step is the plan, in a line for each who is waited for.
func (w *world) step(t *testing.T, back bool, assumed ...string) (*Plan, string) {
	t.Helper()
	p, err := Next(w.seen, w.new, back, assumed)
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{string(p.Phase)}
	for _, one := range p.Waiting {
		lines = append(lines, strings.TrimSpace(one.Cluster+" "+one.App+" "+one.Sidecar)+": "+one.Why+" => "+one.Fix)
	}
	return p, strings.Join(lines, "\n")
}

// wants checks the phase, and what is in the lines.
func (w *world) wants(t *testing.T, back bool, phase Phase, waiting int, parts ...string) *Plan {
	t.Helper()
	p, lines := w.step(t, back)
	if p.Phase != phase || len(p.Waiting) != waiting {
		t.Fatalf("want %s and %d waiting, got\n%s", phase, waiting, lines)
	}
	for _, part := range parts {
		if !strings.Contains(lines, part) {
			t.Errorf("no %q in\n%s", part, lines)
		}
	}
	return p
}

// A rotation goes on only when nobody lacks what the next step takes away.
func TestTheWayOn(t *testing.T) {
	w := newWorld(t)
	p := w.wants(t, false, Add, 0)
	if p.Announce != text([]*x509.Certificate{w.old, w.new}) {
		t.Error("other roots are announced than both")
	}
	w.announces(w.old, w.new)
	w.wants(t, false, Trust, 6, "east  a: lacks "+short(names([]*x509.Certificate{w.new})), "east shop/orders 10.0.0.1:50002: lacks", "=> "+FixRestart,
		"north: does not trust", "it has not consented to changes by this cluster => its operator runs: isthmus trust accept east", "west: does not trust")
	w.has(w.old, w.other, w.new)
	w.trusted(w.old, w.new)
	w.west.Lacking = []*v1alpha1.LackingApp{{Sidecars: 2}, {App: &v1alpha1.App{Namespace: "shop", Id: "prices"}, Sidecars: 1, Silent: 1}}
	w.wants(t, false, Trust, 3, "west: sidecars that lack a root: 2, of apps that call this cluster", "west shop/prices: sidecars that lack a root: 1", "west shop/prices: sidecars that do not say which roots they trust: 1", "isthmus link trust east")
	w.west.Lacking = nil
	w.wants(t, false, Issue, 4, "its certificate is signed by", FixIssuer)
	w.seen.Messages[0].Signing = names([]*x509.Certificate{w.new})
	w.wants(t, false, Issue, 3)
	w.signs(w.new)
	p = w.wants(t, false, Remove, 0)
	if p.Announce != text([]*x509.Certificate{w.new}) {
		t.Error("another root stays than the new one")
	}
	w.announces(w.new)
	w.wants(t, false, Follow, 2, "west: still trusts "+short(names([]*x509.Certificate{w.old})), "north: still trusts", "isthmus trust accept east")
	w.trusted(w.new)
	p = w.wants(t, false, Done, 0)
	if !slices.Equal(names(p.Orphans), names([]*x509.Certificate{w.old})) {
		t.Errorf("of no cluster any more: %v", names(p.Orphans))
	}
	if left := time.Until(p.Until); left < 30*time.Minute || left > 40*time.Minute {
		t.Errorf("the old root stays for %s, want a little more than half of an hour", left)
	}
	if _, err := Next(w.seen, w.new, true, nil); err == nil {
		t.Error("there is a way back without the old root")
	}
}

// Who is not heard, who does not say and who can't be asked holds a rotation up, until its operator
// has seen to it.
func TestNobodyIsPassedOver(t *testing.T) {
	for what, c := range map[string]struct {
		edit   func(*world)
		part   string
		assume string
	}{
		"a peer that is away":         {func(w *world) { w.seen.Messages[0].Peers[0].Reports = nil }, "west: is not heard", "west"},
		"a replica that is away":      {func(w *world) { w.seen.Messages[0].Missing = []*v1alpha1.MissingReplica{{Address: "10.0.0.9:7400"}} }, "east  10.0.0.9:7400: does not answer", ""},
		"a sidecar that says nothing": {func(w *world) { w.seen.Messages[1].Sidecars[0].Sidecar.TrustAnchors = nil }, "does not say which roots it trusts", "shop/orders"},
		"a sidecar with the new root alone": {func(w *world) {
			w.seen.Messages[1].Sidecars[0].Sidecar.TrustAnchors = names([]*x509.Certificate{w.new})
		}, "lacks ", "shop/orders"},
		"an instance without Isthmus": {func(w *world) {
			w.seen.Apps = []*v1alpha1.AppState{{App: &v1alpha1.App{Namespace: "shop", Id: "legacy"}, Instances: []*v1alpha1.InstanceState{{Address: "10.0.0.7:50002"}}}}
		}, "shop/legacy 10.0.0.7:50002: no sidecar with Isthmus reports", "shop/legacy"},
		"a peer that shares the roots": {func(w *world) { w.north.Shared, w.north.Roots = true, w.reports(w.old).Roots }, "north: does not trust", "north"},
		"a peer with another reason":   {func(w *world) { w.west.Refused, w.west.Roots = identity.RootsTaken, w.reports(w.old).Roots }, "(other-cluster)", "west"},
		"a peer that can't write":      {func(w *world) { w.west.Refused, w.west.Roots = rotation.Store, w.reports(w.old).Roots }, "where it comes from", "west"},
	} {
		w := newWorld(t)
		w.announces(w.old, w.new)
		w.has(w.old, w.new, w.other)
		w.trusted(w.old, w.new)
		w.signs(w.new)
		if p, lines := w.step(t, false); p.Phase != Remove {
			t.Fatalf("without a fault: %s", lines)
		}
		c.edit(w)
		p, lines := w.step(t, false)
		if p.Phase != Trust || p.Announce != "" || len(p.Waiting) != 1 || !strings.Contains(lines, c.part) {
			t.Errorf("%s: no %q in\n%s", what, c.part, lines)
		}
		if p, lines := w.step(t, false, c.assume); c.assume != "" && p.Phase != Remove {
			t.Errorf("%s, and %s is assumed:\n%s", what, c.assume, lines)
		}
		if p, lines := w.step(t, false, "east"); p.Phase == Remove {
			t.Errorf("%s: one's own cluster can be assumed:\n%s", what, lines)
		}
	}
}

// Until the old root is dropped, all can be undone.
func TestTheWayBack(t *testing.T) {
	w := newWorld(t)
	w.wants(t, true, Done, 0) // nothing was done
	w.announces(w.old, w.new)
	w.has(w.old, w.new, w.other)
	w.trusted(w.old, w.new)
	if p := w.wants(t, true, Remove, 0); p.Announce != text([]*x509.Certificate{w.old}) {
		t.Error("another root stays than the old one")
	}
	w.signs(w.new)
	w.wants(t, true, Issue, 4, FixIssuer)
	w.signs(w.old)
	w.wants(t, true, Remove, 0)
	w.announces(w.old)
	w.wants(t, true, Follow, 2, "still trusts "+short(names([]*x509.Certificate{w.new})))
	w.trusted(w.old)
	if p := w.wants(t, true, Done, 0); !slices.Equal(names(p.Orphans), names([]*x509.Certificate{w.new})) {
		t.Errorf("of no cluster any more: %v", names(p.Orphans))
	}
}

// Whoever began with a wrong file, and goes back with another, is told which root is announced.
func TestTheWayBackFromAnotherRoot(t *testing.T) {
	w := newWorld(t)
	w.announces(w.old, w.other)
	w.trusted(w.old, w.other)
	w.wants(t, true, Follow, 1, "east: the root of --to is not announced, and "+short(names([]*x509.Certificate{w.other}))+" is", "--back")
}

// Replicas that have not read the same object are no ground to go on.
func TestReplicasThatDiffer(t *testing.T) {
	w := newWorld(t)
	w.announces(w.old, w.new)
	w.seen.Messages[2] = proto.CloneOf(w.seen.Messages[2])
	w.seen.Messages[2].Announced = text([]*x509.Certificate{w.old})
	if _, err := Next(w.seen, w.new, false, nil); err == nil || !strings.Contains(err.Error(), "replica b has not read") {
		t.Error(err)
	}
}

// The trust anchors that the command prints lack none that sidecars have, and have none of a cluster
// that they don't trust.
func TestAnchorsLoseNoCluster(t *testing.T) {
	w := newWorld(t)
	for _, m := range w.seen.Messages {
		m.Roots = text([]*x509.Certificate{w.old}) // as a service has them that reads its own alone
	}
	p, _ := w.step(t, false)
	if p.Anchors != text([]*x509.Certificate{w.old, w.new, w.other}) {
		t.Errorf("%d trust anchors; want the old and the new root, and west's, which sidecars have", len(identity.RootsIn(p.Anchors)))
	}
	for _, s := range w.seen.Messages[1].Sidecars {
		s.Sidecar.TrustAnchors = names([]*x509.Certificate{w.old})
	}
	if p, _ := w.step(t, false); p.Anchors != text([]*x509.Certificate{w.old, w.new}) {
		t.Errorf("%d trust anchors; want the old and the new root: no sidecar trusts west", len(identity.RootsIn(p.Anchors)))
	}
}
