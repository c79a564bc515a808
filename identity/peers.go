package identity

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// peers is what is known of other clusters' resolver services: whom to believe, which
// connections there are, and which certificates were seen.
type peers struct {
	mu        sync.Mutex
	namespace string // of Isthmus' own apps
	trusts    map[string]*trust
	watched   map[*watched]struct{}
	shown     map[string]shown
}

// shown is the certificate that a cluster's resolver service showed last.
type shown struct {
	leaf *x509.Certificate
	err  error // why it was refused
}

// SetPeers says what the resolver services of other clusters are checked against, by
// cluster; namespace is that of Isthmus' own apps, as in [ServiceApp]. It counts for
// handshakes from now on, and at once for connections that there are: one that would
// be refused now is ended. A trust that can't be used believes nobody; the others stand.
//
// Where a trust names roots, these alone count for that cluster's service, and for
// nobody else. A cluster without a trust is checked against this process' own roots.
func (s *Source) SetPeers(namespace string, said map[string]catalog.Trust) {
	p := &s.peers
	p.mu.Lock()
	trusts := make(map[string]*trust, len(said))
	for cluster, t := range said {
		old := p.trusts[cluster]
		switch {
		case old != nil && old.said == t && p.namespace == namespace:
			trusts[cluster] = old
		default:
			trusts[cluster] = newTrust(namespace, cluster, t)
			if err := trusts[cluster].err; err != nil {
				s.log.Warn("nobody is believed to be a peer", "peer", cluster, "err", err)
			}
		}
	}
	same := p.namespace == namespace && sameTrust(trusts, p.trusts) && sameTrust(p.trusts, trusts)
	p.namespace, p.trusts = namespace, trusts
	maps.DeleteFunc(p.shown, func(cluster string, _ shown) bool { return trusts[cluster] == nil })
	p.mu.Unlock()
	if !same {
		s.recheck()
	}
}

// sameTrust tells whether each cluster's service is checked against what it was before. One
// of which nothing is said is checked as one of which nothing else is said.
func sameTrust(trusts, before map[string]*trust) bool {
	for cluster, t := range trusts {
		var was catalog.Trust
		if old := before[cluster]; old != nil {
			was = old.said
		}
		if t.said != was {
			return false
		}
	}
	return true
}

// trustOf is what a cluster's service is checked against.
func (p *peers) trustOf(namespace, cluster string) *trust {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.trusts[cluster]; t != nil {
		return t
	}
	return newTrust(namespace, cluster, catalog.Trust{})
}

// claims tells which peer's resolver service a client says that it is; nil for anyone
// else, and for a cluster that nothing is known of.
func (p *peers) claims(id ID) *trust {
	p.mu.Lock()
	defer p.mu.Unlock()
	cluster, ok := ServiceCluster(p.namespace, id.App)
	if !ok {
		return nil
	}
	return p.trusts[cluster]
}

// service is the cluster whose resolver service an app is.
func (p *peers) service(app catalog.App) (cluster string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return ServiceCluster(p.namespace, app)
}

// note keeps the certificate that a cluster has shown.
func (p *peers) note(cluster string, chain []*x509.Certificate, err error) {
	if len(chain) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trusts[cluster] == nil {
		return
	}
	if p.shown == nil {
		p.shown = map[string]shown{}
	}
	p.shown[cluster] = shown{chain[0], err}
}

// watched is a connection to or from a peer. It is ended when the peer is not believed
// any more.
type watched struct {
	net.Conn
	peers *peers
	check func() error // whether it would be let in now; set once it was
	renew *time.Timer  // ends it, so that the next one is by a newer certificate
}

// Close ends the connection.
func (w *watched) Close() error {
	w.peers.mu.Lock()
	delete(w.peers.watched, w)
	if w.renew != nil {
		w.renew.Stop()
	}
	w.peers.mu.Unlock()
	return w.Conn.Close()
}

// dead tells whether the connection was closed from below: gRPC does so where it fails
// right after the handshake.
func (w *watched) dead() bool {
	c, ok := w.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	return err != nil || raw.Control(func(uintptr) {}) != nil
}

// watch keeps a connection in sight that was let in by a certificate, or returns why it is
// not any more: what it was checked against may have changed meanwhile.
//
// A connection may outlive its certificate, but it is made anew once the other side
// should have a newer one: so what a peer has shown last tells whether it renews.
func (p *peers) watch(w *watched, leaf *x509.Certificate, check func() error) error {
	p.mu.Lock()
	w.check = check
	if in, ok := renewIn(leaf, time.Now()); ok {
		w.renew = time.AfterFunc(in, func() { w.Close() })
	}
	if p.watched == nil {
		p.watched = map[*watched]struct{}{}
	}
	maps.DeleteFunc(p.watched, func(other *watched, _ struct{}) bool {
		dead := other.dead()
		if dead && other.renew != nil {
			other.renew.Stop()
		}
		return dead
	})
	p.watched[w] = struct{}{}
	p.mu.Unlock()
	return check()
}

// renewIn is when to make a connection anew that was made by a certificate: a little
// before a third of its life is left, since Dapr's are renewed at half of it, and not at
// the same moment as others. It is false where that is over.
func renewIn(leaf *x509.Certificate, now time.Time) (time.Duration, bool) {
	hundredth := max(0, leaf.NotAfter.Sub(leaf.NotBefore)/100) // divided first: centuries don't overflow
	in := leaf.NotAfter.Sub(now) - 34*hundredth - rand.N(6*hundredth+1)
	return in, in > 0
}

// recheck ends the connections of peers that are not believed any more.
func (s *Source) recheck() {
	s.peers.mu.Lock()
	all := slices.Collect(maps.Keys(s.peers.watched))
	s.peers.mu.Unlock()
	for _, w := range all {
		if err := w.check(); err != nil {
			s.log.Warn("ended the connection of a peer that is not trusted any more", "remote", w.RemoteAddr().String(), "err", err)
			w.Close()
		}
	}
}

// verifyService checks a server that must be the resolver service of a cluster.
func (s *Source) verifyService(namespace, cluster string, chain []*x509.Certificate, at time.Time) (ID, error) {
	own, err := s.ownRoots()
	if err != nil {
		return ID{}, err
	}
	return s.peers.trustOf(namespace, cluster).verify(chain, at, own)
}

// standing is who a client is, and why it is believed.
type standing struct {
	id   ID
	peer string // the cluster whose roots alone count for it; empty: own roots do
}

// verifyClient checks a client: against a peer's trust where it says that it is that
// peer's resolver service, and otherwise against own roots.
func (s *Source) verifyClient(cs tls.ConnectionState, at time.Time, authorize func(ID) error) (standing, error) {
	own, err := s.ownRoots()
	if err != nil {
		return standing{}, err
	}
	if len(cs.PeerCertificates) > 0 {
		if id, err := claimed(cs.PeerCertificates[0]); err == nil {
			if t := s.peers.claims(id); t != nil {
				return s.verifyPeerClient(t, cs, at, own, authorize)
			}
		}
	}
	id, err := verifyPeer(cs, at, own, authorize)
	if err != nil {
		err = s.peers.hint(err, cs.PeerCertificates)
	}
	return standing{id: id}, err
}

// hint adds to a refusal that a peer's root may have signed for the client. It goes by
// names, which cost nothing to compare, and nothing is believed by it.
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

func (s *Source) verifyPeerClient(t *trust, cs tls.ConnectionState, at time.Time, own roots, authorize func(ID) error) (standing, error) {
	id, err := t.verify(cs.PeerCertificates, at, own)
	if err != nil {
		return standing{}, err
	}
	if authorize == nil {
		return standing{}, errNobody
	}
	if err := authorize(id); err != nil {
		return standing{}, fmt.Errorf("identity: peer %s refused: %w", id, err)
	}
	who := standing{id: id}
	if len(t.roots) > 0 {
		who.peer = t.cluster
	}
	return who, nil
}

// ownRoots are the roots that stand. They don't go with the certificate's life: a
// connection that there is needs no certificate any more.
func (s *Source) ownRoots() (roots, error) {
	m, ok := s.current.Load()
	if !ok {
		_, err := s.usable()
		return nil, err
	}
	return m.roots, nil
}
