// Package rotation changes the roots that clusters trust each other by. A cluster announces its own
// roots to its peers, by the Cluster object of its own name. A peer whose Cluster object of it says
// spec.trust.rotation: accept takes them over, if the connection that brings them vouches for them.
//
// Nothing is kept here that is not in an object, or said again by the peer: who restarts goes on.
package rotation

import (
	"context"
	"crypto/x509"
	"encoding/hex"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
)

// Objects reads and writes the objects of this cluster, as the service Objects does.
type Objects interface {
	Get(context.Context, *v1alpha1.GetRequest) (*v1alpha1.GetResponse, error)
	Apply(context.Context, *v1alpha1.ApplyRequest) (*v1alpha1.ApplyResponse, error)
}

// Config is this cluster, and what a rotation needs of its service. All functions may be called by
// many at once.
type Config struct {
	Cluster  string
	Replica  string // this one's name; empty where there is one service
	Sentry   string // the namespace of Dapr's control plane
	Identity *identity.Source
	Objects  Objects
	Clusters *live.Value[[]*catalog.Cluster]
	// Lacking are the apps with sidecars that lack one of the roots of a cluster, or do not say. Both
	// are by cluster; roots are fingerprints.
	Lacking func(ctx context.Context, roots map[string][]string) map[string][]*v1alpha1.LackingApp
	// Reports are what peers say of their trust in this cluster; Report has each told the same of
	// this one.
	Reports func() map[string][]*v1alpha1.TrustReport
	Report  func(from func(cluster string) *v1alpha1.TrustReport)
	// Reconnect makes the connection anew by which a peer is heard.
	Reconnect func(cluster string)
	// Sidecars are those of this replica. Others asks the other replicas, among which this one has
	// the name Run.
	Sidecars func() []*v1alpha1.CertifiedSidecar
	Others   func(context.Context) ([]*v1alpha1.ShowRotationResponse, []*v1alpha1.MissingReplica)
	Run      string
	Log      *slog.Logger
}

// Server is the service Rotation. [Server.Run] follows what peers announce.
type Server struct {
	v1alpha1.UnimplementedRotationServer
	cfg       Config
	announces atomic.Pointer[v1alpha1.RootsAnnouncement]
	often     *throttle.Log // for lines that peers can cause
	started   time.Time     // of Run

	mu    sync.Mutex
	peers map[string]*announcement
	roots map[string]namedRoots // by cluster
}

// namedRoots are the roots that a Cluster object names.
type namedRoots struct {
	text  string // PEM
	roots []*x509.Certificate
}

// announcement is what a peer announces for itself.
type announcement struct {
	roots   string // in PEM
	by      []*x509.Certificate
	pending bool   // it was not taken, and may be yet
	refused string // why not, in one word
	limit   *rate.Limiter
	anew    *rate.Limiter // of connections
}

// Bounds of the changes that a peer may cause.
const (
	changesAtOnce = 6
	changeEvery   = time.Minute
	anewEvery     = 10 * time.Second
	maxBytes      = 64 << 10 // of PEM
	maxPeers      = 1000
)

// New makes a server, and starts nothing.
func New(cfg Config) *Server {
	return &Server{cfg: cfg, often: throttle.New(cfg.Log, throttle.Interval), peers: map[string]*announcement{}, roots: map[string]namedRoots{}}
}

// Announcement is what peers are told; nil before a first.
func (s *Server) Announcement() *v1alpha1.RootsAnnouncement { return s.announces.Load() }

// Announced takes what a peer announces for itself. [Server.Run] judges it.
func (s *Server) Announced(cluster, roots string, by []*x509.Certificate) {
	if len(roots) > maxBytes {
		roots = "too long" // and so no PEM
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.peers[cluster]
	switch {
	case a == nil && len(s.peers) >= maxPeers:
		return
	case a == nil:
		a = &announcement{limit: rate.NewLimiter(rate.Every(changeEvery), changesAtOnce), anew: rate.NewLimiter(rate.Every(anewEvery), 1)}
		s.peers[cluster] = a
	case a.roots == roots:
		a.by = by
		return
	}
	a.roots, a.by, a.pending, a.refused = roots, by, roots != "", ""
}

// announced is what a peer announces, and the certificate that it came with.
func (s *Server) announced(cluster string) (a announcement, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.peers[cluster]; p != nil && p.roots != "" {
		return *p, true
	}
	return announcement{}, false
}

// judged records how an announcement ended, unless there is another one by now.
func (s *Server) judged(cluster, roots, refused string) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.peers[cluster]
	if a == nil || a.roots != roots {
		return false
	}
	news = a.refused != refused
	a.pending, a.refused = refused != "", refused
	return news
}

// How often announcements are judged that were not taken, and how far peers are trusted. A peer
// that changes its mind more often is judged no more often.
const (
	lookEvery    = time.Second
	reportEvery  = 3  // looks, where roots change
	settledEvery = 15 // looks, where they don't
)

// settleFor is how long after its start a service says nothing of its sidecars, since some are not
// back yet, and would be passed over.
const settleFor = 15 * time.Second

// Run follows the objects and what peers announce, until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	s.started = time.Now()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for look := 0; ; look++ {
		clusters, known, changed := s.cfg.Clusters.Follow()
		if known {
			s.follow(ctx, clusters, look)
		}
		select {
		case <-ticker.C:
		case <-changed:
			look = -1
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *Server) follow(ctx context.Context, clusters []*catalog.Cluster, look int) {
	known := map[string]*catalog.Cluster{}
	for _, c := range clusters {
		known[c.Name] = c
	}
	s.announce(known[s.cfg.Cluster])
	s.forget(known)
	changing := map[string]bool{}
	for cluster := range known {
		if a, ok := s.announced(cluster); ok && a.pending {
			changing[cluster] = true
			s.take(ctx, known[cluster], &a)
		}
	}
	if time.Since(s.started) < settleFor {
		return
	}
	lacking := map[string][]string{} // the roots of those that are told now
	for cluster, c := range known {
		every := settledEvery
		if changing[cluster] || len(s.rootsOf(c)) > 1 {
			every = reportEvery
		}
		if cluster != s.cfg.Cluster && look%every == 0 {
			lacking[cluster] = fingerprints(s.trusted(c))
		}
	}
	if len(lacking) == 0 {
		return
	}
	lacks := s.cfg.Lacking(ctx, lacking)
	s.cfg.Report(func(cluster string) *v1alpha1.TrustReport {
		if _, now := lacking[cluster]; !now {
			return nil
		}
		return s.report(known[cluster], lacking[cluster], lacks[cluster])
	})
}

// rootsOf are the roots that a Cluster object names. They are read once.
func (s *Server) rootsOf(c *catalog.Cluster) []*x509.Certificate {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.roots[c.Name]
	if held.text != c.Trust.Roots {
		held = namedRoots{c.Trust.Roots, identity.RootsIn(c.Trust.Roots)}
		s.roots[c.Name] = held
	}
	return held.roots
}

// trusted are the roots that count for a cluster's resolver service.
func (s *Server) trusted(c *catalog.Cluster) []*x509.Certificate {
	if c.Trust.Roots == "" {
		return s.ownRoots()
	}
	return s.rootsOf(c)
}

// fingerprints names roots.
func fingerprints(roots []*x509.Certificate) (all []string) {
	for _, root := range roots {
		all = append(all, identity.Fingerprint(root))
	}
	return all
}

// announce has peers told what the Cluster object of this cluster says of its roots.
func (s *Server) announce(own *catalog.Cluster) {
	roots := ""
	if own != nil {
		roots = own.Trust.Roots
	}
	if before := s.announces.Load(); before.GetRoots() != roots {
		s.announces.Store(&v1alpha1.RootsAnnouncement{Roots: roots})
	}
}

// forget drops what clusters announced that are no peers any more.
func (s *Server) forget(known map[string]*catalog.Cluster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for cluster := range s.peers {
		if known[cluster] == nil {
			delete(s.peers, cluster)
		}
	}
	maps.DeleteFunc(s.roots, func(cluster string, _ namedRoots) bool { return known[cluster] == nil })
}

// report is how far this cluster trusts a peer, and which apps lack its roots. It names no app that
// the peer does not know of.
func (s *Server) report(c *catalog.Cluster, roots []string, lacking []*v1alpha1.LackingApp) *v1alpha1.TrustReport {
	m := &v1alpha1.TrustReport{Shared: c.Trust.Roots == "", Accepts: c.Trust.Rotation == catalog.RotationAccept}
	for _, name := range roots {
		sum, _ := hex.DecodeString(name)
		m.Roots = append(m.Roots, sum)
	}
	if a, ok := s.announced(c.Name); ok {
		m.Refused = a.refused
	}
	unnamed := &v1alpha1.LackingApp{}
	for _, a := range lacking {
		switch {
		case !a.GetMeets():
		case a.GetExported():
			m.Lacking = append(m.Lacking, &v1alpha1.LackingApp{App: a.GetApp(), Sidecars: a.GetSidecars(), Silent: a.GetSilent()})
		default:
			unnamed.Sidecars, unnamed.Silent = unnamed.Sidecars+a.GetSidecars(), unnamed.Silent+a.GetSilent()
		}
	}
	if unnamed.Sidecars+unnamed.Silent > 0 {
		m.Lacking = append([]*v1alpha1.LackingApp{unnamed}, m.Lacking...)
	}
	return m
}

// ownRoots are all roots of this process.
func (s *Server) ownRoots() []*x509.Certificate {
	text, err := s.cfg.Identity.Anchors()
	if err != nil {
		return nil
	}
	return identity.RootsIn(string(text))
}
