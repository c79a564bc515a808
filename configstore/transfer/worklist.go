package transfer

import (
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// worklist has a step for each object of both stores.
type worklist struct {
	steps   []step // ordered by key
	foreign []configstore.Refusal
}

// step is what is to be done with one object.
type step struct {
	key    catalog.Key
	object catalog.Object // nil for one that only the target has
	ifRev  string         // see configstore.Write.If
	means  Result         // what it comes to
	result Result         // what it has come to; Pending until then
	err    error
}

func (s *step) writes() bool { return s.means != Unchanged && s.means != Kept }

func (s *step) write() configstore.Write {
	if s.object == nil {
		return configstore.Write{Delete: s.key, If: s.ifRev}
	}
	return configstore.Write{Object: s.object, If: s.ifRev}
}

// newWorklist compares two stores. Unusable is the revisions of what is bad in the target.
func newWorklist(source []configstore.Stored, refused []configstore.Refusal, target []configstore.Stored, bad []configstore.Refusal, unusable map[catalog.Key]string, prune bool) *worklist {
	p := &worklist{}
	held := make(map[catalog.Key]configstore.Stored, len(target))
	for _, s := range target {
		held[s.Object.Key()] = s
	}
	for _, r := range bad {
		if r.Key == (catalog.Key{}) {
			p.foreign = append(p.foreign, r)
		}
	}
	for _, s := range source {
		key := s.Object.Key()
		there, ok := held[key]
		spoiled, isSpoiled := unusable[key]
		st := step{key: key, object: s.Object, means: Changed, ifRev: spoiled}
		switch {
		case ok && same(there.Object, s.Object):
			st.means = Unchanged
		case ok:
			st.ifRev = there.Revision
		case !isSpoiled:
			st.means, st.ifRev = Created, configstore.Absent
		}
		p.steps = append(p.steps, st)
		delete(held, key)
		delete(unusable, key)
	}
	p.addOnlyInTarget(held, unusable, refused, prune)
	for i := range p.steps {
		p.steps[i].result = Pending
		if !p.steps[i].writes() {
			p.steps[i].result = p.steps[i].means
		}
	}
	slices.SortFunc(p.steps, func(a, b step) int { return a.key.Compare(b.key) })
	return p
}

// addOnlyInTarget adds what the source lacks. What the source has and can't use, it does
// not lack.
func (p *worklist) addOnlyInTarget(held map[catalog.Key]configstore.Stored, unusable map[catalog.Key]string, refused []configstore.Refusal, prune bool) {
	inSource := map[catalog.Key]bool{}
	for _, r := range refused {
		inSource[r.Key] = true
	}
	for key, s := range held {
		st := step{key: key, means: Kept}
		if prune && !inSource[key] {
			st.means, st.ifRev = Deleted, s.Revision
		}
		p.steps = append(p.steps, st)
	}
	for key, revision := range unusable {
		st := step{key: key, means: Kept}
		if prune && !inSource[key] {
			st.means, st.ifRev = Deleted, revision
		}
		p.steps = append(p.steps, st)
	}
}

// order is that of the writes: what is written before what is deleted, clusters and
// instances before exports, and those before selections.
func (p *worklist) order() []*step {
	var steps []*step
	for i := range p.steps {
		if p.steps[i].writes() {
			steps = append(steps, &p.steps[i])
		}
	}
	slices.SortStableFunc(steps, func(a, b *step) int {
		if (a.object == nil) != (b.object == nil) {
			if a.object != nil {
				return -1
			}
			return 1
		}
		return a.key.Kind.Definition().WriteOrder - b.key.Kind.Definition().WriteOrder
	})
	return steps
}

// items is what has become of every object, or what would.
func (p *worklist) items(dryRun bool) []Item {
	items := make([]Item, len(p.steps))
	for i := range p.steps {
		s := &p.steps[i]
		items[i] = Item{Key: s.key, Result: s.result, Err: s.err}
		if dryRun {
			items[i].Result = s.means
		}
	}
	return items
}
