package identity

import (
	"cmp"
	"crypto/x509"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// What a certificate is for, as [Trusted] and "isthmus trust" call it.
const (
	OwnCertificate  = "own certificate"
	OwnRoot         = "own root"
	PeerRoot        = "peer root"
	PeerCertificate = "peer certificate"
	// What outsiders are shown, from files of their own: by DNS over TLS, and by the Consul API.
	DNSCertificate    = "dns certificate"
	ConsulCertificate = "consul certificate"
)

// Renewed tells whether a certificate of a use is one that this process shows, whose error
// is about its renewal: the one before stands.
func Renewed(use string) bool { return use == OwnCertificate || ForOutsiders(use) }

// ForOutsiders tells whether a certificate of a use is shown to others than sidecars and peers.
func ForOutsiders(use string) bool { return use == DNSCertificate || use == ConsulCertificate }

// OwnRoots is the subject of the one PeerRoot of a cluster that names no roots.
const OwnRoots = "own roots"

// Trusted is a certificate that this process shows, or believes in, or was shown by a
// peer. No key is ever in it.
type Trusted struct {
	Use         string // one of the constants
	Cluster     string // of peers
	Subject     string // the SPIFFE ID, or the distinguished name of a root
	TrustDomain string // of the SPIFFE ID; of a PeerRoot, the one that is demanded, if any
	NotBefore   time.Time
	NotAfter    time.Time // zero, as NotBefore and Fingerprint, where there is no certificate
	Fingerprint string    // SHA-256, in hexadecimal
	Err         error     // why it can't be used
}

// Trusted is what Own lists, and of each peer, by name, the roots that count for it and the
// certificate that its resolver service has shown last. It is empty when insecure.
func (s *Source) Trusted() []Trusted {
	if s.Insecure() {
		return nil
	}
	return append(s.Own(), s.peers.trusted()...)
}

// Own lists the own certificate and roots, which takes no longer for many peers.
func (s *Source) Own() (all []Trusted) {
	if m, ok := s.current.Load(); ok {
		own := trusted(OwnCertificate, "", m.cert.Leaf)
		own.Err = s.Err() // of its renewal
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

// RootsOf lists the roots that are named for a cluster; none where they can't be used.
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

// noRoots is what stands in place of roots.
func (t *trust) noRoots() string {
	if t.err != nil {
		return ""
	}
	return OwnRoots
}

// ToOutsiders is a certificate that outsiders are shown. err is why that which the files have
// by now can't take its place.
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

// maxSubject bounds what is told of a name that somebody else wrote, in bytes.
const maxSubject = 300

// printable is a name that somebody else wrote, fit for a terminal.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
	if len(s) > maxSubject {
		s = strings.ToValidUTF8(s[:maxSubject], "") + "…"
	}
	return s
}
