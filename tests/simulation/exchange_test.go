package simulation

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/raced"
)

// This is the same at a smaller scale: graphs alone, without goroutines, streams or time. Their
// messages wait until a step delivers them, in any order between graphs. A run costs a
// millisecond, so there are thousands.

// node is a graph with its subscriptions. Each queue of messages is in order, as a stream and a
// store are.
type node struct {
	name          string // of the replica
	cluster       string
	graph         *topology.Graph
	views         map[catalog.App]*catalog.View
	open          *catalog.View
	seen          map[catalog.App]uint64   // revisions of views
	objects       int                      // version that it has
	subscriptions map[string]*subscription // by cluster
}

// subscription is a stream of exports from one replica of another cluster.
type subscription struct {
	from     *node               // nil while there is none
	messages []topology.PeerView // sent, and not received yet
	last     topology.PeerView   // received last; a new stream resumes from it
	initial  bool                // the next message is an initial set
}

// exchange is one run.
type exchange struct {
	maker
	world         *world // the truth; it runs nothing
	nodes         []*node
	log           []string
	fault         string
	skipsMessages bool // an injected fault: some messages are lost
}

func newExchange(seed uint64) *exchange {
	m := maker{rand.New(rand.NewPCG(seed, 7))}
	t := &exchange{maker: m, world: newWorld(&plan{}, mutation{})}
	for _, c := range t.world.clusters {
		for _, r := range c.replicas {
			s := &node{
				name: r.host, cluster: c.name, views: map[catalog.App]*catalog.View{}, seen: map[catalog.App]uint64{}, subscriptions: map[string]*subscription{},
				graph: topology.NewGraph(topology.Config{Cluster: c.name, Network: c.network, Domain: catalog.DefaultDomain, Open: true}),
			}
			for _, other := range clusterNames {
				if other != c.name {
					s.subscriptions[other] = &subscription{}
					s.graph.Peer(other, nil)
				}
			}
			t.nodes = append(t.nodes, s)
		}
	}
	for _, s := range newPlan(seed, 0, nil).steps {
		if s.kind == "know" || s.kind == "select" || s.kind == "export" || s.kind == "instances" {
			s.do(t.world)
		}
	}
	return t
}

func (t *exchange) fail(format string, args ...any) {
	if t.fault == "" {
		t.fault = fmt.Sprintf(format, args...)
	}
}

func (t *exchange) note(format string, args ...any) {
	t.log = append(t.log, fmt.Sprintf(format, args...))
}

// step is one thing that happens.
func (t *exchange) step() {
	s := one(t.maker, t.nodes)
	others := slices.Sorted(maps.Keys(s.subscriptions))
	from := one(t.maker, others)
	h := s.subscriptions[from]
	switch n := t.IntN(20); {
	case n < 5:
		make := one(t.maker, []func(maker) (string, func(*world)){maker.selects, maker.exported, maker.exported, maker.knows, maker.moves, maker.handsOver, maker.handsOver})
		text, do := make(t.maker)
		t.note("%s", text)
		do(t.world)
	case n < 8:
		t.note("%s reads the store", s.name)
		t.readObjects(s)
	case n < 11:
		source := one(t.maker, sources)
		t.note("%s reads the instances from %s", s.name, source)
		t.readInstances(s, source)
	case n < 16:
		t.note("%s receives messages of %s", s.name, from)
		t.receive(s, from, 1+t.IntN(3))
	case n < 17:
		t.note("%s loses %s: cut after %d messages", s.name, from, len(h.messages)/2)
		t.receive(s, from, len(h.messages)/2)
		t.cut(s, from)
	case n < 18:
		t.note("the lease of %s runs out in %s", from, s.name)
		t.apply(s, topology.Change{Peers: []topology.PeerChange{{Cluster: from, Lease: topology.Expired}}})
	case n < 19:
		t.note("%s subscribes to %s again", s.name, from)
		t.subscribe(s, from)
	default:
		t.note("%s restarts", s.name)
		t.restart(s)
	}
}

// apply applies a change and checks the result.
func (t *exchange) apply(s *node, c topology.Change) {
	for _, u := range s.graph.Apply(c) {
		before := []*catalog.View{s.open}
		for _, v := range u.Views {
			before = append(before, s.views[v.App])
			t.publish(s, v)
		}
		if u.Open != nil {
			s.open = u.Open
		}
		t.checkOwners(s, before)
		for peer, view := range u.Peers {
			t.send(s, peer.Cluster, view)
		}
	}
}

// checkOwners checks that no address belongs to two apps of a cluster, while callers get their views
// one after the other: so those before count, too.
func (t *exchange) checkOwners(s *node, before []*catalog.View) {
	whose := owners{}
	for _, view := range append(slices.AppendSeq(before, maps.Values(s.views)), s.open) {
		if view == nil {
			continue
		}
		if wrong := whose.see(view); wrong != "" {
			t.fail("%s: %s", s.name, wrong)
		}
	}
}

// publish checks that the revision of an app's view never decreases.
func (t *exchange) publish(s *node, v topology.ViewUpdate) {
	if v.View == nil {
		delete(s.views, v.App)
		return
	}
	if v.View.Revision < s.seen[v.App] {
		t.fail("%s: the view of %s has revision %d after %d", s.name, v.App, v.View.Revision, s.seen[v.App])
	}
	s.views[v.App], s.seen[v.App] = v.View, v.View.Revision
}

// send queues a new view for a cluster's subscriptions.
func (t *exchange) send(s *node, peer string, view *topology.PeerView) {
	for _, other := range t.nodes {
		if h := other.subscriptions[s.cluster]; other.cluster == peer && h.from == s {
			if n := len(h.messages); n > 0 && h.messages[n-1].Revision >= view.Revision {
				t.fail("%s says revision %d to %s after %d", s.name, view.Revision, other.name, h.messages[n-1].Revision)
			}
			h.messages = append(h.messages, *view)
		}
	}
}

// receive delivers the next messages: differences, or an initial set.
func (t *exchange) receive(s *node, from string, n int) {
	h := s.subscriptions[from]
	for ; n > 0 && len(h.messages) > 0; n-- {
		for len(h.messages) > 1 && t.chance(40) { // a stream that is slow leaves out views
			h.messages = h.messages[1:]
		}
		next := h.messages[0]
		h.messages = h.messages[1:]
		change := topology.PeerChange{Cluster: from, Lease: topology.Fresh, Full: h.initial}
		if h.initial {
			for _, e := range next.Exports.All() {
				change.Put = append(change.Put, *e)
			}
		} else {
			same := func(a, b *topology.PeerExport) bool { return a == b }
			for edit := range next.Exports.Diff(&h.last.Exports, same) {
				if edit.Remove {
					change.Delete = append(change.Delete, edit.App)
				} else {
					change.Put = append(change.Put, *edit.Value)
				}
			}
		}
		h.last, h.initial = next, false
		if t.skipsMessages && t.chance(10) {
			continue
		}
		for _, part := range t.parts(change) {
			t.apply(s, topology.Change{Peers: []topology.PeerChange{part}})
		}
		if t.chance(10) {
			t.apply(s, topology.Change{Peers: []topology.PeerChange{change}}) // a repetition changes nothing
		}
	}
}

// parts splits a change at random: not at all, or into one change for each app, in any order.
func (t *exchange) parts(c topology.PeerChange) (all []topology.PeerChange) {
	if c.Full || t.chance(50) {
		return []topology.PeerChange{c}
	}
	for i := range c.Put {
		all = append(all, topology.PeerChange{Cluster: c.Cluster, Lease: c.Lease, Put: c.Put[i : i+1]})
	}
	for i := range c.Delete {
		all = append(all, topology.PeerChange{Cluster: c.Cluster, Lease: c.Lease, Delete: c.Delete[i : i+1]})
	}
	t.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func (t *exchange) cut(s *node, from string) {
	h := s.subscriptions[from]
	h.from, h.messages = nil, nil
}

// subscribe opens a stream to any replica of a cluster that has its objects.
func (t *exchange) subscribe(s *node, from string) {
	t.cut(s, from)
	var able []*node
	for _, other := range t.nodes {
		if other.cluster == from && other.objects > 0 {
			able = append(able, other)
		}
	}
	if len(able) == 0 {
		return
	}
	h := s.subscriptions[from]
	h.from, h.initial = one(t.maker, able), true
	h.messages = []topology.PeerView{*h.from.graph.Peer(s.cluster, nil)}
}

// readObjects updates a replica's objects, as a difference.
func (t *exchange) readObjects(s *node) {
	c := t.world.cluster(s.cluster)
	version, now, _ := c.objects.newest()
	had := c.objects.at(s.objects)
	change := topology.ObjectChange{Full: s.objects == 0}
	for key, o := range now {
		if had[key] != o {
			change.Put = append(change.Put, o)
		}
	}
	for key := range had {
		if now[key] == nil {
			change.Delete = append(change.Delete, key)
		}
	}
	s.objects = version
	t.apply(s, topology.Change{Objects: &change})
}

// sources tell of the same instances, one later than the other.
var sources = []string{"shared", "shared", "second"}

func (t *exchange) readInstances(s *node, source string) {
	_, now, _ := t.world.cluster(s.cluster).instances.newest()
	change := topology.InstanceChange{Source: source, Full: true, Put: slices.Collect(maps.Values(now))}
	t.apply(s, topology.Change{Instances: []topology.InstanceChange{change}})
}

// restart loses all state, and ends the streams of subscribers.
func (t *exchange) restart(s *node) {
	for _, other := range t.nodes {
		if h := other.subscriptions[s.cluster]; h != nil && h.from == s {
			t.cut(other, s.cluster)
		}
	}
	c := t.world.cluster(s.cluster)
	s.graph = topology.NewGraph(topology.Config{Cluster: c.name, Network: c.network, Domain: catalog.DefaultDomain, Open: true})
	s.views, s.open, s.objects = map[catalog.App]*catalog.View{}, nil, 0
	clear(s.seen)
	for other := range s.subscriptions {
		s.subscriptions[other] = &subscription{}
		s.graph.Peer(other, nil)
	}
}

// calm delivers everything, and checks the result against the truth.
func (t *exchange) calm() {
	for _, s := range t.nodes {
		t.readObjects(s)
		for _, source := range sources {
			t.readInstances(s, source)
		}
	}
	for _, s := range t.nodes {
		for from, h := range s.subscriptions {
			if h.from == nil {
				t.subscribe(s, from)
			}
			t.receive(s, from, len(h.messages))
			if _, known := t.objectsOf(s)[catalog.Key{Kind: catalog.KindCluster, Name: from}]; known {
				t.apply(s, topology.Change{Peers: []topology.PeerChange{{Cluster: from, Lease: topology.Fresh}}})
			}
		}
	}
	for _, s := range t.nodes {
		c := t.world.cluster(s.cluster)
		fresh := t.world.fresh(c)
		for _, a := range apps {
			view := s.views[a]
			if view == nil {
				view = s.open
			}
			wrong := t.world.differs(c, a, view, true)
			if wrong == "" {
				wrong = fresh.differs(a, view, true)
			}
			if wrong != "" {
				t.fail("%s, %s: %s", s.name, a, wrong)
			}
		}
	}
}

func (t *exchange) objectsOf(s *node) map[catalog.Key]catalog.Object {
	return t.world.cluster(s.cluster).objects.at(s.objects)
}

// run takes steps until a check fails.
func (t *exchange) run() {
	for range 60 {
		t.step()
		if t.chance(3) {
			t.note("calm")
			t.calm()
		}
		if t.fault != "" {
			return
		}
	}
	t.note("calm")
	t.calm()
}

// TestExchanges runs many seeds with messages that are late, repeated, partial or lost.
func TestExchanges(t *testing.T) {
	first, runs := *fromFlag, uint64(*runsFlag)
	switch {
	case *seedFlag != 0:
		first, runs = *seedFlag, 1
	case runs > 0:
	default:
		runs = uint64(raced.Fewer(raced.Fewer(3000)))
	}
	for seed := first; seed < first+runs; seed++ {
		w := newExchange(seed)
		if w.run(); w.fault == "" {
			continue
		}
		for i, line := range w.log {
			t.Logf("%4d  %s", i+1, line)
		}
		t.Fatalf("seed %d: %s\nreplay: go test ./tests/simulation -run TestExchanges -seed %d", seed, w.fault, seed)
	}
}

func TestASkippedMessageIsFound(t *testing.T) {
	for seed := range uint64(50) {
		w := newExchange(seed)
		w.skipsMessages = true
		if w.run(); w.fault != "" {
			t.Logf("found by seed %d: %s", seed, w.fault)
			return
		}
	}
	t.Error("not found in 50 runs")
}
