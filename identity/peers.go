package identity

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// peers holds the trust in other clusters' resolver services, and the certificates that they
// presented.
type peers struct {
	mu        sync.Mutex
	namespace string // of Isthmus' own apps
	trusts    map[string]*trust
	presented map[string]presentedCert
	own       roots // that vouch for this cluster, beside these trusts; see ownOf
	ownIn     *material
}

// presentedCert is the certificate that a cluster's resolver service presented last.
type presentedCert struct {
	leaf *x509.Certificate
	err  error // why it was refused
}

// SetPeers sets the trust in the resolver services of other clusters, by cluster. namespace is
// that of Isthmus' own apps, as in [ServiceApp]. It applies to new handshakes, and to open
// connections: one that would be refused now is ended. An unusable trust accepts no certificate;
// the others stay.
//
// If a trust names roots, only these count for that cluster's service, and they count for nobody
// else. A cluster with an empty trust is checked against this process' own roots, and one that is
// not in said is refused.
func (s *Source) SetPeers(namespace string, said map[string]catalog.Trust) {
	p := &s.peers
	m, ok := s.current.Load()
	p.mu.Lock()
	changed := map[string]bool{} // the clusters whose trust is another, or gone
	trusts := make(map[string]*trust, len(said))
	for cluster, t := range said {
		if old := p.trusts[cluster]; old != nil && old.spec == t && p.namespace == namespace {
			trusts[cluster] = old
			continue
		}
		trusts[cluster], changed[cluster] = newTrust(namespace, cluster, t), true
		if err := trusts[cluster].err; err != nil {
			s.log.Warn("trust in a peer unusable; its connections are refused until its Cluster object is corrected", "peer", cluster, "err", err)
		}
	}
	for cluster := range p.trusts {
		if trusts[cluster] == nil {
			changed[cluster] = true
			delete(p.presented, cluster)
		}
	}
	sameOwn := ok
	if ok {
		before := p.ownOf(m)
		p.ownIn, p.trusts = nil, trusts
		sameOwn = slices.Equal(before, p.ownOf(m)) // the certificates of m
	}
	p.namespace, p.trusts = namespace, trusts
	p.mu.Unlock()
	switch {
	case !sameOwn:
		s.recheck(func(*trackedConn) bool { return true })
	case len(changed) > 0:
		s.recheck(func(w *trackedConn) bool { return changed[w.cluster] })
	}
}

// trustIn returns the trust in a cluster's service. It fails if there is no Cluster object for it.
func (p *peers) trustIn(cluster string) (*trust, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.trusts[cluster]; t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("there is no Cluster object for %s here; apply one, which may be without gateways, to let that cluster ask", cluster)
}

// trustFor returns the trust in the peer that a client claims to be. It fails if that is no
// resolver service of a cluster that is known here.
func (p *peers) trustFor(id ID) (*trust, error) {
	p.mu.Lock()
	cluster, ok := ServiceCluster(p.namespace, id.App)
	p.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("identity: %s is no resolver service; only resolver services may call here", id)
	}
	t, err := p.trustIn(cluster)
	if err != nil {
		return nil, fmt.Errorf("identity: %s: %w", id, err)
	}
	return t, nil
}

// notePresented records the certificate that a cluster has presented.
func (p *peers) notePresented(cluster string, chain []*x509.Certificate, err error) {
	if len(chain) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trusts[cluster] == nil {
		return
	}
	if p.presented == nil {
		p.presented = map[string]presentedCert{}
	}
	p.presented[cluster] = presentedCert{chain[0], err}
}

// verifyService checks a server that must be the resolver service of a cluster.
func (s *Source) verifyService(cluster string, chain []*x509.Certificate, at time.Time) error {
	own, err := s.ownRoots()
	if err != nil {
		return err
	}
	t, err := s.peers.trustIn(cluster)
	if err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	_, err = t.verify(chain, at, own, ofServer)
	return err
}

// principal is an authenticated client.
type principal struct {
	id   ID
	peer string // the cluster whose resolver service it is; empty for other clients
}

// verifyClient checks a sidecar or an operator against own roots.
func (s *Source) verifyClient(cs tls.ConnectionState, at time.Time, authorize func(ID) error) (principal, error) {
	own, err := s.ownRoots()
	if err != nil {
		return principal{}, err
	}
	id, err := verifyPeer(cs, at, own, ofClient, authorize)
	if err != nil {
		err = s.peers.hint(err, cs.PeerCertificates)
	}
	return principal{id: id}, err
}

// hint adds to a refusal that a peer's root may have signed the client's certificate. It compares
// names only, and grants nothing.
func (p *peers) hint(err error, chain []*x509.Certificate) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for cluster, t := range p.trusts {
		for _, root := range t.roots {
			if slices.ContainsFunc(chain, func(c *x509.Certificate) bool { return bytes.Equal(c.RawIssuer, root.RawSubject) }) {
				return fmt.Errorf("%w; its authority has the name of a root of cluster %s, which counts for the resolver service of that cluster alone", err, cluster)
			}
		}
	}
	return err
}

// verifyPeerClient checks the resolver service of another cluster against the trust in it.
func (s *Source) verifyPeerClient(cs tls.ConnectionState, at time.Time) (principal, error) {
	own, err := s.ownRoots()
	if err != nil {
		return principal{}, err
	}
	if len(cs.PeerCertificates) == 0 {
		return principal{}, errors.New("identity: peer: no certificate was shown")
	}
	id, err := idOf(cs.PeerCertificates[0])
	if err != nil {
		return principal{}, fmt.Errorf("identity: peer: %w", err)
	}
	t, err := s.peers.trustFor(id)
	if err != nil {
		return principal{}, err
	}
	if id, err = t.verify(cs.PeerCertificates, at, own, ofClient); err != nil {
		return principal{}, err
	}
	return principal{id: id, peer: t.cluster}, nil
}
