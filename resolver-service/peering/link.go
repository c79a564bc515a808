package peering

import (
	"context"
	"slices"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/throttle"
)

// What a peer can have this service do: so many applies a second, of so many exports
// each. What comes faster waits, and the peer with it.
const (
	applyInterval = 20 * time.Millisecond
	maxApply      = 500  // exports in one apply
	maxPending    = 5000 // exports that wait for one
	shortLease    = 5 * time.Second
	stuckAfter    = 10 * time.Second // exports that are older than renewals say
	stuckMost     = 10 * time.Minute
)

// link is what joins this cluster to one peer. Its run goroutine owns the knowledge and
// talks to the topology; a goroutine for each channel does the network's part.
type link struct {
	cfg      Config
	cluster  string
	object   live.Value[*catalog.Cluster]
	topology *topology.Topology
	identity *identity.Source
	settling *settling
	log      *throttle.Log // for lines that the peer can cause

	created      time.Time // pings are numbered from it
	lease        *lease
	updates      chan update   // from the channel with the exports to the run goroutine
	leaseChanged chan struct{} // the lease has changed
	status       linkStatus
	freshness    freshness

	mirror     *exportMirror
	digest     uint64         // of what the peer said last
	reported   topology.Lease // to the topology
	lastApply  time.Time      // the latest apply
	applyTimer *time.Timer    // until the next one
}

// word is a message of the peer on its way to the run goroutine, or a new stream. done is
// closed once it was taken in.
type update struct {
	message *v1alpha1.ExportsResponse
	resume  func([]*v1alpha1.Known) // is given what to ask the peer with
	done    chan<- struct{}
}

func newLink(l *Links, c *catalog.Cluster) *link {
	n := &link{
		cfg: l.cfg, topology: l.topology, identity: l.identity, settling: l.settling, log: throttle.New(l.log, logInterval),
		cluster: c.Name, created: time.Now(), lease: newLease(c.StaleAfter), updates: make(chan update), leaseChanged: make(chan struct{}, 1),
		mirror: newExportMirror(), applyTimer: time.NewTimer(time.Hour),
	}
	n.status.setObject(c)
	n.object.Store(c)
	n.applyTimer.Stop()
	return n
}

// run keeps the link up until ctx ends. What the peer said stands after that.
func (l *link) run(ctx context.Context) {
	object, _, changed := l.object.Follow()
	l.lease.setStaleAfter(object.StaleAfter)
	defer l.lease.stop()
	defer l.applyTimer.Stop()
	talks := l.startChannels(ctx, object)
	defer func() { talks.stop() }()
	for {
		words := l.updates
		if len(l.mirror.pending) >= maxPending {
			words = nil
		}
		select {
		case <-ctx.Done():
			return
		case w := <-words:
			l.receive(w)
			close(w.done)
			l.applySoon(ctx)
		case <-l.applyTimer.C:
			l.applySoon(ctx)
		case <-l.lease.timer.C:
			l.lease.tick()
			l.reportLease(ctx)
		case <-l.leaseChanged:
			l.reportLease(ctx)
		case <-changed:
			before := object
			object, _, changed = l.object.Follow()
			talks = l.changeObject(ctx, before, object, talks)
		}
	}
}

// take notes what the peer said.
func (l *link) receive(w update) {
	if w.resume != nil {
		w.resume(l.mirror.resume())
		return
	}
	m := w.message
	changes := len(m.GetPut())+len(m.GetRemoved()) > 0
	if m.GetMore() || changes {
		l.freshness.progress()
	}
	l.mirror.receive(m)
	switch digest := m.GetDigest(); {
	case digest != 0:
		l.digest = digest
		l.freshness.received(true)
	case changes && l.digest != 0: // a peer that never names one has no parts to tell
		l.freshness.received(false)
	}
	l.status.setExports(l.mirror)
}

// applySoon hands the topology what it does not know yet, unless it was handed something
// a moment ago.
func (l *link) applySoon(ctx context.Context) {
	if len(l.mirror.pending) > 0 {
		if wait := applyInterval - time.Since(l.lastApply); wait > 0 && !l.lastApply.IsZero() {
			l.applyTimer.Reset(wait)
			return
		}
		change, all := l.mirror.nextChange(l.cluster, maxApply)
		l.apply(ctx, change)
		l.lastApply = time.Now()
		if !all || len(l.mirror.pending) > 0 {
			l.applyTimer.Reset(applyInterval)
			return
		}
	}
	if l.mirror.synced && !l.mirror.initial {
		l.freshness.applied(l.digest)
		l.reportLease(ctx)
	}
}

// announce tells the topology how far the peer can be relied on, if that is news: not
// before all it has said is there.
func (l *link) reportLease(ctx context.Context) {
	want, state := topology.Expired, l.lease.state()
	switch {
	case state.usable:
		want = topology.Fresh
	case state.fresh:
		want = topology.Damped
	}
	l.status.refresh(state)
	waits := !l.freshness.isSynced() || want != topology.Expired && (len(l.mirror.pending) > 0 || !l.freshness.whole())
	if waits || want == l.reported || want == topology.Expired && l.reported == topology.Unchanged {
		return
	}
	if !l.apply(ctx, topology.PeerChange{Cluster: l.cluster, Lease: want}) {
		return
	}
	first := l.reported == topology.Unchanged
	l.reported = want
	switch {
	case want == topology.Expired:
		l.warn("lease of a peer ended; routes to it are withdrawn, or stale where whenStale is serve",
			"peer", l.cluster, "why", l.status.lossReason(state))
	case first:
		l.settling.heard(l.cluster)
		l.info("exports of a peer received", "peer", l.cluster, "exports", len(l.mirror.exports))
	case want == topology.Damped:
		l.warn("peer is back, and damped; only callers without another route use it",
			"peer", l.cluster, "why", l.status.describe(state, 0))
	default:
		l.info("peer is back; routes to it are in use again", "peer", l.cluster, "exports", len(l.mirror.exports))
	}
}

func (l *link) apply(ctx context.Context, change topology.PeerChange) bool {
	_, err := l.topology.Apply(ctx, topology.Change{Peers: []topology.PeerChange{change}})
	if err != nil && ctx.Err() == nil {
		l.warn("exports of a peer not applied; routes to it may be out of date", "peer", l.cluster, "err", err)
	}
	return err == nil
}

// withdraw takes back what the peer said, in parts, once run has ended.
func (l *link) withdraw(ctx context.Context) {
	for app := range l.mirror.exports {
		l.mirror.pending[app] = nil
	}
	for all := false; !all; {
		var change topology.PeerChange
		change, all = l.mirror.nextChange(l.cluster, maxApply)
		l.apply(ctx, change)
	}
	l.apply(ctx, topology.PeerChange{Cluster: l.cluster, Full: true, Lease: topology.Forgotten})
}

// follow changes the link to another Cluster object.
func (l *link) changeObject(ctx context.Context, before, object *catalog.Cluster, talks *channels) *channels {
	l.lease.setStaleAfter(object.StaleAfter)
	if !slices.Equal(before.Gateways, object.Gateways) {
		talks.stop()
		return l.startChannels(ctx, object)
	}
	if before.StaleAfter != object.StaleAfter {
		talks.restartRenewers(object)
	}
	return talks
}

// speaks notes whether a stream is heard.
func (l *link) setHeard(t *clientStream, speaks bool) {
	if l.status.setHeard(t, speaks) {
		l.recheckLease()
	}
}

// rouse has the run goroutine look at the lease.
func (l *link) recheckLease() {
	select {
	case l.leaseChanged <- struct{}{}:
	default:
	}
}

// parts notes for how long a goodbye holds; 0 is none.
func (l *link) goodbye(holdsMs uint32) {
	if holdsMs > 0 {
		l.lease.hold(time.Duration(holdsMs) * time.Millisecond)
		l.info("peer restarts; its lease is extended", "peer", l.cluster, "ms", min(holdsMs, uint32(mostHold.Milliseconds())))
	}
}

// heard notes a word that renews the lease as of a moment.
func (l *link) renewLease(at time.Time) {
	if l.lease.renew(at) {
		l.recheckLease()
	}
}

// logInterval is how often one and the same line about a peer is logged.
const logInterval = 10 * time.Second

func (l *link) warn(text string, args ...any) { l.log.Warn(text, text, args...) }

func (l *link) info(text string, args ...any) { l.log.Info(text, text, args...) }
