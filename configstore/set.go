package configstore

import (
	"maps"
	"reflect"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Set is what a reader of a store holds. The zero Set is empty. It is for one
// goroutine.
type Set struct {
	objects map[catalog.Key]Stored
}

// Len is the number of objects.
func (s *Set) Len() int { return len(s.objects) }

// Get returns an object.
func (s *Set) Get(key catalog.Key) (Stored, bool) {
	stored, ok := s.objects[key]
	return stored, ok
}

// All returns every object, ordered by key.
func (s *Set) All() []Stored {
	return slices.SortedFunc(maps.Values(s.objects), func(a, b Stored) int {
		return a.Object.Key().Compare(b.Object.Key())
	})
}

// Apply makes a change and returns the differences: never Full, without anything that is as it was
// before.
func (s *Set) Apply(c Change) Change {
	if s.objects == nil {
		s.objects = make(map[catalog.Key]Stored, len(c.Objects))
	}
	net := Change{Refused: c.Refused, Version: c.Version}
	if c.Full {
		net.Deleted = s.gone(c)
	}
	for _, key := range c.Deleted {
		if _, there := s.objects[key]; there {
			net.Deleted = append(net.Deleted, key)
		}
	}
	for _, key := range net.Deleted {
		delete(s.objects, key)
	}
	for _, stored := range c.Objects {
		if key := stored.Object.Key(); !s.same(key, stored) {
			net.Objects = append(net.Objects, stored)
			s.objects[key] = stored
		}
	}
	return net
}

func (s *Set) same(key catalog.Key, stored Stored) bool {
	was, ok := s.objects[key]
	return ok && was.Revision == stored.Revision &&
		(was.Object == stored.Object || reflect.DeepEqual(was.Object, stored.Object))
}

// gone is what a full set does not have, without what stands because it, or the file
// that it is in, is refused.
func (s *Set) gone(c Change) []catalog.Key {
	stands := make(map[catalog.Key]bool, len(c.Objects))
	files := map[string]bool{}
	for _, stored := range c.Objects {
		stands[stored.Object.Key()] = true
	}
	for _, r := range c.Refused {
		if r.Key == (catalog.Key{}) {
			files[r.Where] = true
		} else {
			stands[r.Key] = true
		}
	}
	var gone []catalog.Key
	for key, stored := range s.objects {
		if file := stored.Object.Origin().File; !stands[key] && (file == "" || !files[file]) {
			gone = append(gone, key)
		}
	}
	slices.SortFunc(gone, catalog.Key.Compare)
	return gone
}
