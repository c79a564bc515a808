package objects

import (
	"context"
	"errors"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// Refusal returns why the newest version of an object can't be used, or nil, and whether an older
// one is in force.
func (f *Feed) Refusal(key catalog.Key) (why error, inForce bool) {
	f.mu.RLock()
	stored, inForce := f.set.Get(key)
	f.mu.RUnlock()
	for _, r := range f.Status().Refused {
		if r.Key == key || inForce && r.Key == (catalog.Key{}) && r.Where == stored.Object.Origin().File {
			return r.Err, inForce
		}
	}
	return nil, inForce
}

// standing returns an object whose newest version is refused, and which is in force in an older
// one. err is what the store says of it.
func (s *Server) standing(key catalog.Key, err error) (*v1alpha1.StoredObject, bool) {
	why, inForce := s.feed.Refusal(key)
	if !inForce || why == nil || !errors.Is(err, configstore.ErrInvalid) && !errors.Is(err, configstore.ErrNotFound) {
		return nil, false
	}
	s.feed.mu.RLock()
	stored, there := s.feed.set.Get(key)
	s.feed.mu.RUnlock()
	if !there {
		return nil, false
	}
	w := storedToWire(stored)
	w.Refused = why.Error()
	return w, true
}

// addStanding adds to a list the objects whose newest version is refused, as they are in force.
func (s *Server) addStanding(ctx context.Context, want catalog.Key, listed []configstore.Stored, answer *v1alpha1.GetResponse) error {
	if len(s.feed.Status().Refused) == 0 {
		return nil
	}
	has := make(map[catalog.Key]bool, len(listed))
	for _, stored := range listed {
		has[stored.Object.Key()] = true
	}
	for _, stored := range s.feed.all() {
		key := stored.Object.Key()
		if has[key] || !selects(want, key) {
			continue
		}
		if w, ok := s.standing(key, configstore.ErrInvalid); ok {
			answer.Objects = append(answer.Objects, w)
		}
	}
	return ctx.Err()
}

// selects tells whether a key without a name selects an object.
func selects(want, key catalog.Key) bool {
	return (want.Kind == "" || key.Kind == want.Kind) && (want.Namespace == "" || key.Namespace == want.Namespace)
}
