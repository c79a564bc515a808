package simulation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/peering/peeringtest"
)

// actorType is the type of actors that has owners, and who selects it: every app with a selection.
const actorType = "Basket"

var actorKeys = []catalog.Key{basket("a", "").Key(), basket("b", "").Key()}

func basket(name, owner string) *catalog.ActorType {
	return &catalog.ActorType{Namespace: "shop", Name: name, Type: actorType, Owner: owner, Allow: []catalog.Allow{{}}}
}

// owns writes an object that names the owner of the actors, or deletes one.
func (m maker) owns() (string, func(*world)) {
	in, key := one(m, clusterNames), actorKeys[0]
	if m.chance(20) {
		key = actorKeys[1]
	}
	if m.chance(40) {
		return fmt.Sprintf("%s in %s no more", key.Name, in), func(w *world) { w.remove(in, key) }
	}
	o := basket(key.Name, in)
	if m.chance(30) {
		o.Owner = one(m, clusterNames)
	}
	if m.chance(20) {
		o.Allow = []catalog.Allow{{Cluster: one(m, clusterNames)}}
	}
	o.Draining = m.chance(20)
	return fmt.Sprintf("%s in %s: %s, draining %v, to %v", key.Name, in, o.Owner, o.Draining, o.Allow), func(w *world) { w.put(in, o) }
}

// handsOverActors moves the actors to another cluster as operators do, step by step, while links are lost.
func (m maker) handsOverActors() (string, func(*world)) {
	from := one(m, clusterNames)
	to := one(m, slices.DeleteFunc(slices.Clone(clusterNames), func(name string) bool { return name == from }))
	lost, pairs := m.between()
	pause := m.pause()
	return fmt.Sprintf("from %s to %s, %s between steps, without the paths of %s", from, to, pause, lost), func(w *world) {
		for _, name := range clusterNames {
			w.remove(name, actorKeys[1])
			if name != from {
				w.remove(name, actorKeys[0])
			}
		}
		w.put(from, basket("a", from))
		w.pass(pause)
		paths(pairs, peeringtest.Path{Down: true})(w)
		drains := basket("a", from)
		drains.Draining = true
		w.put(from, drains)
		w.pass(pause)
		w.remove(from, actorKeys[0])
		w.pass(pause)
		w.put(to, basket("a", to))
	}
}

// claim is what a cluster's objects say of the actors.
type claim struct {
	objects int
	owner   string // of all objects; "?" if they differ
	tells   string // the clusters whose apps may call, if the cluster owns the actors
}

func claimOf(cluster string, objects map[catalog.Key]catalog.Object) (c claim) {
	var allow allowed
	for _, key := range actorKeys {
		o, ok := objects[key].(*catalog.ActorType)
		if !ok {
			continue
		}
		if c.objects++; c.objects > 1 && c.owner != o.Owner {
			c.owner = "?"
		} else {
			c.owner, allow = o.Owner, o.Allow
		}
	}
	if c.objects == 1 && c.owner == cluster {
		for _, name := range clusterNames {
			if allow.lets(name, apps[0]) {
				c.tells += name + " "
			}
		}
	}
	return c
}

// claimsNow notes the newest claim of a cluster.
func (w *world) claimsNow(cluster string) {
	_, objects, _ := w.cluster(cluster).objects.newest()
	now, all := claimOf(cluster, objects), w.claims[cluster]
	if len(all) == 0 || all[len(all)-1] != now {
		w.claims[cluster] = append(all, now)
	}
}

// owner is which cluster runs the actors by what a service knows, or that it leads nowhere.
type owner struct {
	cluster string
	problem bool
}

// owned is the owner by the objects of a cluster and by what others have told it.
func owned(c string, own claim, told map[string]claim) (o owner) {
	owners := map[string]bool{}
	if own.objects > 0 {
		owners[own.owner] = true
	}
	for by, theirs := range told {
		if strings.Contains(theirs.tells, c+" ") {
			owners[by] = true
		}
	}
	for o.cluster = range owners {
	}
	switch {
	case len(owners) > 1 || own.objects > 1:
		return owner{problem: true}
	case o.cluster != "" && o.cluster != c && !strings.Contains(told[o.cluster].tells, c+" "):
		o.problem = true
	}
	return o
}

// owner is what a service tells bridges. It is unknown while no app here selects the actors.
func (s *service) owner() (o owner, known bool) {
	w, c := s.replica.cluster.world, s.replica.cluster.name
	if s.actors == nil {
		f, err := s.topology.Actors(s.ctx, "shop")
		if err != nil {
			return o, false
		}
		s.actors = f
	}
	view, ok := s.actors.View()
	if !ok {
		return o, false
	}
	if i := view.Import(actorType); i != nil {
		o, known = owner{i.Owner, i.Problem != ""}, true
	}
	own := view.Owns(actorType)
	if own != nil {
		known = true
		if o.problem = o.problem || own.Problem != ""; !o.problem {
			o.cluster = c
		}
	}
	if o.problem {
		o.cluster = ""
	}
	for _, a := range apps {
		if to, refusal := view.Lead(true, catalog.Principal{App: a}, actorType); refusal == nil && to != o.cluster {
			w.fail("actor: the bridge of %s leads %s to %s; the owner is %+v", s.replica.host, a, to, o)
		}
	}
	for _, other := range view.Clusters {
		by := catalog.Principal{Domain: domainOf(other.Name), App: catalog.BridgeApp("shop", other.Name)}
		if view.Admit(by, apps[0], actorType) == nil && o.cluster != c {
			w.fail("actor: the bridge of %s lets that of %s in; the owner is %+v", s.replica.host, other.Name, o)
		}
	}
	return o, known
}

// checkActors checks that what a service tells bridges follows from the claims that it may know of. What it
// was told stands, also of a cluster that is silent, until that takes it back or is known no more.
func (w *world) checkActors(s *service, have map[catalog.Key]catalog.Object) {
	c := s.replica.cluster
	is, known := s.owner()
	version := s.version()
	choices := map[string][]int{} // versions of their claims; -1: it was not heard
	for _, other := range clusterNames {
		if other == c.name {
			continue
		}
		for v := min(s.claimsSeen, version); v <= max(s.claimsSeen, version); v++ {
			if c.objects.at(v)[catalog.Key{Kind: catalog.KindCluster, Name: other}] == nil {
				s.claims[other] = -1
			}
		}
		if w.cluster(other).wentBack() {
			s.claims[other] = min(s.claims[other], 0)
		}
		for v := s.claims[other]; v < len(w.claims[other]); v++ {
			choices[other] = append(choices[other], v)
		}
	}
	s.claimsSeen = version
	if !known {
		return
	}
	var others []string
	for other := range choices {
		others = append(others, other)
	}
	slices.Sort(others)
	own := claimOf(c.name, have)
	for _, one := range choices[others[0]] {
		for _, two := range choices[others[1]] {
			told := map[string]claim{}
			for other, v := range map[string]int{others[0]: one, others[1]: two} {
				if v >= 0 {
					told[other] = w.claims[other][v]
				}
			}
			want := owned(c.name, own, told)
			if want.problem {
				want.cluster = ""
			}
			if is != want {
				continue
			}
			for other, v := range map[string]int{others[0]: one, others[1]: two} {
				if len(w.cluster(other).replicas) == 1 { // one replica never goes back
					s.claims[other] = v
				}
			}
			return
		}
	}
	w.fail("actor: %s tells bridges that the owner is %+v; its own objects say %+v, and no claims that it can know of make that: %v of %v", s.replica.host, is, own, s.claims, w.claims)
}

// wrongOwner describes what a service tells bridges with all well, if it is wrong.
func (w *world) wrongOwner(s *service) string {
	c := s.replica.cluster
	_, objects, _ := c.objects.newest()
	told := map[string]claim{}
	for _, other := range clusterNames {
		if other != c.name && objects[catalog.Key{Kind: catalog.KindCluster, Name: other}] != nil {
			told[other] = w.claims[other][len(w.claims[other])-1]
		}
	}
	want := owned(c.name, claimOf(c.name, objects), told)
	if want.problem {
		want.cluster = ""
	}
	if is, known := s.owner(); known && is != want {
		return fmt.Sprintf("the owner of its actors is %+v; want %+v", is, want)
	}
	return ""
}
