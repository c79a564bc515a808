package topology

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/raced"
)

// world is all that a graph was told, so that another can be told it at once.
type world struct {
	objects   map[catalog.Key]catalog.Object
	instances map[known]told
	peers     map[string]map[catalog.App]PeerExport
	leases    map[string]Lease
}

// told is an instance, and the rank of its source.
type told struct {
	catalog.Instance
	rank Rank
}

// known is an instance as a source names it.
type known struct {
	source string
	InstanceKey
}

func newWorld() *world {
	return &world{
		objects: map[catalog.Key]catalog.Object{}, instances: map[known]told{},
		peers: map[string]map[catalog.App]PeerExport{}, leases: map[string]Lease{},
	}
}

// takes notes a change. What it deletes goes before what it puts.
func (w *world) takes(c Change) {
	if c.Objects != nil {
		w.takesObjects(c.Objects)
	}
	for _, ic := range c.Instances {
		w.takesInstances(ic)
	}
	for _, p := range c.Peers {
		w.takesExports(p)
		switch {
		case p.Lease == Fresh || p.Lease == Damped || p.Lease == Resting || p.Lease == Expired && w.leases[p.Cluster] != Unchanged:
			w.leases[p.Cluster] = p.Lease
		case p.Lease == Forgotten:
			delete(w.leases, p.Cluster)
		}
	}
}

func (w *world) takesInstances(c InstanceChange) {
	gone := func(k known) bool {
		named := slices.ContainsFunc(c.Put, func(i catalog.Instance) bool { return k == known{c.Source, InstanceKey{i.App, i.ID}} })
		return k.source == c.Source && (c.Full && !named || slices.Contains(c.Delete, k.InstanceKey))
	}
	maps.DeleteFunc(w.instances, func(k known, _ told) bool { return gone(k) })
	for _, i := range c.Put {
		w.instances[known{c.Source, InstanceKey{i.App, i.ID}}] = told{i, c.Rank}
	}
}

// inAnyOrder are the instances one by one: nothing follows from the order.
func (w *world) inAnyOrder() (all []InstanceChange) {
	for k, i := range w.instances {
		all = append(all, InstanceChange{Source: k.source, Rank: i.rank, Put: []catalog.Instance{i.Instance}})
	}
	return all
}

func (w *world) takesObjects(c *ObjectChange) {
	if c.Full {
		maps.DeleteFunc(w.objects, func(k catalog.Key, _ catalog.Object) bool { return !slices.Contains(c.Keep, k) })
	}
	for _, k := range c.Delete {
		delete(w.objects, k)
	}
	for _, o := range c.Put {
		w.objects[o.Key()] = o
	}
}

// afresh is a graph that was told everything at once.
func (w *world) afresh(cfg Config) *Graph {
	g := NewGraph(cfg)
	g.Peer("east", nil)
	g.Apply(Change{
		Objects:   &ObjectChange{Full: true, Put: slices.Collect(maps.Values(w.objects))},
		Instances: w.inAnyOrder(),
	})
	w.tellExports(g)
	return g
}

// afreshWith is afresh with the ramps that are under way in another graph, and with what others were
// asked of late: only history tells that.
func (w *world) afreshWith(cfg Config, other *Graph) *Graph {
	g := w.afresh(cfg)
	for key, r := range other.ramps.all {
		if key.node != nil {
			key.node = g.node(key.node.app)
		}
		g.ramps.all[key] = r
		g.ramps.dirtyRamp(key)
	}
	g.interests.kept, g.interests.asked, g.interests.now = maps.Clone(other.interests.kept), maps.Clone(other.interests.asked), other.interests.now
	for _, c := range g.clusters {
		g.dirtyCluster(c)
	}
	g.flush()
	return g
}

// checkRamps holds what is told of ramps to those under way.
func checkRamps(t *testing.T, g *Graph, what string) {
	t.Helper()
	next := never
	for key, r := range g.ramps.all {
		percent, at := r.step(g.ramps.now)
		if next = min(next, at); percent != r.percent || percent == 0 {
			t.Fatalf("%s: a ramp is at %d %%, want %d", what, r.percent, percent)
		}
		n, c := key.node, g.clusters[key.cluster]
		if n != nil && g.apps[n.app] != n {
			t.Fatalf("%s: %s ramps, and is forgotten", what, n.app)
		}
		ready := key.cluster == "" && len(n.ready) > 0 || c != nil && c.heard && !c.lapsed && (n == nil || n.remote.of(c.name).Ready > 0)
		if !ready {
			t.Fatalf("%s: %+v ramps, and is not ready", what, key)
		}
	}
	if due, ok := g.NextStep(); ok && due > next || !ok && next != never {
		t.Fatalf("%s: the next step is at %s, and one is due at %s", what, due, next)
	}
}

// checkShards holds each backend to the one rule that history leaves: shards are shared
// out evenly.
func checkShards(t *testing.T, g *Graph) {
	t.Helper()
	for _, b := range g.exports.gateway.Backends.All() {
		balanced(t, b, shardsOf(len(b.Instances)))
	}
}

// ranges are any, or without some of the addresses that are named.
func ranges(r *rand.Rand) []netip.Prefix {
	return [][]netip.Prefix{nil, nil, {netip.MustParsePrefix("10.0.0.0/30")}}[r.IntN(3)]
}

// named is an address: one in five is loopback.
func named(r *rand.Rand, last int) string {
	return []string{"10.0.0", "10.0.0", "10.0.0", "10.0.0", "127.0.0"}[r.IntN(5)] + fmt.Sprintf(".%d", r.IntN(last))
}

func appGateways(r *rand.Rand) []catalog.AppGateway {
	if r.IntN(2) == 0 {
		return nil
	}
	return []catalog.AppGateway{{App: app("a"), Address: fmt.Sprintf("10.9.1.%d:50002", r.IntN(3))}}
}

func randomLabels(r *rand.Rand, instances int) *catalog.Labels {
	of := make([]string, instances)
	for i := range of {
		of[i] = []string{"", "a", "b"}[r.IntN(3)]
	}
	return catalog.NewLabels(of)
}

func randomChange(r *rand.Rand) Change {
	ids := []string{"a", "b", "c", "d", "e"}
	names := []string{"east", "north", "south"}
	id := func() string { return ids[r.IntN(len(ids))] }
	source := func() string { return []string{"test", "other", "stream", "static", "pods"}[r.IntN(5)] }
	name := func() string { return names[r.IntN(len(names))] }
	switch r.IntN(12) {
	case 11:
		at := catalog.App{Namespace: []string{"shop", catalog.DefaultName}[r.IntN(2)], ID: catalog.DefaultName}
		if r.IntN(3) == 0 {
			return deletes(catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: at.Namespace, Name: at.ID})
		}
		o := &catalog.AppEndpoints{App: at}
		for _, callee := range r.Perm(len(ids))[:r.IntN(len(ids))] {
			e := calls(ids[callee])
			if r.IntN(2) == 0 {
				e.App.Namespace = at.Namespace
			}
			for _, cluster := range []string{"local", name()}[:r.IntN(3)] {
				e.Routes = append(e.Routes, via(cluster, uint32(r.IntN(2)), 1))
			}
			o.Endpoints = append(o.Endpoints, e)
			if r.IntN(3) == 0 { // the same app, perhaps by another name
				e.App.Namespace = "shop"
				o.Endpoints = append(o.Endpoints, e)
			}
		}
		return objects(o)
	case 0, 1:
		var endpoints []catalog.Endpoint
		for _, callee := range r.Perm(len(ids))[:r.IntN(len(ids))] {
			e := calls(ids[callee])
			for _, cluster := range []string{"local", name()}[:r.IntN(3)] {
				route := via(cluster, uint32(r.IntN(2)), uint32(r.IntN(3)))
				route.Versions = []catalog.Versions{"", "a", "?"}[r.IntN(3)]
				e.Routes = append(e.Routes, route)
			}
			e.WhenStale = catalog.WhenStale(r.IntN(2))
			e.Locality = catalog.Locality(r.IntN(3))
			endpoints = append(endpoints, e)
		}
		return objects(selects(id(), endpoints...))
	case 2:
		return deletes(catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: "shop", Name: id()})
	case 3:
		return objects(exports(id(), []catalog.Allow{{Cluster: name()}, {App: id()}}[:r.IntN(3)]...))
	case 4:
		return deletes(catalog.Key{Kind: catalog.KindAppExport, Namespace: "shop", Name: id()})
	case 5:
		if r.IntN(3) == 0 {
			return objects(randomGuest(r, name(), id))
		}
		return objects(&catalog.Cluster{Name: name(), AppGateways: appGateways(r), Gateways: []string{fmt.Sprintf("10.9.0.%d:15443", r.IntN(3))}, Network: []string{"", "net-1"}[r.IntN(2)], NetworkRanges: ranges(r), RampUp: time.Duration(r.IntN(3)) * 10 * second, Trust: catalog.Trust{AppDomain: []string{"", "one", "two"}[r.IntN(3)]}})
	case 6:
		return deletes(catalog.Key{Kind: catalog.KindCluster, Name: name()})
	case 7:
		c := stops(id(), fmt.Sprint(r.IntN(3)))
		c.Instances[0].Source = source()
		return c
	case 8:
		e := has(id(), uint32(r.IntN(3)))
		e.Shards, e.Draining = r.Uint32N(4), r.Uint32N(2)
		if r.IntN(3) == 0 {
			e.Allow = []catalog.Allow{{App: id()}}
		}
		for range r.IntN(3) {
			e.Addresses = append(e.Addresses, named(r, 7)+":50002")
			e.Ready = uint32(len(e.Addresses))
		}
		e.Zones, e.Versions = randomLabels(r, len(e.Addresses)), randomLabels(r, len(e.Addresses))
		if len(e.Addresses) == 0 && r.IntN(2) == 0 {
			e.Instances = []uint32{7, 8, 9}[:e.Ready]
			e.Zones, e.Versions = randomLabels(r, len(e.Instances)), randomLabels(r, len(e.Instances))
		}
		if r.IntN(4) == 0 {
			e = PeerExport{App: e.App, Allow: e.Allow, Ready: min(e.Ready, 1), Named: true}
		}
		return says(name(), e)
	case 9:
		if r.IntN(2) == 0 {
			return Change{Peers: []PeerChange{{Cluster: name(), Delete: []catalog.App{app(id())}}}}
		}
		return lease(name(), Lease(1+r.IntN(5)))
	default:
		i := at(id(), fmt.Sprint(r.IntN(3)), fmt.Sprintf("%s:5000%d", named(r, 5), 2+r.IntN(2)))
		i.Draining = r.IntN(4) == 0
		i.Zone, i.Version = []string{"", "a", "b"}[r.IntN(3)], []string{"", "a", "b"}[r.IntN(3)]
		i.Since, i.Unverified = int64(r.IntN(4)), r.IntN(4) == 0
		from := source()
		rank := map[string]Rank{"stream": Live, "other": Live, "static": Written, "pods": Scheduled}[from]
		if r.IntN(2) == 0 {
			i.Calls, _ = catalog.ParseCalls("shop", strings.Join(ids[:1+r.IntN(3)], ","))
		}
		return Change{Instances: []InstanceChange{{Source: from, Rank: rank, Put: []catalog.Instance{i}}}}
	}
}

// randomGuest is a cluster that joins for a while.
func randomGuest(r *rand.Rand, name string, id func() string) *catalog.Cluster {
	g := &catalog.Guest{Apps: []catalog.App{app(id())}}
	if more := app(id()); more != g.Apps[0] {
		g.Apps = append(g.Apps, more)
	}
	for range r.IntN(4) {
		take := catalog.Take{App: g.Apps[r.IntN(len(g.Apps))]}
		if caller := app(id()); r.IntN(2) == 0 && caller != take.App {
			take.Caller = caller
		} else {
			take.Header = catalog.HeaderValue{Name: "x-dev", Value: id()}
		}
		g.Takes = append(g.Takes, take)
	}
	return &catalog.Cluster{Name: name, Tunnel: catalog.TunnelAccept, Trust: catalog.Trust{AppDomain: []string{"", "guest"}[r.IntN(2)]}, Guest: g}
}

// TestStepByStepIsAllAtOnce holds the incremental graph to one that is built afresh
// from the same state, after every one of many random changes, and a look ahead to
// what then happens.
func TestStepByStepIsAllAtOnce(t *testing.T) {
	config := west
	config.Network = "net-1"
	seeds := uint64(raced.Fewer(30))
	ramping := 0
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 1))
		config.PreferZone = seed%2 == 1
		config.Declared = Declared{Annotations: seed%3 > 0, Sidecars: seed%3 > 1}
		w, g := newWorld(), NewGraph(config)
		g.Peer("east", nil)
		g.Apply(full())
		for step := range 120 {
			if step == 20 {
				g.Settle()
			}
			change := randomChange(r)
			change.Now = time.Duration(step)*second + time.Duration(r.IntN(1000))*time.Millisecond
			what := fmt.Sprintf("seed %d, step %d, %+v", seed, step, change)
			if change.Objects != nil {
				g.Apply(Change{Now: change.Now}) // what time does is not foretold
			}
			expected := lookAhead(t, g, change, what)
			before := g.Revision()
			was := serve(g)
			updates := g.Apply(change)
			u := updates[len(updates)-1]
			w.takes(change)
			if u.Revision < before || g.Revision() != u.Revision {
				t.Fatalf("%s: revision %d after %d", what, u.Revision, before)
			}
			is := serve(g)
			checkRamps(t, g, what)
			checkShards(t, g)
			checkDirect(t, g, what)
			checkAccess(t, g, what)
			ramping += len(g.ramps.all)
			if is["wrong"] != "" {
				t.Fatalf("%s: %s", what, is["wrong"])
			}
			if want := serve(w.afreshWith(config, g)); !reflect.DeepEqual(is, want) {
				t.Fatalf("%s: step by step and all at once differ:\n%s", what, is.unlike(want))
			}
			if change.Objects != nil {
				compareEffects(t, what, expected, was, is)
			}
		}
	}
	if ramping == 0 && !raced.Enabled {
		t.Error("nothing ever ramped")
	}
}

// lookAhead tries a change and checks that the graph is as it was.
func lookAhead(t *testing.T, g *Graph, change Change, what string) []Effect {
	t.Helper()
	if change.Objects == nil {
		return nil
	}
	revision, open, gateway, clusters, was := g.Revision(), g.views.open, g.exports.gateway, g.imports.gateways, serve(g)
	views, ramps := map[catalog.App]*catalog.View{}, maps.Clone(g.ramps.all)
	for a, n := range g.apps {
		views[a] = n.view
	}
	tried, err := g.Try(*change.Objects, func(Facts) {})
	if err != nil {
		t.Fatal(err)
	}
	if g.Revision() != revision || g.views.open != open || g.exports.gateway != gateway || g.imports.gateways != clusters || !reflect.DeepEqual(serve(g), was) || !maps.Equal(g.ramps.all, ramps) {
		t.Fatalf("%s: trying it changed the graph", what)
	}
	for a, view := range views {
		if n := g.apps[a]; (n == nil && view != nil) || (n != nil && n.view != view) {
			t.Fatalf("%s: trying it changed the view of %s", what, a)
		}
	}
	return tried.Lookups
}

// served is what callers get: by "caller callee", everything of a decision that does
// not depend on chance.
type served map[string]string

// unlike has what two differ in.
func (s served) unlike(o served) (text string) {
	for key := range s {
		if s[key] != o[key] {
			text += fmt.Sprintf("%s:\n  %s\n  %s\n", key, s[key], o[key])
		}
	}
	for key := range o {
		if _, both := s[key]; !both {
			text += fmt.Sprintf("%s:\n  nothing\n  %s\n", key, o[key])
		}
	}
	return text
}

func serve(g *Graph) served {
	s := served{}
	for _, from := range []string{"a", "b", "c", "d", "e", "stranger"} {
		v := g.viewOf(app(from))
		for a, e := range v.Entries.All() {
			rule := e.Rule.String()
			if rule != catalog.SelfRule {
				rule = ""
			}
			s[from+" "+a.ID] = fmt.Sprintf("%v %+v %+v %v", e.Outcome(), e.Routes, e.Takes(), rule)
			for _, r := range e.Routes {
				if g.clusters[r.Cluster].guest() != nil && r.Usable() {
					s["wrong"] += fmt.Sprintf("%s calls %s at guest %s without a take; ", from, a, r.Cluster)
				}
			}
		}
		s[from+" gateways"] = fmt.Sprint(v.Gateways.Addresses)
	}
	for a, b := range g.exports.gateway.Backends.All() {
		s["gateway "+a.ID] = fmt.Sprint(b.Instances)
	}
	for a, e := range g.exports.peers[PeerKey{Cluster: "east"}].Exports.All() {
		s["east "+a.ID] = fmt.Sprintf("%+v", *e)
	}
	for name, tunnels := range g.exports.gateway.Tunnels {
		for a := range tunnels.Apps.All() {
			s["tunnel "+name+" "+a.ID] = fmt.Sprint(tunnels.Heard)
		}
	}
	for i := range 5 {
		ip := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
		caller, ok := g.owners.callers.Get(ip)
		s["caller "+ip.String()] = fmt.Sprint(caller, ok)
	}
	s["callers"] = fmt.Sprint(g.owners.callers.Len())
	s["clusters"] = fmt.Sprint(g.imports.gateways.Addresses, g.imports.gateways.Apps)
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		a := g.accesses.keep(app(id), 0)
		s["access of "+id] = fmt.Sprint(slices.SortedFunc(a.Declared.All(), catalog.App.Compare), slices.SortedFunc(a.Undeclared.All(), catalog.App.Compare), a.Remote.All())
	}
	stats := g.Stats()
	s["stats"] = fmt.Sprintf("%+v", stats)
	return s
}

// compareEffects holds what Try foretold to what changed.
func compareEffects(t *testing.T, what string, foretold []Effect, was, is served) {
	t.Helper()
	said := map[string]bool{}
	for _, e := range foretold {
		if e.Caller != (catalog.App{}) {
			said[e.Caller.ID+" "+e.App.ID] = true
		}
	}
	for _, from := range []string{"a", "b", "c", "d", "e"} {
		for _, to := range []string{"a", "b", "c", "d", "e"} {
			key := from + " " + to
			if routes(was[key]) != routes(is[key]) && !said[key] && !defaulted(foretold, to) {
				t.Fatalf("%s: %s changed unforetold\nfrom %s\nto   %s", what, key, was[key], is[key])
			}
			if routes(was[key]) == routes(is[key]) && said[key] {
				t.Fatalf("%s: %s was foretold to change, and did not: %s", what, key, was[key])
			}
		}
	}
}

func defaulted(foretold []Effect, to string) bool {
	return slices.ContainsFunc(foretold, func(e Effect) bool { return e.Caller == (catalog.App{}) && e.App.ID == to })
}

func routes(s string) string {
	if i := len(s) - len(catalog.SelfRule); i > 0 && s[i:] == catalog.SelfRule {
		return s[:i]
	}
	return s
}
