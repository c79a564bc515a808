package topology

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// actors are the actor types: which cluster owns each, and who may call it. A type has one owner. While
// two are named, nothing is bridged.
type actors struct {
	*nodes
	objects   map[catalog.Actors]map[string]*catalog.ActorType // by the object's name
	remote    map[catalog.Actors]map[string]*PeerExport        // by cluster
	selecting map[string]map[*node]struct{}                    // apps whose selection holds a type, by namespace
	views     map[string]*catalog.ActorView                    // by namespace, of those followed
}

func newActors(ns *nodes) *actors {
	return &actors{
		nodes: ns, objects: map[catalog.Actors]map[string]*catalog.ActorType{}, remote: map[catalog.Actors]map[string]*PeerExport{},
		selecting: map[string]map[*node]struct{}{}, views: map[string]*catalog.ActorView{},
	}
}

// used tells whether this cluster has to do with actors of others: it hosts some, or selects some.
func (as *actors) used() bool { return len(as.objects)+len(as.selecting) > 0 }

// setActorType replaces an object; nil: it is gone.
func (ss *selections) setActorType(key catalog.Key, next *catalog.ActorType) {
	as := ss.actors
	for a, objects := range as.objects { // the object may have had another type
		if a.Namespace == key.Namespace && objects[key.Name] != nil {
			remove(as.objects, a, key.Name)
			as.changed(a)
		}
	}
	if next != nil {
		put(as.objects, next.Actors(), next.Name, next)
		as.changed(next.Actors())
	}
	ss.exportBridge(key.Namespace)
}

// setRemote takes in what a peer says of a type; nil: it exports the type no more.
func (as *actors) setRemote(a catalog.Actors, cluster string, export *PeerExport) {
	old := as.remote[a][cluster]
	switch {
	case export == nil && old == nil, export != nil && old != nil && old.same(export):
		return
	case export == nil:
		remove(as.remote, a, cluster)
	default:
		put(as.remote, a, cluster, export)
	}
	as.changed(a)
}

// keep forgets the types of a cluster that do not stand.
func (as *actors) keep(cluster string, stands map[catalog.App]bool) {
	for a, exports := range as.remote {
		if exports[cluster] != nil && !stands[a.App()] {
			as.setRemote(a, cluster, nil)
		}
	}
}

func put[K, L comparable, V any](all map[K]map[L]V, key K, in L, value V) {
	if all[key] == nil {
		all[key] = map[L]V{}
	}
	all[key][in] = value
}

func remove[K, L comparable, V any](all map[K]map[L]V, key K, in L) {
	if delete(all[key], in); len(all[key]) == 0 {
		delete(all, key)
	}
}

func (as *actors) changed(a catalog.Actors) {
	as.dirty.actorTypes[a] = struct{}{}
	as.dirty.actors[a.Namespace] = struct{}{}
}

// clusterChanged reaches every namespace that somebody follows: there are few.
func (as *actors) clusterChanged() {
	for namespace := range as.views {
		as.dirty.actors[namespace] = struct{}{}
	}
}

// setSelection notes that the selection of an app begins or ceases to hold.
func (as *actors) setSelection(n *node, s *catalog.AppEndpoints, holds bool) {
	if len(s.Actors) == 0 {
		return
	}
	if holds {
		put(as.selecting, n.app.Namespace, n, struct{}{})
	} else {
		remove(as.selecting, n.app.Namespace, n)
	}
	as.dirty.actors[n.app.Namespace] = struct{}{}
}

// ownerClaim is a cluster that an object names as a type's owner.
type ownerClaim struct{ owner, by string }

// claims are the owners that objects name, here and in other clusters, sorted.
func (as *actors) claims(a catalog.Actors) (all []ownerClaim) {
	for _, o := range as.objects[a] {
		all = append(all, ownerClaim{o.Owner, fmt.Sprintf("%s in cluster %s", o.Source.Of(o.Key()), as.cfg.Cluster)})
	}
	for cluster, export := range as.remote[a] {
		if as.clusters[cluster].guest() != nil {
			continue // its actors stay there
		}
		key := catalog.Key{Kind: catalog.KindActorType, Namespace: a.Namespace, Name: export.Actor.Object}
		all = append(all, ownerClaim{cluster, fmt.Sprintf("%s in cluster %s", key, cluster)})
	}
	slices.SortFunc(all, func(a, b ownerClaim) int {
		return cmp.Or(strings.Compare(a.owner, b.owner), strings.Compare(a.by, b.by))
	})
	return all
}

// ownerOf is the cluster that owns a type, or why nothing may be bridged. Both are empty where no
// object names one.
func (as *actors) ownerOf(a catalog.Actors) (owner, problem string) {
	claims := as.claims(a)
	if len(claims) == 0 {
		return "", ""
	}
	if first, last := claims[0], claims[len(claims)-1]; first.owner != last.owner {
		return "", fmt.Sprintf("the actor type %s has two owners: %s says cluster %s, and %s says cluster %s; nothing is bridged until they name the same one",
			a, first.by, first.owner, last.by, last.owner)
	}
	if objects := as.objects[a]; len(objects) > 1 {
		names := slices.Sorted(maps.Keys(objects))
		return "", fmt.Sprintf("the actor type %s has %d objects in cluster %s, %s and %s; nothing is bridged until one is left",
			a, len(names), as.cfg.Cluster, objects[names[0]].Source.Of(objects[names[0]].Key()), objects[names[1]].Source.Of(objects[names[1]].Key()))
	}
	return claims[0].owner, ""
}

// bridged are the namespaces that need a bridge here, sorted.
func (as *actors) bridged() []string {
	all := map[string]struct{}{}
	for namespace, callers := range as.selecting {
		for n := range callers {
			for i := range n.selection.Actors {
				if owner, _ := as.ownerOf(catalog.Actors{Namespace: namespace, Type: n.selection.Actors[i].Type}); owner != "" && owner != as.cfg.Cluster {
					all[namespace] = struct{}{}
				}
			}
		}
	}
	for a := range as.objects {
		if o := as.owned(a); o != nil && len(o.Allow) > 0 {
			all[a.Namespace] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// owned is the object by which this cluster owns a type, or nil.
func (as *actors) owned(a catalog.Actors) *catalog.ActorType {
	for _, o := range as.objects[a] {
		if o.Owner == as.cfg.Cluster && len(as.objects[a]) == 1 {
			return o
		}
	}
	return nil
}

// every adds the types of all objects.
func (as *actors) every(and map[catalog.Actors]struct{}) map[catalog.Actors]struct{} {
	every := maps.Clone(and)
	if every == nil {
		every = map[catalog.Actors]struct{}{}
	}
	for a := range as.objects {
		every[a] = struct{}{}
	}
	return every
}

// exportEdits are the changes of what a peer may know of types.
func (as *actors) exportEdits(peer string, view *PeerView, types map[catalog.Actors]struct{}) (edits []catalog.Edit[*PeerExport]) {
	for a := range types {
		var next *PeerExport
		if o := as.owned(a); o != nil && as.clusters[peer].guest() == nil {
			if allow := allowTo(o.Allow, peer); len(allow) > 0 {
				next = &PeerExport{App: a.App(), Allow: allow, Actor: &ActorExport{Object: o.Name, Draining: o.Draining}}
			}
		}
		switch old, had := view.Exports.Get(a.App()); {
		case next == nil && had:
			edits = append(edits, catalog.Edit[*PeerExport]{App: a.App(), Remove: true})
		case next != nil && (!had || !old.same(next)):
			edits = append(edits, catalog.Edit[*PeerExport]{App: a.App(), Value: next})
		}
	}
	return edits
}

// keepView starts to keep the view of a namespace, and returns it.
func (as *actors) keepView(namespace string, revision uint64) *catalog.ActorView {
	if as.views[namespace] == nil {
		as.views[namespace] = as.view(namespace, revision)
	}
	return as.views[namespace]
}

// flush brings the views that are followed up to date.
func (as *actors) flush(d *dirty, u *Update) {
	for namespace, old := range as.views {
		if _, reached := d.actors[namespace]; !reached && !d.all {
			continue
		}
		next := as.view(namespace, old.Revision)
		if !d.all && reflect.DeepEqual(old, next) {
			continue
		}
		next.Revision = u.Revision
		as.views[namespace] = next
		if u.Actors == nil {
			u.Actors = map[string]*catalog.ActorView{}
		}
		u.Actors[namespace] = next
	}
}

// view is what a bridge of a namespace has to know, from nothing.
func (as *actors) view(namespace string, revision uint64) *catalog.ActorView {
	v := &catalog.ActorView{Namespace: namespace, Cluster: as.cfg.Cluster, Revision: revision}
	callers := map[string][]*node{}
	for n := range as.selecting[namespace] {
		for i := range n.selection.Actors {
			callers[n.selection.Actors[i].Type] = append(callers[n.selection.Actors[i].Type], n)
		}
	}
	for _, typ := range slices.Sorted(maps.Keys(callers)) {
		if i := as.imported(catalog.Actors{Namespace: namespace, Type: typ}, callers[typ]); i.Owner != as.cfg.Cluster {
			v.Imports = append(v.Imports, i)
		}
	}
	for a := range as.objects {
		if o := as.owned(a); a.Namespace == namespace && o != nil {
			_, problem := as.ownerOf(a)
			v.Owned = append(v.Owned, catalog.OwnedActors{Type: a.Type, Problem: problem, Draining: o.Draining, Allow: o.Allow})
		}
	}
	slices.SortFunc(v.Owned, func(a, b catalog.OwnedActors) int { return strings.Compare(a.Type, b.Type) })
	for name, c := range as.clusters {
		if c.object != nil && c.guest() == nil && name != as.cfg.Cluster {
			v.Clusters = append(v.Clusters, catalog.ActorCluster{Name: name, Domain: c.object.Trust.AppsDomain()})
		}
	}
	slices.SortFunc(v.Clusters, func(a, b catalog.ActorCluster) int { return strings.Compare(a.Name, b.Name) })
	return v
}

// imported is a type that apps of this cluster select.
func (as *actors) imported(a catalog.Actors, callers []*node) catalog.ActorImport {
	i := catalog.ActorImport{Type: a.Type}
	i.Owner, i.Problem = as.ownerOf(a)
	export := as.remote[a][i.Owner]
	switch c := as.clusters[i.Owner]; {
	case i.Owner == as.cfg.Cluster || i.Owner == "":
	case export == nil || c.guest() != nil:
		i.Problem = fmt.Sprintf("%s says that cluster %s owns the actor type %s, and that cluster exports no such type to this one", as.claims(a)[0].by, i.Owner, a)
	default:
		i.Allow, i.Draining = export.Allow, export.Actor.Draining
		i.Stale = c == nil || !c.heard || c.lapsed && !c.damped
	}
	for _, n := range callers {
		if e := n.selection.Actor(a.Type); e != nil && e.From(i.Owner) {
			i.Callers = append(i.Callers, n.app.ID)
		}
	}
	slices.Sort(i.Callers)
	return i
}
