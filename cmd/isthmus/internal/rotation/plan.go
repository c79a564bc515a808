// Package rotation decides how far the rotation of a root has come, by what services show, and what
// is next. It keeps nothing: each plan is made anew.
package rotation

import (
	"cmp"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/show"
	"github.com/isthmus-mesh/isthmus/resolver-service/membership/rotation"
)

// Phase is how far a rotation has come.
type Phase string

// The phases, in their order.
const (
	Add    Phase = "add"    // peers are to be told of the new root
	Trust  Phase = "trust"  // until everyone trusts both
	Issue  Phase = "issue"  // until every certificate is signed by the new root; going back, by the old one
	Remove Phase = "remove" // peers are to be told that the other root has gone
	Follow Phase = "follow" // until all peers have heard that
	Done   Phase = "done"
)

// Seen is what services show.
type Seen struct {
	Messages []*v1alpha1.ShowRotationResponse
	Apps     []*v1alpha1.AppState // to find instances without a sidecar that reports
}

// Waiting is somebody whom a rotation waits for.
type Waiting struct {
	Cluster string
	App     string // namespace/app-id; empty for the resolver service
	Sidecar string // its address, or the replica's name
	Why     string
	Fix     string // what its operator does; empty: it comes by itself
}

// Plan is how far a rotation has come, and what is next.
type Plan struct {
	Cluster  string
	Phase    Phase
	Back     bool
	New      *x509.Certificate
	Old      []*x509.Certificate // those that are announced beside it
	Waiting  []Waiting
	Announce string              // the roots, in PEM, that peers are to be told of now; empty: none
	Anchors  string              // the trust anchors that this cluster's Dapr is to have, in PEM
	Orphans  []*x509.Certificate // trust anchors of this cluster that no cluster has any more
	Sentry   string              // the namespace of Dapr's control plane
	// Until is when the last sidecar has renewed its certificate of the other issuer: until then that
	// root stays among the anchors. Zero: it is not known.
	Until time.Time
}

// Next decides what is next on the way to a root, or back from it. Clusters and apps that are
// assumed are not waited for.
func Next(seen *Seen, to *x509.Certificate, back bool, assumed []string) (*Plan, error) {
	v, err := newView(seen)
	if err != nil {
		return nil, err
	}
	v.assumed = assumed
	p := &Plan{Cluster: v.cluster, Back: back, New: to, Sentry: v.sentry}
	name := identity.Fingerprint(to)
	announced := identity.RootsIn(v.announced)
	if len(announced) == 0 {
		announced = v.signing()
	}
	p.Old = slices.DeleteFunc(slices.Clone(announced), to.Equal)
	isNew := len(p.Old) < len(announced)
	switch {
	case len(p.Old) == 0 && back:
		return nil, errors.New("the old root is not announced any more, so there is no way back: rotate to it, with --to and its file")
	case len(p.Old) == 0:
		v.follow(p, []string{name})
	case !isNew && back:
		v.follow(p, names(p.Old))
		v.another(p)
	case !isNew:
		p.Phase, p.Announce = Add, text(append(slices.Clone(p.Old), to))
	case back:
		p.Phase, p.Waiting = Issue, v.unsigned(names(p.Old))
	default:
		v.wayOn(p)
	}
	if p.Phase == Issue && len(p.Waiting) == 0 {
		if p.Phase, p.Announce = Remove, text([]*x509.Certificate{to}); back {
			p.Announce = text(p.Old)
		}
	}
	if p.Anchors == "" {
		p.Anchors = v.anchors(append(slices.Clone(p.Old), to)...)
	}
	return p, nil
}

// wayOn is what to wait for while both roots are announced.
func (v *view) wayOn(p *Plan) {
	both := names(append(slices.Clone(p.Old), p.New))
	p.Phase, p.Waiting = Trust, append(v.untrusting(both), v.peers(both, false)...)
	if len(p.Waiting) == 0 {
		p.Phase, p.Waiting = Issue, v.unsigned([]string{identity.Fingerprint(p.New)})
	}
}

// follow is what to wait for once peers are told the roots that stay.
func (v *view) follow(p *Plan, stay []string) {
	p.Phase, p.Waiting = Follow, v.peers(stay, true)
	p.Anchors, p.Until = v.anchors(), v.renewed(stay)
	for _, root := range identity.RootsIn(p.Anchors) {
		if name := identity.Fingerprint(root); !slices.Contains(stay, name) && v.orphaned(name) {
			p.Orphans = append(p.Orphans, root)
		}
	}
	if len(p.Waiting) == 0 {
		p.Phase = Done
	}
}

// another says that the way back leads from another root: one is announced that signs nothing here.
func (v *view) another(p *Plan) {
	if idle := without(names(p.Old), names(v.signing())); len(idle) > 0 && len(idle) < len(p.Old) {
		p.Phase = Follow
		p.Waiting = append(p.Waiting, Waiting{v.cluster, "", "", "the root of --to is not announced, and " + short(idle) + " is, which signs nothing here", "give --back with that one's file in --to"})
	}
}

// view is what replicas show, together.
type view struct {
	cluster, sentry, announced string
	replicas                   []*v1alpha1.ShowRotationResponse
	sidecars                   []*v1alpha1.CertifiedSidecar
	apps                       []*v1alpha1.AppState
	missing                    []*v1alpha1.MissingReplica
	peersOf                    map[string][]*v1alpha1.PeerRotation
	assumed                    []string // clusters and apps that are not waited for
}

func newView(seen *Seen) (*view, error) {
	v := &view{apps: seen.Apps, peersOf: map[string][]*v1alpha1.PeerRotation{}}
	for _, m := range seen.Messages {
		v.sidecars, v.missing = append(v.sidecars, m.GetSidecars()...), append(v.missing, m.GetMissing()...)
		if m.GetCluster() == "" {
			continue
		}
		v.replicas = append(v.replicas, m)
		v.cluster, v.sentry = m.GetCluster(), cmp.Or(m.GetSentryNamespace(), v.sentry)
		for _, p := range m.GetPeers() {
			v.peersOf[p.GetCluster()] = append(v.peersOf[p.GetCluster()], p)
		}
	}
	if len(v.replicas) == 0 {
		return nil, errors.New("the service shows no roots; see isthmus status")
	}
	v.announced = v.replicas[0].GetAnnounced()
	for _, r := range v.replicas[1:] {
		if r.GetAnnounced() != v.announced {
			return nil, fmt.Errorf("replica %s has not read the Cluster object of %s yet; see isthmus status", r.GetReplica(), v.cluster)
		}
	}
	return v, nil
}

// signing are the roots that certificates of this cluster's services chain to.
func (v *view) signing() (all []*x509.Certificate) {
	for _, r := range v.replicas {
		for _, root := range identity.RootsIn(r.GetRoots()) {
			if slices.Contains(r.GetSigning(), identity.Fingerprint(root)) && !slices.ContainsFunc(all, root.Equal) {
				all = append(all, root)
			}
		}
	}
	return all
}

// anchors are this cluster's trust anchors with more roots. Its service may not have those of other
// clusters that sidecars have, which are not to be lost.
func (v *view) anchors(more ...*x509.Certificate) string {
	known := append(identity.RootsIn(v.replicas[0].GetRoots()), more...)
	for _, cluster := range slices.Sorted(maps.Keys(v.peersOf)) {
		for _, root := range identity.RootsIn(v.peersOf[cluster][0].GetRoots()) {
			if name := identity.Fingerprint(root); slices.ContainsFunc(v.sidecars, func(s *v1alpha1.CertifiedSidecar) bool {
				return slices.Contains(s.GetSidecar().GetTrustAnchors(), name)
			}) {
				known = append(known, root)
			}
		}
	}
	var all []*x509.Certificate
	for _, root := range known {
		if !slices.ContainsFunc(all, root.Equal) {
			all = append(all, root)
		}
	}
	return text(all)
}

// orphaned tells whether a root is neither announced nor signs, and no Cluster object names it.
func (v *view) orphaned(root string) bool {
	for _, r := range v.replicas {
		if slices.Contains(r.GetSigning(), root) {
			return false
		}
	}
	for _, all := range v.peersOf {
		for _, p := range all {
			if slices.Contains(names(identity.RootsIn(p.GetRoots())), root) {
				return false
			}
		}
	}
	return !slices.Contains(names(identity.RootsIn(v.announced)), root)
}

// everyone is each replica and sidecar of this cluster, and a place for what is wrong with it.
func (v *view) everyone(replica func(*v1alpha1.ShowRotationResponse) (why, fix string), sidecar func(*v1alpha1.CertifiedSidecar) (why, fix string)) (all []Waiting) {
	for _, m := range v.missing {
		all = append(all, Waiting{v.cluster, "", cmp.Or(m.GetAddress(), "another replica"), "does not answer: " + m.GetWhy(), "see isthmus status"})
	}
	for _, r := range v.replicas {
		if why, fix := replica(r); why != "" {
			all = append(all, Waiting{v.cluster, "", r.GetReplica(), why, fix})
		}
	}
	for _, s := range v.sidecars {
		if s.GetSidecar().GetPlainText() || s.GetSidecar().GetAddress() == "" && len(s.GetSidecar().GetTrustAnchors()) == 0 {
			continue // its calls are not encrypted, or it is no sidecar
		}
		if why, fix := sidecar(s); why != "" && !slices.Contains(v.assumed, show.Name(s.GetSidecar().GetApp())) {
			all = append(all, Waiting{v.cluster, show.Name(s.GetSidecar().GetApp()), cmp.Or(s.GetSidecar().GetAddress(), s.GetSidecar().GetSource()), why, fix})
		}
	}
	return all
}

// The cures that Isthmus can't do itself.
const (
	FixAnchors = "give Dapr's Sentry both roots"
	FixRestart = "restart it"
	FixIssuer  = "change Sentry's issuer"
)

// untrusting is who of this cluster lacks one of the roots.
func (v *view) untrusting(roots []string) []Waiting {
	all := v.everyone(func(r *v1alpha1.ShowRotationResponse) (why, fix string) {
		if lacks := without(roots, names(identity.RootsIn(r.GetRoots()))); len(lacks) > 0 {
			return "lacks " + short(lacks) + " among its trust anchors", FixAnchors
		}
		return "", ""
	}, func(s *v1alpha1.CertifiedSidecar) (why, fix string) {
		switch lacks := without(roots, s.GetSidecar().GetTrustAnchors()); {
		case len(s.GetSidecar().GetTrustAnchors()) == 0:
			return "does not say which roots it trusts", FixRestart + " with a daprd with Isthmus of this release"
		case len(lacks) > 0:
			return "lacks " + short(lacks) + " in DAPR_TRUST_ANCHORS", FixRestart
		}
		return "", ""
	})
	return append(all, v.unreported()...)
}

// unreported is instances that have no sidecar which reports.
func (v *view) unreported() (all []Waiting) {
	reports := map[string]bool{}
	for _, s := range v.sidecars {
		reports[s.GetSidecar().GetAddress()] = true
	}
	for _, a := range v.apps {
		for _, i := range a.GetInstances() {
			if !reports[i.GetAddress()] && i.GetTakenBy() == nil && !slices.Contains(v.assumed, show.Name(a.GetApp())) {
				reports[i.GetAddress()] = true
				all = append(all, Waiting{v.cluster, show.Name(a.GetApp()), i.GetAddress(), "no sidecar with Isthmus reports from there, so its roots are not known", "see to it yourself, and give --assume " + show.Name(a.GetApp())})
			}
		}
	}
	return all
}

// unsigned is whose certificate chains to none of the roots.
func (v *view) unsigned(roots []string) []Waiting {
	signed := func(by []string) bool {
		return slices.ContainsFunc(by, func(root string) bool { return slices.Contains(roots, root) })
	}
	return v.everyone(func(r *v1alpha1.ShowRotationResponse) (why, fix string) {
		if !signed(r.GetSigning()) {
			return "its certificate is signed by " + short(r.GetSigning()), FixIssuer
		}
		return "", ""
	}, func(s *v1alpha1.CertifiedSidecar) (why, fix string) {
		if s.GetFromUnixMs() == 0 || signed(s.GetSignedBy()) {
			return "", ""
		}
		from, until := time.UnixMilli(s.GetFromUnixMs()), time.UnixMilli(s.GetUntilUnixMs())
		return fmt.Sprintf("its certificate is signed by %s; it renews it about %s", short(s.GetSignedBy()), from.Add(until.Sub(from)/2).UTC().Format(time.TimeOnly)), FixIssuer
	})
}

// peers is which peers don't have the roots that stay, or have sidecars that lack one. If it is to be
// exact, they have no other root.
func (v *view) peers(stay []string, exact bool) (all []Waiting) {
	for _, cluster := range slices.Sorted(maps.Keys(v.peersOf)) {
		if slices.Contains(v.assumed, cluster) {
			continue
		}
		var some []Waiting
		heard := false
		for _, said := range v.peersOf[cluster] {
			for _, r := range said.GetReports() {
				heard, some = true, append(some, v.peer(cluster, r, stay, exact)...)
			}
		}
		if !heard {
			some = []Waiting{{cluster, "", "", "is not heard, or is of an older release; waiting for it",
				"see isthmus status; if it has gone for good: isthmus link unlink " + cluster + "; if its operator has seen to it: --assume " + cluster}}
		}
		all = append(all, compact(some)...)
	}
	return all
}

func (v *view) peer(cluster string, r *v1alpha1.TrustReport, stay []string, exact bool) (all []Waiting) {
	has := make([]string, len(r.GetRoots()))
	for i, sum := range r.GetRoots() {
		has[i] = hex.EncodeToString(sum)
	}
	why := ""
	if lacks, more := without(stay, has), without(has, stay); len(lacks) > 0 {
		why = "does not trust " + short(lacks)
	} else if exact && !r.GetShared() && len(more) > 0 {
		why = "still trusts " + short(more)
	}
	if why != "" {
		reason, fix := v.refusal(r)
		return []Waiting{{cluster, "", "", why + reason, fix}}
	}
	for _, a := range r.GetLacking() {
		app := show.Name(a.GetApp())
		w := Waiting{Cluster: cluster, App: app, Fix: "its operator runs: isthmus link trust " + v.cluster}
		whose := ""
		if app == "" {
			whose = ", of apps that call this cluster and are not exported to it"
		}
		if w.Why = fmt.Sprintf("sidecars that lack a root: %d%s", a.GetSidecars(), whose); a.GetSidecars() > 0 {
			all = append(all, w)
		}
		if w.Why = fmt.Sprintf("sidecars that do not say which roots they trust: %d%s", a.GetSilent(), whose); a.GetSilent() > 0 {
			all = append(all, w)
		}
	}
	return all
}

// refusal is why a peer has not taken the roots, and what its operator does.
func (v *view) refusal(r *v1alpha1.TrustReport) (why, fix string) {
	accept := "its operator runs: isthmus trust accept " + v.cluster
	switch {
	case r.GetShared():
		return ", which it shares with this cluster", "its operator changes the ca.crt of Dapr's Sentry there, as here"
	case r.GetRefused() == rotation.NoConsent || !r.GetAccepts():
		return ": it has not consented to changes by this cluster", accept
	case r.GetRefused() == identity.RootsUnproven:
		return ": it has seen no certificate by a root that stays yet, and connects anew", ""
	case r.GetRefused() == rotation.Often:
		return ": there were too many changes lately, and it takes one each minute", ""
	case r.GetRefused() == rotation.Store:
		return ": it can't write its Cluster object", "its operator changes spec.trust.roots of Cluster " + v.cluster + " where it comes from"
	case r.GetRefused() != "":
		return " (" + r.GetRefused() + ")", accept + "; isthmus events there says why"
	}
	return "", ""
}

// renewed is when the last sidecar has renewed a certificate that is not signed by the roots that
// stay. Dapr renews at half of a certificate's life. The first one by a root that stays was signed
// after the issuer had changed.
func (v *view) renewed(stay []string) (until time.Time) {
	var first, longest time.Duration
	for _, s := range v.sidecars {
		from, life := time.UnixMilli(s.GetFromUnixMs()), time.Duration(s.GetUntilUnixMs()-s.GetFromUnixMs())*time.Millisecond
		if longest = max(longest, life); len(without(stay, s.GetSignedBy())) < len(stay) {
			if since := time.Duration(from.UnixNano()); first == 0 || since < first {
				first = since
			}
		}
	}
	if first == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(first+longest*11/20))
}

// compact leaves out what several replicas say alike.
func compact(all []Waiting) []Waiting {
	var some []Waiting
	for _, w := range all {
		if !slices.Contains(some, w) {
			some = append(some, w)
		}
	}
	return some
}

func text(roots []*x509.Certificate) string { return string(identity.EncodePEM(roots)) }

func names(roots []*x509.Certificate) (all []string) {
	for _, c := range roots {
		all = append(all, identity.Fingerprint(c))
	}
	return all
}

// without are those of some names that are not among others.
func without(some, others []string) []string {
	return slices.DeleteFunc(slices.Clone(some), func(s string) bool { return slices.Contains(others, s) })
}

// short is fingerprints as people compare them.
func short(all []string) (line string) {
	for _, name := range all {
		line += fmt.Sprintf(" %.16s…", name)
	}
	if line == "" {
		return "none of the roots here"
	}
	return line[1:]
}
