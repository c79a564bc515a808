package peering

import (
	"cmp"
	"context"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Links keeps one link to each cluster that has a Cluster object with gateways, and to each that
// dials this one.
type Links struct {
	cfg          Config
	topology     *topology.Topology
	identity     *identity.Source
	log          *slog.Logger
	starts       *starts
	objectsKnown chan struct{} // closed once the Cluster objects are known
	crowd        *crowd

	mu     sync.Mutex // guards links, which only Run changes
	links  map[string]*runningLink
	server *Server // nil until Join
}

type runningLink struct {
	*link
	cancel context.CancelFunc
	done   chan struct{}
}

// NewLinks makes links. It starts nothing.
func NewLinks(cfg Config, t *topology.Topology, source *identity.Source, log *slog.Logger) *Links {
	return &Links{cfg: cfg, topology: t, identity: source, log: log, starts: newStarts(), crowd: &crowd{many: cmp.Or(cfg.Many, many)}, objectsKnown: make(chan struct{}), links: map[string]*runningLink{}}
}

// Settled is closed once each cluster of the first Cluster objects has sent its exports, or has
// had 5 s to do so. Until then views lack exports that may arrive in a moment.
func (l *Links) Settled() <-chan struct{} { return l.starts.settling.done }

// Known is closed once the Cluster objects are known, which decide who may ask.
func (l *Links) Known() <-chan struct{} { return l.objectsKnown }

// Join connects links and server: peers and operators then see both directions, how this cluster
// hears a peer and whether the peer follows it. Call it before either runs.
func Join(l *Links, s *Server) {
	l.server, s.links = s, l
}

// linkState is the state of the link to a cluster; empty if there is none.
func (l *Links) linkState(cluster string) string {
	l.mu.Lock()
	r := l.links[cluster]
	l.mu.Unlock()
	if r == nil {
		return ""
	}
	return r.status.current(r.lease.state())
}

// subscriptions returns how many streams a cluster has to this one, since when it has none, and how
// long it rests, in ms.
func (l *Links) subscriptions(cluster string) (streams int, since time.Time, restsMs uint32) {
	if l.server == nil {
		return 0, time.Time{}, 0
	}
	return l.server.subscribers.streamsOf(cluster)
}

// Run follows the Cluster objects and keeps a link to each until ctx ends.
func (l *Links) Run(ctx context.Context, clusters *live.Value[[]*catalog.Cluster]) error {
	defer l.starts.end()
	defer l.stopAll()
	if err := l.identity.Wait(ctx); err != nil {
		return nil // ctx has ended
	}
	for {
		all, known, changed := clusters.Follow()
		l.follow(ctx, all, known)
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// Status returns the state of every link, by cluster.
func (l *Links) Status() []*v1alpha1.PeerStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*v1alpha1.PeerStatus, 0, len(l.links))
	for cluster, r := range l.links {
		w := r.status.wire(cluster, r.lease.state())
		streams, since, rests := l.subscriptions(cluster)
		w.AskedBy, w.UnaskedSinceUnixMs, w.RestsMs = uint32(streams), wallClock(since), rests
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b *v1alpha1.PeerStatus) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return all
}

// Reach tells whether messages of a cluster arrive here.
type Reach struct {
	Cluster    string
	Heard      bool // within StaleAfter, or it said that it restarts
	StaleAfter time.Duration
}

// Reach returns it for each link, in no particular order.
func (l *Links) Reach() []Reach {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]Reach, 0, len(l.links))
	for cluster, r := range l.links {
		s := r.lease.state()
		all = append(all, Reach{cluster, s.fresh || r.status.rests() || !s.last.IsZero() && time.Since(s.last) < s.after, s.after})
	}
	return all
}

// SetUnreachable marks a cluster as stale while callers agree that they don't reach it. An empty
// reason lifts that.
func (l *Links) SetUnreachable(cluster, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.links[cluster]; r != nil && r.lease.setUnreachable(why) {
		r.recheckLease()
	}
}

// follow makes the links match the Cluster objects.
func (l *Links) follow(ctx context.Context, clusters []*catalog.Cluster, known bool) {
	wanted := make(map[string]bool, len(clusters))
	for _, c := range clusters {
		if c.Name != l.cfg.Cluster && len(ways(c)) > 0 {
			wanted[c.Name] = true
		}
	}
	crowded := l.crowd.crowded()
	l.crowd.links.Store(int64(max(len(wanted), -l.cfg.Many)))
	if known {
		l.starts.begin(wanted)
		l.identity.SetPeers(l.cfg.Namespace, trustOfPeers(clusters, l.cfg.Cluster))
		select {
		case <-l.objectsKnown:
		default:
			close(l.objectsKnown)
		}
	}
	for _, c := range clusters {
		if !wanted[c.Name] {
			continue
		}
		if r := l.links[c.Name]; r != nil {
			if before, _ := r.object.Load(); !reflect.DeepEqual(before, c) { // only the changed one
				r.status.setObject(c) // first, for errors of new attempts
				r.object.Store(c)
			}
			continue
		}
		l.start(ctx, c)
	}
	for name, r := range l.links {
		if !wanted[name] {
			l.drop(ctx, name)
		} else if crowded && !l.crowd.crowded() {
			r.recheckLease() // those at rest are to be up now
		}
	}
}

// trustOfPeers returns the trust for each other cluster's resolver service.
func trustOfPeers(clusters []*catalog.Cluster, own string) map[string]catalog.Trust {
	all := make(map[string]catalog.Trust, len(clusters))
	for _, c := range clusters {
		if c.Name != own {
			all[c.Name] = c.Trust
		}
	}
	return all
}

func (l *Links) start(ctx context.Context, c *catalog.Cluster) {
	ctx, cancel := context.WithCancel(ctx)
	r := &runningLink{link: newLink(l, c), cancel: cancel, done: make(chan struct{})}
	r.status.current(r.lease.state())
	l.mu.Lock()
	l.links[c.Name] = r
	l.mu.Unlock()
	go func() {
		defer close(r.done)
		r.run(ctx)
	}()
}

// drop ends a link and withdraws the cluster's exports.
func (l *Links) drop(ctx context.Context, name string) {
	r := l.links[name]
	l.end(name)
	l.starts.heard(name)
	r.withdraw(ctx)
}

func (l *Links) end(name string) {
	r := l.links[name]
	r.cancel()
	<-r.done
	l.mu.Lock()
	delete(l.links, name)
	l.mu.Unlock()
}

func (l *Links) stopAll() {
	for name := range l.links {
		l.end(name)
	}
}
