package identity

import (
	"cmp"
	"crypto/x509"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Uses of a certificate, as in [Trusted] and "isthmus trust".
const (
	OwnCertificate  = "own certificate"
	OwnRoot         = "own root"
	PeerRoot        = "peer root"
	PeerCertificate = "peer certificate"
	// For outsiders, from files of their own: DNS over TLS, the Consul API, and the console.
	DNSCertificate     = "dns certificate"
	ConsulCertificate  = "consul certificate"
	ConsoleCertificate = "console certificate"
	XDSCertificate     = "xds certificate"
	// ConfiguredFile is a file with a credential that can't be used as it is now; Subject is the
	// key that names it.
	ConfiguredFile = "file"
)

// Renewed tells whether this process presents certificates of a use. Their error is about the
// renewal; the old certificate stays in use.
func Renewed(use string) bool { return use == OwnCertificate || ForOutsiders(use) }

// ForOutsiders tells whether certificates of a use are for clients other than sidecars and peers.
func ForOutsiders(use string) bool {
	return use == DNSCertificate || use == ConsulCertificate || use == XDSCertificate || use == ConsoleCertificate
}

// OwnRoots is the subject of the PeerRoot of a cluster that names no roots.
const OwnRoots = "own roots"

// Trusted describes a certificate that this process presents, trusts, or got from a peer. It
// never has a key.
type Trusted struct {
	Use         string // one of the constants
	Cluster     string // for peers
	Subject     string // the SPIFFE ID, or the distinguished name of a root
	TrustDomain string // of the SPIFFE ID; of a PeerRoot, the required one, if any
	NotBefore   time.Time
	NotAfter    time.Time // zero, like NotBefore and Fingerprint, without a certificate
	Fingerprint string    // SHA-256, in hexadecimal
	Err         error     // why it is unusable
}

// Trusted returns what Own returns, and for each peer, by name, its roots and the certificate
// that it presented last. It is empty when insecure.
func (s *Source) Trusted() []Trusted {
	if s.Insecure() {
		return nil
	}
	return append(s.Own(), s.peers.trusted()...)
}

// Own returns the own certificate and roots. Its cost does not depend on the number of peers.
func (c *credential) Own() (all []Trusted) {
	if m, ok := c.current.Load(); ok {
		own := trusted(OwnCertificate, "", m.cert.Leaf)
		own.NotAfter, own.Err = m.ends.NotAfter, c.Err() // of the renewal
		all = append(all, own)
		for _, root := range m.roots {
			all = append(all, trusted(OwnRoot, "", root))
		}
	}
	return all
}

func (p *peers) trusted() []Trusted {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []Trusted
	for _, cluster := range slices.Sorted(maps.Keys(p.trusts)) {
		t := p.trusts[cluster]
		if len(t.roots) == 0 {
			all = append(all, Trusted{Use: PeerRoot, Cluster: cluster, Subject: t.noRoots(), TrustDomain: t.domain, Err: t.err})
		}
		all = append(all, t.listed()...)
		if seen, ok := p.presented[cluster]; ok {
			c := trusted(PeerCertificate, cluster, seen.leaf)
			c.Err = seen.err
			all = append(all, c)
		}
	}
	return all
}

// PeerRoots returns the SHA-256 of the roots that a peer's Cluster object names, in hexadecimal. It is
// empty when insecure, like Trusted.
func (s *Source) PeerRoots(cluster string) (all []string) {
	if s.Insecure() {
		return nil
	}
	s.peers.mu.Lock()
	defer s.peers.mu.Unlock()
	if t := s.peers.trusts[cluster]; t != nil {
		for _, root := range t.listed() {
			all = append(all, root.Fingerprint)
		}
	}
	return all
}

// RootsOf returns the roots in a Cluster's spec, or none if they are unusable.
func RootsOf(cluster string, said catalog.Trust) []Trusted {
	return newTrust("", cluster, said).listed()
}

func (t *trust) listed() []Trusted {
	var all []Trusted
	for _, root := range t.roots {
		r := trusted(PeerRoot, t.cluster, root)
		r.TrustDomain = t.domain
		all = append(all, r)
	}
	return all
}

// noRoots is the subject of a peer without roots.
func (t *trust) noRoots() string {
	if t.err != nil {
		return ""
	}
	return OwnRoots
}

// ToOutsiders describes a certificate for outsiders. err is why the newest files can't replace
// it.
func ToOutsiders(use string, c *x509.Certificate, err error) Trusted {
	t := trusted(use, "", c)
	if c.Subject.String() == "" && len(c.DNSNames) > 0 {
		t.Subject = printable(strings.Join(c.DNSNames, ", "))
	}
	t.Err = err
	return t
}

func trusted(use, cluster string, c *x509.Certificate) Trusted {
	t := Trusted{
		Use: use, Cluster: cluster, Subject: c.Subject.String(),
		NotBefore: c.NotBefore, NotAfter: c.NotAfter, Fingerprint: Fingerprint(c),
	}
	if use == OwnCertificate || use == PeerCertificate {
		if id, err := idOf(c); err == nil {
			t.Subject, t.TrustDomain = id.String(), id.TrustDomain
		}
	}
	t.Subject = printable(cmp.Or(t.Subject, "(no name)"))
	return t
}

// maxSubject bounds a name from outside, in bytes.
const maxSubject = 300

// printable makes a name from outside safe for a terminal, and cuts it to maxSubject.
func printable(s string) string {
	return catalog.Clip(catalog.Printable(s), maxSubject)
}

// LacksARoot tells whether a sidecar lacks one of the roots, as far as it reports its anchors.
func LacksARoot(anchors, roots []string) bool {
	return len(anchors) > 0 && slices.ContainsFunc(roots, func(r string) bool { return !slices.Contains(anchors, r) })
}

// LacksRoots tells whether a sidecar trusts none of the roots, as far as it reports its anchors.
func LacksRoots(anchors, roots []string) bool {
	return len(anchors) > 0 && !slices.ContainsFunc(anchors, func(a string) bool { return slices.Contains(roots, a) })
}
