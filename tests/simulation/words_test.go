package simulation

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// This is the same at a smaller scale: graphs alone, without goroutines, streams or time.
// What they say to each other are words that wait until a step delivers them, in whatever
// order between the graphs. So a run costs a millisecond, and there are thousands.

// speaker is a graph, and what it has yet to be told. Each queue is in order, as a stream
// and a store are.
type speaker struct {
	name    string // of the replica
	cluster string
	graph   *topology.Graph
	views   map[catalog.App]*catalog.View
	open    *catalog.View
	seen    map[catalog.App]uint64 // revisions of views
	objects int                    // version that it has
	running int
	hears   map[string]*hearing // by cluster
}

// hearing is a stream of exports of one replica of another cluster.
type hearing struct {
	from  *speaker            // nil while there is none
	words []topology.PeerView // said, and not heard yet
	last  topology.PeerView   // heard last; what a new stream goes on from
	first bool                // the next word is a first set: all there is
}

// talk is one run of it.
type talk struct {
	maker
	world    *world // what is true; it runs nothing
	speakers []*speaker
	lines    []string
	fault    string
	skips    bool // a fault put in: now and then a word is taken for heard that was not
}

func newTalk(seed uint64) *talk {
	m := maker{rand.New(rand.NewPCG(seed, 7))}
	t := &talk{maker: m, world: newWorld(&plan{}, mutation{})}
	for _, c := range t.world.clusters {
		for _, r := range c.replicas {
			s := &speaker{
				name: r.host, cluster: c.name, views: map[catalog.App]*catalog.View{}, seen: map[catalog.App]uint64{}, hears: map[string]*hearing{},
				graph: topology.NewGraph(topology.Config{Cluster: c.name, Network: c.network, Domain: catalog.DefaultDomain, Open: true}),
			}
			for _, other := range clusterNames {
				if other != c.name {
					s.hears[other] = &hearing{}
					s.graph.Peer(other)
				}
			}
			t.speakers = append(t.speakers, s)
		}
	}
	for _, s := range newPlan(seed, 0, nil).steps {
		if s.kind == "know" || s.kind == "select" || s.kind == "export" || s.kind == "instances" {
			s.do(t.world)
		}
	}
	return t
}

func (t *talk) fail(format string, args ...any) {
	if t.fault == "" {
		t.fault = fmt.Sprintf(format, args...)
	}
}

func (t *talk) say(format string, args ...any) {
	t.lines = append(t.lines, fmt.Sprintf(format, args...))
}

// step is one thing that happens.
func (t *talk) step() {
	s := one(t.maker, t.speakers)
	others := slices.Sorted(maps.Keys(s.hears))
	from := one(t.maker, others)
	h := s.hears[from]
	switch n := t.IntN(20); {
	case n < 5:
		make := one(t.maker, []func(maker) (string, func(*world)){maker.selects, maker.exported, maker.exported, maker.knows, maker.moves, maker.handsOver, maker.handsOver})
		text, do := make(t.maker)
		t.say("%s", text)
		do(t.world)
	case n < 8:
		t.say("%s reads the store", s.name)
		t.reads(s)
	case n < 11:
		t.say("%s reads the instances", s.name)
		t.finds(s)
	case n < 16:
		t.say("%s hears a word of %s", s.name, from)
		t.hear(s, from, 1+t.IntN(3))
	case n < 17:
		t.say("%s hears %s no more: cut after %d words", s.name, from, len(h.words)/2)
		t.hear(s, from, len(h.words)/2)
		t.cut(s, from)
	case n < 18:
		t.say("the lease of %s runs out in %s", from, s.name)
		t.apply(s, topology.Change{Peers: []topology.PeerChange{{Cluster: from, Lease: topology.Expired}}})
	case n < 19:
		t.say("%s listens to %s anew", s.name, from)
		t.listen(s, from)
	default:
		t.say("%s starts anew", s.name)
		t.restart(s)
	}
}

// apply applies a change and looks at what comes of it.
func (t *talk) apply(s *speaker, c topology.Change) {
	for _, u := range s.graph.Apply(c) {
		for _, v := range u.Views {
			t.publish(s, v)
		}
		if u.Open != nil {
			s.open = u.Open
		}
		t.checkOwners(s)
		for peer, view := range u.Peers {
			t.tell(s, peer, view)
		}
	}
}

// checkOwners sees that no address is that of two apps of a cluster.
func (t *talk) checkOwners(s *speaker) {
	whose := owners{}
	views := []*catalog.View{s.open}
	for _, view := range s.views {
		views = append(views, view)
	}
	for _, view := range views {
		if view == nil {
			continue
		}
		if wrong := whose.see(view); wrong != "" {
			t.fail("%s: %s", s.name, wrong)
		}
	}
}

// publish sees that no revision of an app's view goes back.
func (t *talk) publish(s *speaker, v topology.ViewUpdate) {
	if v.View == nil {
		delete(s.views, v.App)
		return
	}
	if v.View.Revision < s.seen[v.App] {
		t.fail("%s: the view of %s has revision %d after %d", s.name, v.App, v.View.Revision, s.seen[v.App])
	}
	s.views[v.App], s.seen[v.App] = v.View, v.View.Revision
}

// tell says a new view to those in a cluster who listen.
func (t *talk) tell(s *speaker, peer string, view *topology.PeerView) {
	for _, other := range t.speakers {
		if h := other.hears[s.cluster]; other.cluster == peer && h.from == s {
			if n := len(h.words); n > 0 && h.words[n-1].Revision >= view.Revision {
				t.fail("%s says revision %d to %s after %d", s.name, view.Revision, other.name, h.words[n-1].Revision)
			}
			h.words = append(h.words, *view)
		}
	}
}

// hear takes the next words in, as differences, or the first set as a whole.
func (t *talk) hear(s *speaker, from string, n int) {
	h := s.hears[from]
	for ; n > 0 && len(h.words) > 0; n-- {
		next := h.words[0]
		h.words = h.words[1:]
		change := topology.PeerChange{Cluster: from, Lease: topology.Fresh, Full: h.first}
		if h.first {
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
		h.last, h.first = next, false
		if t.skips && t.chance(10) {
			continue
		}
		for _, part := range t.parts(change) {
			t.apply(s, topology.Change{Peers: []topology.PeerChange{part}})
		}
		if t.chance(10) {
			t.apply(s, topology.Change{Peers: []topology.PeerChange{change}}) // twice is as good as once
		}
	}
}

// parts are what is told of a word at a time: all, or one app after the other in any order.
func (t *talk) parts(c topology.PeerChange) (all []topology.PeerChange) {
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

func (t *talk) cut(s *speaker, from string) {
	h := s.hears[from]
	h.from, h.words = nil, nil
}

// listen opens a stream to any replica of a cluster that has its objects.
func (t *talk) listen(s *speaker, from string) {
	t.cut(s, from)
	var able []*speaker
	for _, other := range t.speakers {
		if other.cluster == from && other.objects > 0 {
			able = append(able, other)
		}
	}
	if len(able) == 0 {
		return
	}
	h := s.hears[from]
	h.from, h.first = one(t.maker, able), true
	h.words = []topology.PeerView{*h.from.graph.Peer(s.cluster)}
}

// reads brings a replica's objects up to date, as a difference from what it had.
func (t *talk) reads(s *speaker) {
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

func (t *talk) finds(s *speaker) {
	version, now, _ := t.world.cluster(s.cluster).instances.newest()
	s.running = version
	change := topology.InstanceChange{Source: "shared", Full: true, Put: slices.Collect(maps.Values(now))}
	t.apply(s, topology.Change{Instances: []topology.InstanceChange{change}})
}

// restart forgets all; whoever listened is cut off.
func (t *talk) restart(s *speaker) {
	for _, other := range t.speakers {
		if h := other.hears[s.cluster]; h != nil && h.from == s {
			t.cut(other, s.cluster)
		}
	}
	c := t.world.cluster(s.cluster)
	s.graph = topology.NewGraph(topology.Config{Cluster: c.name, Network: c.network, Domain: catalog.DefaultDomain, Open: true})
	s.views, s.open, s.objects = map[catalog.App]*catalog.View{}, nil, 0
	clear(s.seen)
	for other := range s.hears {
		s.hears[other] = &hearing{}
		s.graph.Peer(other)
	}
}

// calm has everybody told of everything, and looks whether all is as the truth has it.
func (t *talk) calm() {
	for _, s := range t.speakers {
		t.reads(s)
		t.finds(s)
	}
	for _, s := range t.speakers {
		for from, h := range s.hears {
			if h.from == nil {
				t.listen(s, from)
			}
			t.hear(s, from, len(h.words))
			if _, known := t.known(s)[catalog.Key{Kind: catalog.KindCluster, Name: from}]; known {
				t.apply(s, topology.Change{Peers: []topology.PeerChange{{Cluster: from, Lease: topology.Fresh}}})
			}
		}
	}
	for _, s := range t.speakers {
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

func (t *talk) known(s *speaker) map[catalog.Key]catalog.Object {
	return t.world.cluster(s.cluster).objects.at(s.objects)
}

// run takes steps until something is wrong.
func (t *talk) run() {
	for range 60 {
		t.step()
		if t.chance(3) {
			t.say("calm")
			t.calm()
		}
		if t.fault != "" {
			return
		}
	}
	t.say("calm")
	t.calm()
}

// TestWords runs many seeds of words that come late, twice, in part or not at all.
func TestWords(t *testing.T) {
	first, runs := *fromFlag, uint64(*runsFlag)
	switch {
	case *seedFlag != 0:
		first, runs = *seedFlag, 1
	case runs > 0:
	case testing.Short():
		runs = 300
	default:
		runs = 3000 / slow
	}
	for seed := first; seed < first+runs; seed++ {
		w := newTalk(seed)
		if w.run(); w.fault == "" {
			continue
		}
		for i, line := range w.lines {
			t.Logf("%4d  %s", i+1, line)
		}
		t.Fatalf("seed %d: %s\nreplay: go test ./tests/simulation -run TestWords -seed %d", seed, w.fault, seed)
	}
}

func TestAWordThatIsSkippedIsFound(t *testing.T) {
	for seed := range uint64(50) {
		w := newTalk(seed)
		w.skips = true
		if w.run(); w.fault != "" {
			t.Logf("found by seed %d: %s", seed, w.fault)
			return
		}
	}
	t.Error("not found in 50 runs")
}
