package show

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/identity"
)

// RotationStep is how far the rotation of a root has come.
type RotationStep struct {
	Phase   string
	Back    bool
	Waiting [][]string // cluster, app, sidecar, why, and what its operator does

	Anchors, Restarts, Issuer bool // what only the operator here can do, and is due

	Command string   // that the user runs
	Kubectl string   // flags of kubectl, with a blank before each
	Sentry  string   // the namespace of Dapr's control plane
	Restart []string // commands that restart workloads; none where they are not known
	Orphans []string // fingerprints of trust anchors that no cluster has any more
	Until   time.Time
}

// titles are the phases for people, on the way and back.
var titles = map[string][2]string{
	"add":    {"step 1 of 5: peers are to be told of the new root", ""},
	"trust":  {"step 2 of 5: waiting until everyone trusts both roots", ""},
	"issue":  {"step 3 of 5: waiting until every certificate is signed by the new root", "going back: waiting until every certificate is signed by the old root again"},
	"remove": {"step 4 of 5: everyone uses the new root, and the old one can be dropped", "going back: everyone uses the old root, and the new one can be withdrawn"},
	"follow": {"step 5 of 5: waiting until all peers have dropped the old root", "going back: waiting until all peers have dropped the new root"},
	"done":   {"done: all peers trust the new root alone", "done: all peers trust the old root alone, as before"},
}

// Write writes it for people.
func (s *RotationStep) Write(w io.Writer) error {
	title := titles[s.Phase][0]
	if s.Back {
		title = cmp.Or(titles[s.Phase][1], title)
	}
	Say(w, "%s\n", title)
	if len(s.Waiting) == 0 {
		return nil
	}
	return rows(w, []string{"CLUSTER", "APP", "SIDECAR", "WHY", "WHAT TO DO"}, s.Waiting, "SIDECAR")
}

// Advise says what Isthmus can't do itself.
func (s *RotationStep) Advise(w io.Writer) {
	manifest := s.Command + " --manifest | kubectl apply" + s.Kubectl + " --server-side --force-conflicts -f -"
	if s.Anchors {
		Say(w, `
Give Dapr's Sentry both roots. In Kubernetes, which changes the ConfigMap before the Secret:
  %s
Elsewhere, write this into ca.crt of the directory that Sentry has its issuer in:
  %s
`, manifest, s.Command+" --anchors")
	}
	if s.Restarts {
		Say(w, `
Restart the sidecars above with both roots, since daprd reads its trust anchors when it starts.
In Kubernetes, two minutes after Sentry has them, since Dapr's injector reads them late:
`)
		for _, line := range s.Restart {
			Say(w, "  %s\n", line)
		}
		if len(s.Restart) == 0 {
			Say(w, "  kubectl rollout restart%s, for the workload of each\n", s.Kubectl)
		}
		Say(w, "Elsewhere, DAPR_TRUST_ANCHORS of each is the text of:\n  %s\n", s.Command+" --anchors")
	}
	if s.Issuer {
		s.adviseIssuer(w)
	}
	if s.Phase == "done" {
		s.adviseEnd(w, manifest)
	}
}

func (s *RotationStep) adviseIssuer(w io.Writer) {
	which := "a new issuer, which the new root has signed"
	if s.Back {
		which = "the issuer of before"
	}
	namespace := s.Sentry
	if namespace == "" || namespace == "default" {
		namespace = defaultControlPlane
	}
	Say(w, `
Give Dapr's Sentry %s. In Kubernetes, by a field manager of its own, so that ca.crt stays:
  kubectl create secret generic dapr-trust-bundle%s -n %s --dry-run=client -o yaml \
    --from-file=issuer.crt --from-file=issuer.key |
    kubectl apply%s --server-side --force-conflicts --field-manager=issuer -f -
Elsewhere, replace issuer.crt and issuer.key in the directory that Sentry has them in. Sentry sees it.
Certificates are renewed at half of their life, so this takes as long.
`, which, s.Kubectl, namespace, s.Kubectl)
}

func (s *RotationStep) adviseEnd(w io.Writer, manifest string) {
	if len(s.Orphans) == 0 {
		return
	}
	when := "once every sidecar has renewed its certificate, at half of its life"
	if !s.Until.IsZero() {
		when = "not before " + s.Until.UTC().Format(time.DateTime) + " UTC, when every sidecar has renewed its certificate"
	}
	Say(w, "\nThese trust anchors of this cluster's Dapr are of no cluster any more:\n")
	without := ""
	for _, root := range s.Orphans {
		Say(w, "  SHA-256 %s\n", root)
		without += fmt.Sprintf(" --without %.16s", root)
	}
	before, after, _ := strings.Cut(manifest, " --manifest")
	Say(w, "Take out the one that was replaced, %s, here and in each linked cluster:\n  %s\nThe other clusters have it in their trust anchors, too.\n", when, before+without+" --manifest"+after)
}

// RootsChange is a change of roots in a line, with a blank before it.
func RootsChange(m *v1alpha1.RootsChange) (line string) {
	for _, root := range m.GetAdded() {
		line += fmt.Sprintf(" added %.16s…", root)
	}
	for _, root := range m.GetRemoved() {
		line += fmt.Sprintf(" removed %.16s…", root)
	}
	return cmp.Or(line, " nothing")
}

// AnnouncedRoots writes which roots a peer announces for itself, and returns the fingerprint of each,
// and whether its Cluster object has others.
func AnnouncedRoots(w io.Writer, m *v1alpha1.PeerRotation, now time.Time) (all []string, news bool, err error) {
	held := identity.RootsIn(m.GetRoots())
	announced := identity.RootsIn(m.GetAnnounced())
	var table [][]string
	line := func(root *x509.Certificate, what string) {
		news = news || what != "stays"
		expires := Expiry(&v1alpha1.TrustStatus{NotAfterUnixMs: root.NotAfter.UnixMilli()}, now)
		table = append(table, []string{what, root.Subject.String(), expires, identity.Fingerprint(root)})
	}
	for _, root := range announced {
		all = append(all, identity.Fingerprint(root))
		what := "added"
		if slices.ContainsFunc(held, root.Equal) {
			what = "stays"
		}
		line(root, what)
	}
	for _, root := range held {
		if !slices.ContainsFunc(announced, root.Equal) {
			line(root, "removed")
		}
	}
	if len(all) == 0 {
		return nil, false, fmt.Errorf("what cluster %s announces are no roots (%s); nothing is to be accepted", m.GetCluster(), m.GetRefused())
	}
	err = rows(w, []string{"CHANGE", "SUBJECT", "EXPIRES", "SHA-256"}, table)
	if !news {
		Say(w, "Cluster %s has these roots already\n", m.GetCluster())
	}
	return all, news, err
}

// WithoutRoots is PEM without the certificates whose SHA-256 begins with one of some texts.
func WithoutRoots(text string, some []string) string {
	return string(identity.EncodePEM(slices.DeleteFunc(identity.RootsIn(text), func(root *x509.Certificate) bool {
		name := identity.Fingerprint(root)
		return slices.ContainsFunc(some, func(s string) bool { return len(s) >= 8 && strings.HasPrefix(name, strings.ToLower(s)) })
	})))
}
