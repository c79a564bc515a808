package peering

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// What a peer can have this service do: so many applies a second, of so many exports
// each. What comes faster waits, and the peer with it.
const (
	applyPause  = 20 * time.Millisecond
	maxChange   = 500  // exports in one apply
	maxPending  = 5000 // exports that wait for one
	shortLease  = 5 * time.Second
	stuckAfter  = 10 * time.Second // exports that are older than renewals say
	stuckAtMost = 10 * time.Minute
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
	lines    *lines

	born    time.Time // pings are numbered from it
	lease   *lease
	words   chan word     // from the channel with the exports to the run goroutine
	wake    chan struct{} // the lease has changed
	status  linkStatus
	current currency

	knowledge *knowledge
	digest    uint64         // of what the peer said last
	told      topology.Lease // to the topology
	applied   time.Time      // the latest apply
	pause     *time.Timer    // until the next one
}

// word is a message of the peer on its way to the run goroutine, or a new stream. done is
// closed once it was taken in.
type word struct {
	message *v1alpha1.ExportsResponse
	begin   func([]*v1alpha1.Known) // is given what to ask the peer with
	done    chan<- struct{}
}

func newLink(l *Links, c *catalog.Cluster) *link {
	n := &link{
		cfg: l.cfg, topology: l.topology, identity: l.identity, settling: l.settling, lines: &lines{log: l.log},
		cluster: c.Name, born: time.Now(), lease: newLease(c.StaleAfter), words: make(chan word), wake: make(chan struct{}, 1),
		knowledge: newKnowledge(), pause: time.NewTimer(time.Hour),
	}
	n.status.about(c)
	n.object.Store(c)
	n.pause.Stop()
	return n
}

// run keeps the link up until ctx ends. What the peer said stands after that.
func (l *link) run(ctx context.Context) {
	object, _, changed := l.object.Follow()
	l.lease.extend(object.StaleAfter)
	defer l.lease.stop()
	defer l.pause.Stop()
	talks := l.startTalking(ctx, object)
	defer func() { talks.stop() }()
	for {
		words := l.words
		if len(l.knowledge.pending) >= maxPending {
			words = nil
		}
		select {
		case <-ctx.Done():
			return
		case w := <-words:
			l.take(w)
			close(w.done)
			l.applySoon(ctx)
		case <-l.pause.C:
			l.applySoon(ctx)
		case <-l.lease.timer.C:
			l.lease.tick()
			l.announce(ctx)
		case <-l.wake:
			l.announce(ctx)
		case <-changed:
			before := object
			object, _, changed = l.object.Follow()
			talks = l.follow(ctx, before, object, talks)
		}
	}
}

// take notes what the peer said.
func (l *link) take(w word) {
	if w.begin != nil {
		w.begin(l.knowledge.begin())
		return
	}
	m := w.message
	changes := len(m.GetPut())+len(m.GetRemoved()) > 0
	if m.GetMore() || changes {
		l.current.moves()
	}
	l.knowledge.take(m)
	switch digest := m.GetDigest(); {
	case digest != 0:
		l.digest = digest
		l.current.takes(true)
	case changes && l.digest != 0: // a peer that never names one has no parts to tell
		l.current.takes(false)
	}
	l.status.exports(l.knowledge)
}

// applySoon hands the topology what it does not know yet, unless it was handed something
// a moment ago.
func (l *link) applySoon(ctx context.Context) {
	if len(l.knowledge.pending) > 0 {
		if wait := applyPause - time.Since(l.applied); wait > 0 && !l.applied.IsZero() {
			l.pause.Reset(wait)
			return
		}
		change, all := l.knowledge.change(l.cluster, maxChange)
		l.apply(ctx, change)
		l.applied = time.Now()
		if !all || len(l.knowledge.pending) > 0 {
			l.pause.Reset(applyPause)
			return
		}
	}
	if l.knowledge.complete && !l.knowledge.first {
		l.current.applied(l.digest)
		l.announce(ctx)
	}
}

// announce tells the topology how far the peer can be relied on, if that is news: not
// before all it has said is there.
func (l *link) announce(ctx context.Context) {
	want, state := topology.Expired, l.lease.state()
	switch {
	case state.holds:
		want = topology.Fresh
	case state.fresh:
		want = topology.Damped
	}
	l.status.refresh(state)
	waits := !l.current.complete() || want != topology.Expired && (len(l.knowledge.pending) > 0 || !l.current.whole())
	if waits || want == l.told || want == topology.Expired && l.told == topology.Unchanged {
		return
	}
	if !l.apply(ctx, topology.PeerChange{Cluster: l.cluster, Lease: want}) {
		return
	}
	first := l.told == topology.Unchanged
	l.told = want
	switch {
	case want == topology.Expired:
		l.lines.warn("a peer is not relied on any more; what it said stands where a selection asks for that",
			"peer", l.cluster, "why", l.status.lost(state))
	case first:
		l.settling.heard(l.cluster)
		l.lines.info("peer heard", "peer", l.cluster, "exports", len(l.knowledge.exports))
	case want == topology.Damped:
		l.lines.warn("a peer is heard again, and damped: callers use it that have no other way",
			"peer", l.cluster, "why", l.status.describe(state, 0))
	default:
		l.lines.info("a peer is relied on again", "peer", l.cluster, "exports", len(l.knowledge.exports))
	}
}

func (l *link) apply(ctx context.Context, change topology.PeerChange) bool {
	_, err := l.topology.Apply(ctx, topology.Change{Peers: []topology.PeerChange{change}})
	if err != nil && ctx.Err() == nil {
		l.lines.warn("not applied what a peer exports", "peer", l.cluster, "err", err)
	}
	return err == nil
}

// withdraw takes back what the peer said, in parts, once run has ended.
func (l *link) withdraw(ctx context.Context) {
	for app := range l.knowledge.exports {
		l.knowledge.pending[app] = nil
	}
	for all := false; !all; {
		var change topology.PeerChange
		change, all = l.knowledge.change(l.cluster, maxChange)
		l.apply(ctx, change)
	}
	l.apply(ctx, topology.PeerChange{Cluster: l.cluster, Full: true, Lease: topology.Forgotten})
}

// follow changes the link to another Cluster object.
func (l *link) follow(ctx context.Context, before, object *catalog.Cluster, talks *talks) *talks {
	l.lease.extend(object.StaleAfter)
	if !slices.Equal(before.Gateways, object.Gateways) {
		talks.stop()
		return l.startTalking(ctx, object)
	}
	if before.StaleAfter != object.StaleAfter {
		talks.renew(object)
	}
	return talks
}

// talks are the channels of a link.
type talks struct {
	link     *link
	ctx      context.Context
	gateways *gateways
	cancel   context.CancelFunc
	running  sync.WaitGroup

	renewing context.CancelFunc
	renewers *sync.WaitGroup
}

// startTalking starts the network's part.
func (l *link) startTalking(ctx context.Context, object *catalog.Cluster) *talks {
	ctx, cancel := context.WithCancel(ctx)
	t := &talks{link: l, ctx: ctx, cancel: cancel, gateways: newGateways(object.Gateways)}
	l.status.through(t.gateways)
	exports := &channel{
		link: l, gateways: t.gateways, leading: true, begins: l.current.begins,
	}
	exports.open = func(ctx context.Context, conn *grpc.ClientConn) (receiver, error) {
		return l.follows(ctx, conn, exports.renew, t.gateways.several())
	}
	t.running.Go(func() { exports.run(ctx) })
	t.startRenewing(object)
	return t
}

// startRenewing starts the channels that only renew the lease: three where it is short, so
// that even a path that loses packets, and holds a connection up for seconds, ends none.
func (t *talks) startRenewing(object *catalog.Cluster) {
	ctx, cancel := context.WithCancel(t.ctx)
	t.renewing, t.renewers = cancel, &sync.WaitGroup{}
	number := 1
	if object.StaleAfter < shortLease {
		number = 3
	}
	for range number {
		c := &channel{link: t.link, gateways: t.gateways}
		c.open = func(ctx context.Context, conn *grpc.ClientConn) (receiver, error) {
			return t.link.renews(ctx, conn, c.renew)
		}
		t.renewers.Go(func() { c.run(ctx) })
	}
}

// renew has the peer renew the lease in another rhythm. The channel with the exports
// keeps its own until it is made anew.
func (t *talks) renew(object *catalog.Cluster) {
	t.renewing()
	t.renewers.Wait()
	t.startRenewing(object)
}

// stop ends the network's part and waits.
func (t *talks) stop() {
	t.cancel()
	t.renewing()
	t.running.Wait()
	t.renewers.Wait()
}

// speaks notes whether a stream is heard.
func (l *link) speaks(t *talk, speaks bool) {
	if l.status.speaks(t, speaks) {
		l.rouse()
	}
}

// rouse has the run goroutine look at the lease.
func (l *link) rouse() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// parts notes for how long a goodbye holds; 0 is none.
func (l *link) parts(holdsMs uint32) {
	if holdsMs > 0 {
		l.lease.hold(time.Duration(holdsMs) * time.Millisecond)
		l.lines.info("a peer stops, to be started again; its word holds meanwhile", "peer", l.cluster, "ms", min(holdsMs, uint32(mostHold.Milliseconds())))
	}
}

// heard notes a word that renews the lease as of a moment.
func (l *link) heard(at time.Time) {
	if l.lease.heard(at) {
		l.rouse()
	}
}
