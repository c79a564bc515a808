package identity

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/peer"
)

// maxAnnounced bounds the roots that a cluster announces for itself.
const maxAnnounced = 8

// The words of a [RootsRefusal].
const (
	RootsMalformed = "malformed" // no certificates of authorities in PEM, or something beside them
	RootsTooMany   = "too-many"
	RootsUnsigned  = "unsigned"      // a new one is not signed by its own key
	RootsUntimely  = "untimely"      // a new one does not count now
	RootsTaken     = "other-cluster" // a new one is of another authority
	RootsUnproven  = "unproven"      // the announcer's certificate chains to none that stays
)

// RootsRefusal is why roots are not replaced.
type RootsRefusal struct {
	Word string // one of the constants
	What string
}

// Error says why.
func (r *RootsRefusal) Error() string { return "roots refused (" + r.Word + "): " + r.What }

// Succession is a change of the roots of one cluster.
type Succession struct {
	Old, Next string              // in PEM
	Chain     []*x509.Certificate // the certificate of that cluster's resolver service, which announces it
	Taken     []*x509.Certificate // roots of others
	At        time.Time
}

// RootsSuccession is the result of a [Succession].
type RootsSuccession struct {
	Roots          string   // in PEM
	Added, Removed []string // fingerprints
}

// Check tells whether the roots may be replaced. Each new one proves that its key exists, counts
// now, and has the key of no other authority. The announcer's certificate chains to a root that was
// there before and stays: so a root goes only after another is in use.
func (s *Succession) Check() (*RootsSuccession, error) {
	next, err := parseRoots(s.Next)
	if err != nil {
		return nil, &RootsRefusal{RootsMalformed, err.Error()}
	}
	if len(next) > maxAnnounced {
		return nil, &RootsRefusal{RootsTooMany, fmt.Sprintf("%d roots are announced; at most %d are taken", len(next), maxAnnounced)}
	}
	old, err := parseRoots(s.Old)
	if err != nil {
		return nil, &RootsRefusal{RootsMalformed, "the roots of before: " + err.Error()}
	}
	var done RootsSuccession
	var kept roots
	for _, root := range next {
		if old.has(root) {
			kept = append(kept, root)
			continue
		}
		if err := s.checkNew(root); err != nil {
			return nil, err
		}
		done.Added = append(done.Added, Fingerprint(root))
	}
	if signing, _ := kept.signing(s.Chain, s.At); len(signing) == 0 {
		return nil, &RootsRefusal{RootsUnproven, fmt.Sprintf("the certificate of the resolver service chains to none of the roots that would stay (%s); a root goes only once another one that was there before is in use", kept)}
	}
	for _, root := range old {
		if !next.has(root) {
			done.Removed = append(done.Removed, Fingerprint(root))
		}
	}
	done.Roots = string(next.pem())
	return &done, nil
}

// checkNew checks a root that was not there before.
func (s *Succession) checkNew(root *x509.Certificate) error {
	switch {
	case !root.BasicConstraintsValid || !root.IsCA:
		return &RootsRefusal{RootsMalformed, describe(root) + " is the certificate of no authority"}
	case root.CheckSignatureFrom(root) != nil:
		return &RootsRefusal{RootsUnsigned, describe(root) + " is not signed by its own key"}
	case s.At.Before(root.NotBefore), s.At.After(root.NotAfter):
		return &RootsRefusal{RootsUntimely, fmt.Sprintf("%s counts from %s to %s", describe(root), root.NotBefore.Format(time.RFC3339), root.NotAfter.Format(time.RFC3339))}
	case slices.ContainsFunc(s.Taken, func(c *x509.Certificate) bool {
		return bytes.Equal(c.RawSubjectPublicKeyInfo, root.RawSubjectPublicKeyInfo)
	}):
		return &RootsRefusal{RootsTaken, describe(root) + " has the key of a root of another cluster"}
	}
	return nil
}

// Chain is the verified certificate of the other end of a gRPC call, with those below its root; nil
// for plain text.
func Chain(ctx context.Context) []*x509.Certificate {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, _ := p.AuthInfo.(authInfo)
	return info.State.PeerCertificates
}

// OwnChain is the own certificate with those below its root; nil if there is none.
func (c *credential) OwnChain() []*x509.Certificate {
	if m, ok := c.current.Load(); ok {
		return parseChain(m.cert.Certificate)
	}
	return nil
}

// SignedBy are the fingerprints of those of the own roots that a chain leads to now.
func (c *credential) SignedBy(chain []*x509.Certificate) (all []string) {
	if m, ok := c.current.Load(); ok {
		signing, _ := m.roots.signing(chain, time.Now())
		for _, root := range signing {
			all = append(all, Fingerprint(root))
		}
	}
	return all
}

// RootsIn reads roots in PEM; none if they are unusable.
func RootsIn(text string) []*x509.Certificate {
	all, err := parseRoots(text)
	if err != nil {
		return nil
	}
	return all
}
