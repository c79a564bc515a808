package identity

import (
	"crypto/x509"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

// ownRoots returns the current roots that vouch for this cluster, even if the own certificate has
// expired. An open connection no longer needs that.
//
// Sidecars that call another cluster have its root beside their own, and a service that follows
// their bundle has both, too. A root that a Cluster object names vouches for the resolver service
// of that cluster alone, unless the own certificate chains to a root of the same object: then the
// two clusters share an authority.
func (s *Source) ownRoots() (roots, error) {
	m, ok := s.current.Load()
	if !ok {
		_, err := s.usable()
		return nil, err
	}
	if len(m.roots) == 1 || len(m.vouching) == 0 {
		return m.roots, nil
	}
	s.peers.mu.Lock()
	defer s.peers.mu.Unlock()
	return s.peers.ownOf(m), nil
}

// ownOf returns those of the own roots that vouch for this cluster. It is called under mu.
func (p *peers) ownOf(m *material) roots {
	if p.ownIn != m {
		p.ownIn, p.own = m, slices.DeleteFunc(slices.Clone(m.roots), func(root *x509.Certificate) bool {
			for _, t := range p.trusts {
				if t.roots.has(root) && !slices.ContainsFunc(m.vouching, t.roots.has) {
					return true
				}
			}
			return false
		})
	}
	return p.own
}

// Vouching are the fingerprints of those of the own roots that the own certificate chains to.
func (c *credential) Vouching() (all []string) {
	if m, ok := c.current.Load(); ok {
		for _, root := range m.vouching {
			all = append(all, Fingerprint(root))
		}
	}
	return all
}

func (r roots) has(c *x509.Certificate) bool { return slices.ContainsFunc(r, c.Equal) }

// vouchingFor returns the roots that a certificate chains to, and the certificate below them that
// ends first on the way that lasts longest; nil without a way. A way that has ended since an issuer
// has is known by that.
func (r roots) vouchingFor(chain [][]byte) (all roots, ends *x509.Certificate) {
	certs := parseChain(chain)
	if all, ends = r.signing(certs, time.Now()); len(all) == 0 && len(certs) > 0 {
		_, ends = r.signing(certs, endsFirst(certs).NotAfter)
	}
	return all, ends
}

// signing returns the roots that a chain leads to at a moment, and what ends first as in vouchingFor.
func (r roots) signing(certs []*x509.Certificate, at time.Time) (all roots, ends *x509.Certificate) {
	for _, root := range r {
		_, ways, err := x509svid.Verify(certs, roots{root}, x509svid.WithTime(at))
		if err == nil {
			all = append(all, root)
		}
		for _, way := range ways {
			if first := endsFirst(way[:len(way)-1]); ends == nil || first.NotAfter.After(ends.NotAfter) {
				ends = first
			}
		}
	}
	return all, ends
}

func parseChain(chain [][]byte) []*x509.Certificate {
	certs := make([]*x509.Certificate, 0, len(chain))
	for _, der := range chain {
		if c, err := x509.ParseCertificate(der); err == nil {
			certs = append(certs, c)
		}
	}
	return certs
}

// endsFirst returns the certificate that ends first. Of two that end together, it is the leaf.
func endsFirst(chain []*x509.Certificate) *x509.Certificate {
	return slices.MinFunc(chain, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
}
