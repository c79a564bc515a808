package topology

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/raced"
)

// randomBatch is several changes in one: puts and deletions of the same keys, all three
// sources at once, and full sets.
func randomBatch(r *rand.Rand) Change {
	var batch Change
	for range 1 + r.IntN(4) {
		c := randomChange(r)
		if c.Objects != nil {
			if batch.Objects == nil {
				batch.Objects = &ObjectChange{}
			}
			batch.Objects.Put = append(batch.Objects.Put, c.Objects.Put...)
			batch.Objects.Delete = append(batch.Objects.Delete, c.Objects.Delete...)
		}
		batch.Instances = append(batch.Instances, c.Instances...)
		batch.Peers = append(batch.Peers, c.Peers...)
	}
	if batch.Objects != nil && r.IntN(4) == 0 {
		batch.Objects.Full = true
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			for _, kind := range []catalog.Kind{catalog.KindAppEndpoints, catalog.KindAppExport} {
				if r.IntN(3) == 0 {
					batch.Objects.Keep = append(batch.Objects.Keep, catalog.Key{Kind: kind, Namespace: "shop", Name: id})
				}
			}
		}
	}
	for i := range batch.Instances {
		batch.Instances[i].Full = r.IntN(6) == 0
	}
	for i := range batch.Peers {
		batch.Peers[i].Full = r.IntN(6) == 0
	}
	return batch
}

// audience is what followers of a topology have by now.
type audience struct {
	open    *catalog.View
	gateway *catalog.GatewayTable
	own     map[catalog.App]*catalog.View
	peers   map[PeerKey]*PeerView

	callers  *catalog.Callers
	clusters *catalog.Gateways
	access   map[catalog.App]*catalog.Access
}

func (a *audience) takes(updates ...Update) {
	for _, u := range updates {
		a.take(u)
	}
}

func (a *audience) take(u Update) {
	if u.Open != nil {
		a.open = u.Open
	}
	if u.Gateway != nil {
		a.gateway = u.Gateway
	}
	for _, v := range u.Views {
		if a.own[v.App] = v.View; v.View == nil {
			delete(a.own, v.App)
		}
	}
	for name, view := range u.Peers {
		a.peers[name] = view
	}
	if a.access == nil {
		a.access = map[catalog.App]*catalog.Access{}
	}
	maps.Copy(a.access, u.Access)
	if u.Callers != nil {
		a.callers = u.Callers
	}
	if u.Clusters != nil {
		a.clusters = u.Clusters
	}
}

func (a *audience) view(app catalog.App) *catalog.View {
	if own := a.own[app]; own != nil {
		return own
	}
	return a.open
}

// hears gives an update to the audience, and checks that it has all that stands and
// that no revision went back or stands for two views.
func (a *audience) hears(t *testing.T, g *Graph, updates []Update, what string) {
	t.Helper()
	before := map[string]*catalog.View{}
	for _, id := range []string{"a", "b", "c", "d", "e", "stranger"} {
		before[id] = a.view(app(id))
	}
	a.takes(updates...)
	for id, was := range before {
		is := a.view(app(id))
		if is != g.viewOf(app(id)) {
			t.Fatalf("%s: %s was not told of its view:\n%+v\n%+v", what, id, is, g.viewOf(app(id)))
		}
		if was != nil && is != was && is.Revision <= was.Revision {
			t.Fatalf("%s: %s gets another view at revision %d after %d", what, id, is.Revision, was.Revision)
		}
	}
	if a.gateway != g.exports.gateway || a.peers[PeerKey{Cluster: "east"}] != g.exports.peers[PeerKey{Cluster: "east"}] {
		t.Fatalf("%s: the gateway or a peer was not told", what)
	}
	if kept, is := g.interests.kept["east"], newInterests(g.nodes, g.actors).keep("east"); !kept.Apps.Same(is.Apps) || kept.Used != is.Used {
		t.Fatalf("%s: of east is kept that %v are needed, used %v; want %v, %v", what, ids(kept.Apps), kept.Used, ids(is.Apps), is.Used)
	}
	for app, access := range a.access {
		if now := g.accesses.followed[app]; access != now {
			t.Fatalf("%s: %s was not told who may call it:\n%+v\n%+v", what, app, access, now)
		}
	}
	if a.callers != g.owners.callers || a.clusters != g.imports.gateways {
		t.Fatalf("%s: who asks from where, or the gateways of all clusters, was not told", what)
	}
}

// TestBatchesAreAllAtOnceAndReachEveryFollower is TestStepByStepIsAllAtOnce with
// changes of every kind in one, and holds what is published to what stands.
func TestBatchesAreAllAtOnceAndReachEveryFollower(t *testing.T) {
	config := west
	config.Network = "net-1"
	seeds := uint64(raced.Fewer(20))
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 2))
		config.Open = seed%4 != 0
		w, g := newWorld(), NewGraph(config)
		followers := &audience{own: map[catalog.App]*catalog.View{}, peers: map[PeerKey]*PeerView{}}
		g.Peer("east", nil)
		g.interests.keep("east")
		for range r.IntN(5) { // instances and peers come before the store's full set, too
			early := Change{Instances: randomBatch(r).Instances, Peers: randomBatch(r).Peers}
			followers.takes(g.Apply(early)...)
			w.takes(early)
		}
		followers.takes(g.Apply(full())...)
		g.Settle()
		for step := range 80 {
			batch := randomBatch(r)
			batch.Now = time.Duration(step) * 2 * second
			what := fmt.Sprintf("seed %d, step %d, %+v", seed, step, batch)
			if batch.Objects != nil && !batch.Objects.Full {
				lookAhead(t, g, batch, what)
			}
			followers.hears(t, g, g.Apply(batch), what)
			w.takes(batch)
			checkRamps(t, g, what)
			checkShards(t, g)
			checkDirect(t, g, what)
			checkAccess(t, g, what)
			if is, want := serve(g), serve(w.afreshWith(config, g)); !reflect.DeepEqual(is, want) {
				t.Fatalf("%s: step by step and all at once differ:\n%s", what, is.unlike(want))
			}
			if r.IntN(5) == 0 {
				raised := app([]string{"a", "b", "stranger"}[r.IntN(3)])
				floor := g.Revision() + uint64(r.IntN(4))
				followers.hears(t, g, []Update{g.Raise(raised, floor)}, what+" raised")
				if v := g.viewOf(raised); v.Revision < floor {
					t.Fatalf("%s: raised to %d, and is at %d", what, floor, v.Revision)
				}
			}
		}
	}
}
