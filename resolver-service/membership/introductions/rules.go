package introductions

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/identity"
)

// Verdicts on a cluster that an introducer tells of.
type verdict uint8

const (
	taken       verdict = iota // it counts
	notAccepted                // the rule for the introducer leaves it out
	outranked                  // it has an object here, or is this cluster, or another introducer says the same
	refused                    // it can't be used
	differing                  // another introducer says something else, and comes first
)

// decide is the Cluster that counts under a name by introductions; nil for none. Of several
// introducers it is the one whose name comes first, in every replica and in any order of events.
func (h *Heard) decide(name string) *catalog.Cluster {
	for _, by := range h.order {
		i := h.by[by]
		in := i.heard[name]
		if in == nil {
			continue
		}
		if v, _ := h.judge(i, in); v == taken {
			return h.clusterOf(i, in)
		}
	}
	return nil
}

// judge applies the rules of this cluster to one introduction, without regard to other introducers.
func (h *Heard) judge(i *introducer, in *introduced) (verdict, error) {
	name, rule := in.name(), i.object.Introduces.ClusterSelector
	if in.err != nil {
		rule.Labels = nil // nobody knows them
	}
	switch {
	case name == h.cfg.Cluster:
		return outranked, nil
	case !rule.Selects(name, in.said.GetObject().GetSpec().GetLabels()):
		return notAccepted, nil
	case h.written[name] != nil:
		return outranked, nil
	case in.err != nil:
		return refused, in.err
	}
	if err := cmp.Or(h.checkTrust(i.object.Introduces, in.object), h.checkGateways(in.object)); err != nil {
		return refused, err
	}
	return taken, nil
}

// checkTrust refuses a cluster that could speak for this one, or for one with an object here.
func (h *Heard) checkTrust(rule *catalog.Introduces, c *catalog.Cluster) error {
	own, known := h.cfg.Domains()
	if !known {
		return errors.New("this cluster's own trust domain is not known yet, since its service has no certificate")
	}
	if c.Trust.Roots != "" && c.Trust.Domain == "" {
		return errors.New("brings roots and names no trust domain; write spec.trust.domain into its Cluster object at the introducer")
	}
	same, shared := h.ownRoots(c)
	for _, d := range trustDomains(c) {
		switch {
		case slices.ContainsFunc(own, func(own string) bool { return identity.IsGuestDomain(own, d) }):
			return fmt.Errorf("its trust domain %s is one of a guest of this cluster; give it another one", d)
		case slices.Contains(own, d) && c.Trust.Roots != "" && !same:
			return fmt.Errorf("brings roots for trust domain %s, which is this cluster's own; give it another trust domain, or write a Cluster object for it here", d)
		case slices.Contains(own, d):
			continue // by this cluster's own roots
		case shared: // it would no longer vouch for sidecars and operators here
			return fmt.Errorf("brings the root of this cluster's own authority for trust domain %s; let its Cluster object at the introducer name the roots of that cluster alone", d)
		case !rule.TrustsDomain(d):
			return fmt.Errorf("its trust domain %s is none of spec.introduces.trustDomains of its introducer's Cluster object here; add it there, if the introducer may bring it", d)
		}
		for _, other := range h.domains[d] {
			if !hasRoots(h.written[other], c) {
				return fmt.Errorf("brings other roots for trust domain %s than Cluster %s, which has an object here; add them there first, or write a Cluster object for this one, too", d, other)
			}
		}
	}
	return nil
}

// ownRoots tells whether this cluster has all of a cluster's roots, and whether any is of its own
// authority: its certificate chains to it, or its own Cluster object announces it. Other roots that it has
// came from other clusters.
func (h *Heard) ownRoots(c *catalog.Cluster) (all, some bool) {
	if c.Trust.Roots == "" {
		return false, false
	}
	anchors, err := h.cfg.Anchors()
	if err != nil {
		return false, false // its handshakes fail, too
	}
	authority, _, err := h.cfg.Authority()
	if err != nil {
		authority = anchors
	}
	announced := rootsOf(h.written[h.cfg.Cluster])
	all = true
	for block := range blocks(c.Trust.Roots) {
		all = all && strings.Contains(string(anchors), block)
		some = some || strings.Contains(string(authority), block) || strings.Contains(announced, block)
	}
	return all, some
}

// blocks are the certificates of roots that the validator wrote.
func blocks(roots string) iter.Seq[string] {
	const end = "-----END CERTIFICATE-----\n"
	return strings.SplitAfterSeq(strings.TrimSuffix(roots, "\n"), end)
}

// hasRoots tells whether a cluster has all roots of another one.
func hasRoots(c, of *catalog.Cluster) bool {
	if c.Trust.Roots == "" || of.Trust.Roots == "" {
		return c.Trust.Roots == of.Trust.Roots
	}
	for block := range blocks(of.Trust.Roots) {
		if !strings.Contains(c.Trust.Roots, block) {
			return false
		}
	}
	return true
}

// checkGateways refuses gateways that can't be another cluster's. Names are looked up when they are used.
func (h *Heard) checkGateways(c *catalog.Cluster) error {
	check := func(address string) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return nil
		}
		if err := h.cfg.Reachable(at); err != nil {
			return fmt.Errorf("its gateway %s can't be used: %w", address, err)
		}
		return nil
	}
	for _, address := range c.Gateways {
		if err := check(address); err != nil {
			return err
		}
	}
	for _, g := range c.AppGateways {
		if err := check(g.Address); err != nil {
			return err
		}
	}
	return nil
}

// clusterOf is an introduced cluster as an object. Its lease and its ramp are those of the introducer here.
// With this cluster's own trust domain or without a word on trust it is held to this cluster's own roots and trust domain.
func (h *Heard) clusterOf(i *introducer, in *introduced) *catalog.Cluster {
	c := *in.object
	c.IntroducedBy, c.Source = i.object.Name, catalog.Source{From: "the introduction by " + i.object.Name}
	c.StaleAfter, c.RampUp = i.object.StaleAfter, i.object.RampUp
	if own, _ := h.cfg.Domains(); c.Trust.Domain == "" && len(own) > 0 {
		c.Trust.Domain = own[0]
	}
	if same, _ := h.ownRoots(&c); same {
		c.Trust.Roots = "" // those of this cluster, also of its next ones
	}
	return &c
}

// trustDomains are those that a cluster has; none without one.
func trustDomains(c *catalog.Cluster) (all []string) {
	if c == nil {
		return nil
	}
	for _, d := range []string{c.Trust.Domain, c.Trust.AppDomain} {
		if d = strings.ToLower(d); d != "" && !slices.Contains(all, d) {
			all = append(all, d)
		}
	}
	return all
}

// storedOf is a derived object with a revision that is the same for the same object.
func storedOf(c *catalog.Cluster) configstore.Stored {
	sum := sha256.Sum256(append(api.EncodeJSON(c), c.IntroducedBy...))
	return configstore.Stored{Object: c, Revision: hex.EncodeToString(sum[:8])}
}

// brief is an error that an introducer has caused, for status.
func brief(err error) error {
	return errors.New(catalog.Printable(catalog.Clip(err.Error(), 300)))
}

// Absent says why a cluster does not count that some introducer tells of. It is empty if it does, or
// if none tells of it.
func (h *Heard) Absent(name string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.derived[name] != nil {
		return ""
	}
	for _, by := range h.order {
		i := h.by[by]
		in := i.heard[name]
		switch {
		case i.over[name]:
			return fmt.Sprintf("%s introduces it beside more clusters than are taken from one; have it introduce fewer", by)
		case in == nil:
			continue
		}
		switch v, err := h.judge(i, in); v {
		case notAccepted:
			return fmt.Sprintf("%s introduces it, which spec.introduces of Cluster %s does not select; add its name there", by, by)
		case refused:
			return fmt.Sprintf("%s introduces it, which is refused: %v", by, err)
		}
	}
	return ""
}

// mostProblems is how many problems of one introducer a status names.
const mostProblems = 100

// AddStatus adds to the states of peers their introductions, and their introducer.
func (h *Heard) AddStatus(peers []*v1alpha1.PeerStatus) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range peers {
		if c := h.derived[p.GetCluster()]; c != nil {
			p.IntroducedBy = c.IntroducedBy
		}
		if i := h.by[p.GetCluster()]; i != nil {
			p.Introduces = h.status(i)
		}
	}
}

func (h *Heard) status(i *introducer) *v1alpha1.IntroducerStatus {
	w := &v1alpha1.IntroducerStatus{Told: uint32(len(i.heard) + len(i.over)), Over: uint32(len(i.over))}
	for name, in := range i.heard {
		v, err := h.judge(i, in)
		if c := h.derived[name]; v == taken && c != nil && c.IntroducedBy != i.object.Name {
			if v = outranked; !sameWay(c, h.clusterOf(i, in)) {
				v, err = differing, fmt.Errorf("%s introduces it with other gateways or another trust, and comes first by its name; have one of them corrected, or leave it out of spec.introduces of one", c.IntroducedBy)
			}
		}
		switch v {
		case taken:
			w.Taken++
		case notAccepted:
			w.NotAccepted++
		case outranked:
			w.Outranked++
		case refused:
			w.Refused++
		case differing:
			w.Differing++
		}
		if err != nil {
			w.Problems = append(w.Problems, &v1alpha1.IntroductionProblem{Cluster: name, Why: err.Error(), Differs: v == differing})
		}
	}
	slices.SortFunc(w.Problems, func(a, b *v1alpha1.IntroductionProblem) int { return cmp.Compare(a.Cluster, b.Cluster) })
	w.Problems = w.Problems[:min(len(w.Problems), mostProblems)]
	return w
}

// sameWay tells whether two say the same of how a cluster is reached and known.
func sameWay(a, b *catalog.Cluster) bool {
	return slices.Equal(a.Gateways, b.Gateways) && reflect.DeepEqual(a.AppGateways, b.AppGateways) && a.Trust == b.Trust
}
