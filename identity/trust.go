package identity

import (
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Bounds of the roots in one Cluster object.
const (
	maxPeerRoots     = 64
	maxPeerRootsSize = 256 << 10 // bytes of PEM
)

// trust is what the certificate of one cluster's resolver service is checked against. It is
// immutable.
type trust struct {
	cluster string
	app     catalog.App   // that the service must be
	spec    catalog.Trust // from the Cluster object
	domain  string        // required trust domain; empty: any
	roots   roots         // empty: this process' own
	err     error         // why no certificate is accepted
}

// newTrust never fails: an unusable spec gives a trust that accepts no certificate.
func newTrust(namespace, cluster string, said catalog.Trust) *trust {
	t := &trust{cluster: cluster, app: ServiceApp(namespace, cluster), spec: said}
	if said.Domain != "" {
		td, err := spiffeid.TrustDomainFromString(strings.ToLower(said.Domain))
		if err != nil {
			t.err = fmt.Errorf("spec.trust.domain %.64q of Cluster %s: %w; write the trust domain of its service's certificate", said.Domain, cluster, err)
			return t
		}
		t.domain = td.Name()
	}
	if strings.TrimSpace(said.Roots) != "" {
		if t.roots, t.err = parseRoots(said.Roots); t.err != nil {
			t.err = fmt.Errorf("spec.trust.roots of Cluster %s: %w; write its roots, the ca.crt of its Sentry, in PEM", cluster, t.err)
		}
	}
	return t
}

func parseRoots(text string) (roots, error) {
	if len(text) > maxPeerRootsSize {
		return nil, fmt.Errorf("%d bytes; at most %d are read", len(text), maxPeerRootsSize)
	}
	certs, err := parseCertificates([]byte(text))
	if err != nil {
		return nil, err
	}
	if len(certs) > maxPeerRoots {
		return nil, fmt.Errorf("%d certificates; at most %d are taken", len(certs), maxPeerRoots)
	}
	for _, c := range certs {
		if c.Version >= 3 && !c.IsCA { // older versions do not tell
			return nil, fmt.Errorf("%s is the certificate of no authority", describe(c))
		}
	}
	return certs, nil
}

// verify checks that a chain, presented at a time, is that of the cluster's resolver service. Own
// roots count only if the cluster has none. Otherwise this cluster's authority could vouch for
// one that has its own.
func (t *trust) verify(chain []*x509.Certificate, at time.Time, own roots, use x509.ExtKeyUsage) (ID, error) {
	if t.err != nil {
		return ID{}, fmt.Errorf("identity: no certificate is accepted for cluster %s: %w", t.cluster, t.err)
	}
	if len(chain) == 0 {
		return ID{}, fmt.Errorf("identity: cluster %s: no certificate was shown", t.cluster)
	}
	id, err := idOf(chain[0])
	if err != nil {
		return ID{}, fmt.Errorf("identity: cluster %s: %w", t.cluster, err)
	}
	if id.App != t.app {
		return ID{}, fmt.Errorf("identity: cluster %s: its gateway leads to %s, not to %s; correct metadata.name or spec.gateways of Cluster %s",
			t.cluster, id, t.wanted(), t.cluster)
	}
	if t.domain != "" && id.TrustDomain != t.domain {
		return ID{}, fmt.Errorf("identity: cluster %s: its resolver service is %s, not %s; correct Cluster %s, spec.trust.domain",
			t.cluster, id, t.wanted(), t.cluster)
	}
	tried := t.roots
	if len(tried) == 0 {
		tried = own
	}
	if _, err := verifyChain(chain, tried, at, use); err != nil {
		return ID{}, t.explain(id, tried, err)
	}
	return id, nil
}

// explain adds the roots that were tried, and what to do.
func (t *trust) explain(id ID, tried roots, err error) error {
	whose := "named in spec.trust.roots"
	if len(t.roots) == 0 {
		whose = "of this cluster, since spec.trust.roots names none"
	}
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &unknown) {
		return fmt.Errorf("identity: cluster %s: certificate of %s: %w", t.cluster, id, err)
	}
	return fmt.Errorf("identity: cluster %s: certificate of %s is signed by none of the roots that count for it, those %s (%s); "+
		"add %[1]s's root to Cluster %[1]s, spec.trust.roots", t.cluster, id, whose, tried)
}

// wanted is the required identity, for people.
func (t *trust) wanted() string {
	if t.domain == "" {
		return ID{TrustDomain: "(any trust domain)", App: t.app}.String()
	}
	return ID{TrustDomain: t.domain, App: t.app}.String()
}

// maxNamed bounds the roots in an error.
const maxNamed = 8

// String lists the roots, for errors.
func (r roots) String() string {
	names := make([]string, 0, len(r))
	for i, c := range r {
		if i == maxNamed {
			names = append(names, fmt.Sprintf("and %d more", len(r)-i))
			break
		}
		names = append(names, describe(c))
	}
	return strings.Join(names, ", ")
}

// describe names a root so that a person can find it.
func describe(c *x509.Certificate) string {
	return fmt.Sprintf("%.128s, SHA-256 %.16s…", cmp.Or(printable(c.Subject.String()), "no name"), Fingerprint(c))
}

// Fingerprints are the SHA-256 of each certificate in PEM; none if it can't be read.
func Fingerprints(text []byte) (all [][]byte) {
	certs, err := parseCertificates(text)
	if err != nil {
		return nil
	}
	for _, c := range certs {
		sum := sha256.Sum256(c.Raw)
		all = append(all, sum[:])
	}
	return all
}

// Fingerprint is the SHA-256 of a certificate, in hexadecimal.
func Fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// idOf returns the identity in an unverified certificate.
func idOf(leaf *x509.Certificate) (ID, error) {
	if len(leaf.URIs) != 1 {
		return ID{}, fmt.Errorf("certificate has %d URI SANs; want one, spiffe://<trust domain>/ns/<namespace>/<app-id>", len(leaf.URIs))
	}
	return fromURI(leaf.URIs[0])
}
