package objects

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
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

// inForce lists the objects that lookups follow, a page of them.
func (s *Server) inForce(want catalog.Key, req *v1alpha1.GetRequest) *v1alpha1.GetResponse {
	refused, after := len(s.feed.Status().Refused) > 0, wire.KeyOf(req.GetAfter())
	var matching []configstore.Stored
	for _, stored := range s.feed.all() {
		key := stored.Object.Key()
		if !selects(want, key) || !strings.Contains(key.NamespacedName(), req.GetSearch()) {
			continue
		}
		if req.GetRefused() {
			if why, _ := s.feed.Refusal(key); !refused || why == nil {
				continue
			}
		}
		matching = append(matching, stored)
	}
	slices.SortFunc(matching, func(a, b configstore.Stored) int { return a.Object.Key().Compare(b.Object.Key()) })
	answer := &v1alpha1.GetResponse{Matched: uint32(len(matching))}
	for _, stored := range matching {
		key := stored.Object.Key()
		if most := int(req.GetMost()); most > 0 && len(answer.Objects) == most {
			break
		}
		if req.GetAfter() != nil && key.Compare(after) <= 0 {
			continue
		}
		w, standing := (*v1alpha1.StoredObject)(nil), false
		if refused {
			w, standing = s.standing(key, configstore.ErrInvalid)
		}
		if !standing {
			w = storedToWire(stored)
		}
		answer.Objects = append(answer.Objects, w)
	}
	return answer
}

// selects tells whether a key without a name selects an object.
func selects(want, key catalog.Key) bool {
	return (want.Kind == "" || key.Kind == want.Kind) && (want.Namespace == "" || key.Namespace == want.Namespace)
}
