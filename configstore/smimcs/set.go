package smimcs

import (
	"fmt"
	"maps"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// Set holds documents, and derives objects from them. It is for one goroutine. A change costs
// what derives from the changed document.
type Set struct {
	// AnyCluster takes every backend of the right form for a cluster, where clusters are unknown.
	AnyCluster bool

	docs     map[ID]*Document
	callers  map[catalog.App]map[ID]*Document // that name the app as a caller
	callees  map[callee]map[ID]*Document      // that name the app as the callee
	backends map[string]map[ID]*Document      // that name the cluster
	clusters map[string]bool
	refused  map[ID]*Document
	unused   map[ID]error // splits that are right by themselves
	looks    int          // at documents; a test holds what a change costs
}

// callee is an app that documents of a kind lead to.
type callee struct {
	app  catalog.App
	kind string
}

// NewSet makes an empty set.
func NewSet() *Set {
	return &Set{
		docs: map[ID]*Document{}, callers: map[catalog.App]map[ID]*Document{}, callees: map[callee]map[ID]*Document{},
		backends: map[string]map[ID]*Document{}, clusters: map[string]bool{}, refused: map[ID]*Document{}, unused: map[ID]error{},
	}
}

// Put takes a document in, and returns the keys of the objects that may be other ones now. Where
// the document is refused and an earlier version was not, the earlier one stands.
func (s *Set) Put(d *Document) []catalog.Key {
	old := s.docs[d.ID]
	if old != nil && old.usable && d.Err != nil {
		stands := *old
		stands.Err = d.Err
		d = &stands
	}
	return s.replace(old, d)
}

// Delete removes a document, and returns the keys of the objects that may be other ones now.
func (s *Set) Delete(id ID) []catalog.Key { return s.replace(s.docs[id], nil) }

// Documents are those of a kind that the set has.
func (s *Set) Documents(kind string) (ids []ID) {
	for id := range s.docs {
		if id.Kind == kind {
			ids = append(ids, id)
		}
	}
	return ids
}

// Cluster says whether there is a cluster of this name, and returns the keys of the objects that
// may be other ones now.
func (s *Set) Cluster(name string, known bool) (touched []catalog.Key) {
	if s.clusters[name] == known {
		return nil
	}
	s.clusters[name] = known
	for _, d := range s.backends[name] {
		touched = append(touched, s.touches(d)...)
		s.judge(d.callee)
	}
	return touched
}

func (s *Set) replace(old, d *Document) (touched []catalog.Key) {
	if old != nil {
		touched = s.touches(old)
		delete(s.docs, old.ID)
		delete(s.refused, old.ID)
		delete(s.unused, old.ID)
		unlink(s.callees, callee{old.callee, old.Kind}, old)
		for _, b := range old.backends {
			unlink(s.backends, b.cluster, old)
		}
		for _, app := range old.callers {
			unlink(s.callers, app, old)
		}
	}
	if d != nil && d.callee == (catalog.App{}) && len(d.callers) == 0 && d.Err == nil {
		d = nil // it has no meaning
	}
	if d != nil {
		s.docs[d.ID] = d
		if d.Err != nil {
			s.refused[d.ID] = d
		}
		link(s.callees, callee{d.callee, d.Kind}, d)
		for _, b := range d.backends {
			link(s.backends, b.cluster, d)
		}
		for _, app := range d.callers {
			link(s.callers, app, d)
		}
		touched = append(touched, s.touches(d)...)
	}
	for _, changed := range []*Document{old, d} {
		if changed != nil {
			s.judge(changed.callee)
		}
	}
	return touched
}

func link[K comparable](index map[K]map[ID]*Document, key K, d *Document) {
	if index[key] == nil {
		index[key] = map[ID]*Document{}
	}
	index[key][d.ID] = d
}

func unlink[K comparable](index map[K]map[ID]*Document, key K, d *Document) {
	delete(index[key], d.ID)
	if len(index[key]) == 0 {
		delete(index, key)
	}
}

// touches are the keys of what derives from a document that is in the set, or was just now.
func (s *Set) touches(d *Document) []catalog.Key {
	touched := []catalog.Key{{Kind: catalog.KindAppExport, Namespace: d.callee.Namespace, Name: d.callee.ID}}
	callers := slices.Clone(d.callers)
	if d.Kind == kindSplit {
		for _, kind := range []string{kindTarget, kindImport} {
			for _, other := range s.callees[callee{d.callee, kind}] {
				s.looks++
				callers = append(callers, other.callers...)
			}
		}
	}
	for _, app := range callers {
		touched = append(touched, catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: app.Namespace, Name: app.ID})
	}
	return touched
}

// sorted are documents in a fixed order.
func (s *Set) sorted(docs map[ID]*Document) []*Document {
	s.looks += len(docs)
	return slices.SortedFunc(maps.Values(docs), func(a, b *Document) int { return a.ID.Compare(b.ID) })
}

// called tells whether documents name callers of an app.
func (s *Set) called(app catalog.App) bool {
	for _, kind := range []string{kindTarget, kindImport} {
		for _, d := range s.callees[callee{app, kind}] {
			s.looks++
			if len(d.callers) > 0 {
				return true
			}
		}
	}
	return false
}

// splitOf is the one split of an app, if it can be used.
func (s *Set) splitOf(app catalog.App) *Document {
	var found *Document
	for _, d := range s.callees[callee{app, kindSplit}] {
		s.looks++
		if !d.usable {
			continue
		}
		if found != nil || s.unknown(d) != "" {
			return nil
		}
		found = d
	}
	return found
}

// unknown is the first backend of a split whose cluster nobody knows.
func (s *Set) unknown(d *Document) string {
	for _, b := range d.backends {
		if b.cluster != catalog.LocalCluster && !s.AnyCluster && !s.clusters[b.cluster] {
			return b.service
		}
	}
	return ""
}

// judge notes why the splits of an app are not used.
func (s *Set) judge(app catalog.App) {
	splits := slices.DeleteFunc(s.sorted(s.callees[callee{app, kindSplit}]), func(d *Document) bool { return !d.usable })
	for i, d := range splits {
		delete(s.unused, d.ID)
		unused := func(what, fix string) {
			s.unused[d.ID] = &strict.Error{File: d.File, Line: d.Line, Column: 1, What: d.ID.String() + what, Fix: fix}
		}
		switch name := s.unknown(d); {
		case len(splits) > 1:
			unused(fmt.Sprintf(" splits the same app as %s, so neither is used", splits[(i+1)%len(splits)]), "delete one")
		case name != "":
			unused(fmt.Sprintf(": no Cluster object names the cluster of backend %s, so the split is not used", name),
				fmt.Sprintf("add the Cluster; %s can't be another app, since daprd refuses a callee with another app-id than it called", name))
		case !s.called(app):
			unused(fmt.Sprintf(" has no effect: no TrafficTarget and no ServiceImport with callers leads to %s", app), "write one, or give an AppEndpoints these routes")
		}
	}
}

// Derive derives an object, or returns nil where no document asks for one.
func (s *Set) Derive(key catalog.Key) catalog.Object {
	app := catalog.App{Namespace: key.Namespace, ID: key.Name}
	switch key.Kind {
	case catalog.KindAppEndpoints:
		if docs := s.sorted(s.callers[app]); len(docs) > 0 {
			return s.selection(app, docs)
		}
	case catalog.KindAppExport:
		if docs := s.sorted(s.callees[callee{app, kindExport}]); len(docs) > 0 && slices.ContainsFunc(docs, func(d *Document) bool { return d.usable }) {
			return s.exportOf(app, docs)
		}
	}
	return nil
}

func (s *Set) selection(app catalog.App, docs []*Document) *catalog.AppEndpoints {
	byCallee := map[catalog.App][]*Document{}
	for _, d := range docs {
		if d.usable && d.callee != app {
			byCallee[d.callee] = append(byCallee[d.callee], d)
		}
	}
	selection := &catalog.AppEndpoints{App: app}
	for _, callee := range slices.SortedFunc(maps.Keys(byCallee), catalog.App.Compare) {
		e := catalog.Endpoint{App: callee}
		of := byCallee[callee]
		if split := s.splitOf(callee); split != nil {
			of, docs = append(of, split), append(docs, split)
			for _, b := range split.backends {
				e.Routes = append(e.Routes, catalog.RouteSpec{Cluster: b.cluster, Weight: b.weight})
			}
		}
		selection.Endpoints, selection.From = append(selection.Endpoints, e), append(selection.From, from(of))
	}
	selection.Source.From = from(docs)
	return selection
}

// exportOf lets every app of every other cluster in, as a ServiceExport means it, unless
// TrafficTargets say who may call the app. One that is refused lets nobody in.
func (s *Set) exportOf(app catalog.App, docs []*Document) *catalog.AppExport {
	targets := s.sorted(s.callees[callee{app, kindTarget}])
	export := &catalog.AppExport{App: app, Source: catalog.Source{From: from(append(docs, targets...))}}
	if len(targets) == 0 {
		export.Allow = []catalog.Allow{{Cluster: "*"}}
	}
	callers := map[catalog.App]bool{}
	for _, d := range targets {
		for _, caller := range d.callers {
			callers[caller] = callers[caller] || d.usable
		}
	}
	for _, caller := range slices.SortedFunc(maps.Keys(callers), catalog.App.Compare) {
		if callers[caller] {
			export.Allow = append(export.Allow, catalog.Allow{Cluster: "*", Namespace: caller.Namespace, App: caller.ID})
		}
	}
	return export
}

// from names documents in a few words.
func from(docs []*Document) string {
	names := make([]string, len(docs))
	for i, d := range docs {
		names[i] = d.String()
	}
	return catalog.Brief(names)
}

// Problem is why a document is not taken, or not wholly.
type Problem struct {
	Document *Document
	Err      error
}

// Problems are why documents are not taken, in a fixed order.
func (s *Set) Problems() (all []Problem) {
	for _, d := range s.refused {
		all = append(all, Problem{d, d.Err})
	}
	for id, err := range s.unused {
		all = append(all, Problem{s.docs[id], err})
	}
	slices.SortFunc(all, func(a, b Problem) int { return a.Document.ID.Compare(b.Document.ID) })
	return all
}

// Len is the number of documents.
func (s *Set) Len() int { return len(s.docs) }

// Outranked is why a derived object is not used where a user wrote one of the same name.
func Outranked(derived catalog.Object) error {
	return fmt.Errorf("a written %s stands instead of the one derived from %s; delete one of them", derived.Key(), derived.Origin().From)
}

// Sorted are the keys that were touched, in order.
func Sorted(touched map[catalog.Key]bool) []catalog.Key {
	return slices.SortedFunc(maps.Keys(touched), catalog.Key.Compare)
}
