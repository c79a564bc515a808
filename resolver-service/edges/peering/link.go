package peering

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Bounds of the work that a peer can cause here. Exports that arrive faster wait, and the peer
// waits with them.
const (
	applyInterval = 20 * time.Millisecond
	maxApply      = 500  // exports in one apply
	maxPending    = 5000 // exports that wait for an apply
	shortLease    = 5 * time.Second
	stuckAfter    = 10 * time.Second // exports are older than renewals say for so long
	stuckMost     = 10 * time.Minute
)

// link joins this cluster to one peer. Its run goroutine owns the mirror and changes the
// topology. Each channel has a goroutine for the network.
type link struct {
	cfg      Config
	cluster  string
	object   live.Value[*catalog.Cluster]
	topology *topology.Topology
	identity *identity.Source
	starts   *starts
	endTurn  func()
	reached  atomic.Bool // a gateway has taken a connection
	peerLog

	wanted       atomic.Pointer[v1alpha1.Wanted]      // what the peer is told that callers here miss; nil before the first
	trust        atomic.Pointer[v1alpha1.TrustReport] // what the peer is told of how far it is trusted; nil before the first
	need         *topology.Followed[*topology.Need]   // of the peer; set by run
	pings        pingClock
	lease        *lease
	updates      chan update   // from the primary channel to the run goroutine
	leaseChanged chan struct{} // wakes the run goroutine
	news         chan struct{} // signals something to tell the peer
	nudges       chan struct{} // signals that the peer has nudged this cluster
	crowd        *crowd
	// subscriptions is that of Links.
	subscriptions func(cluster string) (streams int, since time.Time, restsMs uint32)
	restsMs       atomic.Uint32 // that the peer is told; 0 while the link does not rest, and is not about to
	failures      atomic.Uint32 // attempts of the primary channel that failed, since the latest poll began
	polled        atomic.Uint32 // polls in a row in which nothing was heard; 0 while the link does not rest
	status        linkStatus
	freshness     freshness

	mirror     *exportMirror
	hears      sync.Mutex     // held while introductions are heard
	introduced *rate.Limiter  // of introductions, in clusters
	digest     uint64         // of the exports received last
	reported   topology.Lease // the lease that the topology knows
	rest       rest
	nudging    nudging     // of the peer, by this cluster
	nudgedPace pace        // of this cluster, by the peer
	silent     bool        // the topology knows that the peer is asked and does not answer
	awaiting   time.Time   // since when the peer has to tell all of apps; zero: it has not
	lastApply  time.Time   // zero before the first
	applyTimer *time.Timer // fires when the next apply may begin
}

// update goes to the run goroutine: a message of the peer, or the start of a new stream. The run
// goroutine closes done when it has processed the update.
type update struct {
	message *v1alpha1.ExportsResponse
	resume  func([]*v1alpha1.Known) // receives the known exports, for the request
	done    chan<- struct{}
}

func newLink(l *Links, c *catalog.Cluster) *link {
	n := &link{
		cfg: l.cfg, topology: l.topology, identity: l.identity, starts: l.starts, endTurn: func() {}, peerLog: peerLog{newThrottle(l.log)},
		cluster: c.Name, pings: pingClock{time.Now()}, lease: newLease(c.StaleAfter), updates: make(chan update), leaseChanged: make(chan struct{}, 1), news: make(chan struct{}, 1), nudges: make(chan struct{}, 1), subscriptions: l.subscriptions,
		mirror: newExportMirror(), introduced: newIntroductionLimiter(), applyTimer: time.NewTimer(time.Hour), rest: rest{timer: time.NewTimer(time.Hour)}, crowd: l.crowd,
	}
	if l.cfg.MaxKnown > 0 {
		n.mirror.room = l.cfg.MaxKnown
	}
	n.status.setObject(c)
	n.object.Store(c)
	n.applyTimer.Stop()
	n.rest.timer.Stop()
	return n
}

// run keeps the link up until ctx ends. The exports stay in the topology.
func (l *link) run(ctx context.Context) {
	var err error
	if l.need, err = l.topology.Need(ctx, l.cluster); err != nil {
		return // ctx or the topology has ended
	}
	defer l.need.Close()
	l.letOthersFirst(ctx)
	defer func() { l.endTurn() }()
	if ctx.Err() != nil {
		return
	}
	object, _, changed := l.object.Follow()
	l.lease.setStaleAfter(object.StaleAfter)
	defer l.lease.stop()
	defer l.applyTimer.Stop()
	defer l.rest.timer.Stop()
	if l.crowd.crowded() {
		l.setPhase(polling)
		l.rest.timer.Reset(pollWithin)
	}
	chans := l.startChannels(ctx, object)
	defer func() { chans.stop() }()
	for {
		_, _, needChanged := l.need.Follow()
		chans = l.turn(ctx, object, chans)
		updates := l.updates
		if len(l.mirror.pending) >= maxPending {
			updates = nil
		}
		select {
		case <-ctx.Done():
			return
		case u := <-updates:
			l.receive(u)
			close(u.done)
			l.applySoon(ctx)
		case <-l.applyTimer.C:
			l.applySoon(ctx)
		case <-l.lease.timer.C:
			l.lease.tick()
			l.reportLease(ctx)
		case <-l.leaseChanged:
			l.reportLease(ctx)
		case <-needChanged:
		case <-l.rest.timer.C:
			l.rest.due = true
		case <-l.news:
			l.pollSoon()
		case <-l.nudges:
			l.pollWhenTold()
		case <-changed:
			before := object
			object, _, changed = l.object.Follow()
			chans = l.changeObject(ctx, before, object, chans)
		}
	}
}

// receive processes an update.
func (l *link) receive(u update) {
	if u.resume != nil {
		u.resume(l.mirror.resume())
		return
	}
	m := u.message
	changes := len(m.GetPut())+len(m.GetRemoved()) > 0
	if m.GetMore() || changes {
		l.freshness.progress()
	}
	l.mirror.receive(m)
	switch digest := m.GetDigest(); {
	case digest != 0:
		l.digest = digest
		l.freshness.received(true)
	case changes && l.digest != 0: // a peer that never sends a digest sends no partial changes
		l.freshness.received(false)
	}
	l.status.setExports(l.mirror)
}

// applySoon applies pending exports to the topology, at most once in applyInterval.
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
		l.rest.complete = true
		l.freshness.applied(l.digest)
		l.reportLease(ctx)
	}
}

// reportLease tells the topology about a changed lease. A fresh lease waits until all that the
// peer has sent is applied.
func (l *link) reportLease(ctx context.Context) {
	if l.rest.phase != awake {
		return
	}
	want, state := topology.Expired, l.lease.state()
	switch {
	case state.usable:
		want = topology.Fresh
	case state.fresh:
		want = topology.Damped
	}
	l.status.current(state)
	if l.status.fails() && !state.fresh && (l.reported == topology.Unchanged || l.reported == topology.Resting) {
		l.tellSilent(ctx)
	}
	waits := !l.freshness.isSynced() || want != topology.Expired && (len(l.mirror.pending) > 0 || !l.freshness.whole())
	if waits || want == l.reported || want == topology.Expired && (l.reported == topology.Unchanged || l.reported == topology.Resting) {
		return
	}
	if l.reported != topology.Fresh && want != topology.Expired && l.awaits() {
		return
	}
	if !l.apply(ctx, topology.PeerChange{Cluster: l.cluster, Lease: want}) {
		return
	}
	l.silent = false
	before := l.reported
	first := before == topology.Unchanged
	l.reported = want
	switch {
	case want == topology.Expired:
		l.warn("lease of a peer ended; routes to it are withdrawn, or stale where whenStale is serve",
			"peer", l.cluster, "why", l.status.lossReason(state))
	case first:
		l.starts.heard(l.cluster)
		l.endTurn()
		l.info("exports of a peer received", "peer", l.cluster, "exports", len(l.mirror.exports))
	case want == topology.Damped:
		l.warn("peer is back, and damped; only callers without another route use it",
			"peer", l.cluster, "why", l.status.describe(state, 0))
	case before == topology.Resting:
		l.info("a peer is used again, and has told all", "peer", l.cluster, "exports", len(l.mirror.exports))
	case before == topology.Damped:
		l.info("peer is damped no more; routes to it are in use again", "peer", l.cluster)
	default:
		l.info("peer is back; routes to it are in use again", "peer", l.cluster, "exports", len(l.mirror.exports))
	}
}

// tellSilent has lookups wait for the peer no longer.
func (l *link) tellSilent(ctx context.Context) {
	l.silent = l.silent || l.apply(ctx, topology.PeerChange{Cluster: l.cluster, Lease: topology.Silent})
}

// awaitAtMost is how long routes to a peer that is heard wait until it has told all of the apps that
// callers here may be led to.
const awaitAtMost = 2 * time.Second

// awaits tells whether the peer has yet to do so. Otherwise its routes would be there without instances.
func (l *link) awaits() bool {
	for app := range needs(l.need).All() {
		if !l.mirror.exports[app].named {
			continue
		}
		if l.awaiting.IsZero() {
			l.awaiting = time.Now()
			time.AfterFunc(awaitAtMost, l.recheckLease)
		}
		return time.Since(l.awaiting) < awaitAtMost
	}
	l.awaiting = time.Time{}
	return false
}

func (l *link) apply(ctx context.Context, change topology.PeerChange) bool {
	_, err := l.topology.Apply(ctx, topology.Change{Peers: []topology.PeerChange{change}})
	if err != nil && ctx.Err() == nil {
		l.warn("exports of a peer not applied; routes to it may be out of date", "peer", l.cluster, "err", err)
	}
	return err == nil
}

// withdraw removes the peer's exports from the topology, in parts. It runs after run.
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

// changeObject adapts the link to a changed Cluster object.
func (l *link) changeObject(ctx context.Context, before, object *catalog.Cluster, chans *channels) *channels {
	l.lease.setStaleAfter(object.StaleAfter)
	if l.rest.phase == resting {
		l.pollSoon()
		return chans
	}
	if !slices.Equal(ways(before), ways(object)) {
		chans.stop()
		return l.startChannels(ctx, object)
	}
	if before.StaleAfter != object.StaleAfter && l.rest.phase == awake {
		chans.restartRenewers(object)
	}
	return chans
}

// setHeard records whether messages arrive on a stream.
func (l *link) setHeard(t *clientStream, heard bool) {
	if l.status.setHeard(t, heard) {
		l.recheckLease()
	}
}

// recheckLease wakes the run goroutine to look at the lease.
func (l *link) recheckLease() {
	select {
	case l.leaseChanged <- struct{}{}:
	default:
	}
}

// goodbye extends the lease, since the peer said that it restarts. 0 means that it did not.
func (l *link) goodbye(holdsMs uint32) {
	if holdsMs > 0 {
		l.lease.hold(time.Duration(holdsMs) * time.Millisecond)
		l.info("peer restarts; its lease is extended", "peer", l.cluster, "ms", min(holdsMs, uint32(mostHold.Milliseconds())))
	}
}

// renewLease renews the lease as of a moment.
func (l *link) renewLease(at time.Time) {
	if l.lease.renew(at) {
		l.recheckLease()
	}
}

// How many lines of one kind about one peer are logged in an interval.
const (
	maxLines    = 6
	logInterval = time.Minute
)

func newThrottle(log *slog.Logger) *throttle.Log {
	return throttle.NewBurst(log, logInterval, maxLines)
}

// peerLog is for lines that a peer can cause.
type peerLog struct{ log *throttle.Log }

// warn logs a line. Each kind of line has its own limit, so that attempts which fail do not hide that
// a lease has ended.
func (l peerLog) warn(text string, args ...any) { l.log.Warn(text, text, args...) }

func (l peerLog) info(text string, args ...any) { l.log.Info(text, text, args...) }
