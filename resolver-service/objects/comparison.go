package objects

import (
	"bytes"
	"context"
	"errors"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// The results of a write.
const (
	created   = "created"
	changed   = "changed"
	unchanged = "unchanged"
	inEffect  = "unchanged in effect" // written, since its text changes
	deleted   = "deleted"
)

// comparison compares a request with the store.
type comparison struct {
	results []*v1alpha1.ApplyResult
	writes  []configstore.Write // that change something
	places  []int               // of each write among the results
}

// compare compares the writes with the store, and leaves out those that would change nothing. It
// does not use the feed, which may lag: a write that changes nothing in the feed could undo a
// newer change in the store.
func (s *Server) compare(ctx context.Context, writes []configstore.Write, withHeld bool) (*comparison, error) {
	p := &comparison{}
	keys := make([]catalog.Key, len(writes))
	for i, w := range writes {
		keys[i] = w.Key()
	}
	got, err := configstore.GetMany(ctx, s.store, keys)
	if err != nil {
		return nil, err
	}
	var refused []error
	for i, w := range writes {
		revision := got[i].Revision
		if errors.Is(got[i].Err, configstore.ErrNotFound) {
			revision = configstore.Absent
		}
		if err := w.CheckIf(revision); err != nil {
			refused = append(refused, err)
			continue
		}
		s.add(p, w, &got[i], withHeld)
	}
	return p, errors.Join(refused...)
}

func (s *Server) add(p *comparison, w configstore.Write, held *configstore.Got, withHeld bool) {
	result := &v1alpha1.ApplyResult{Key: wire.Key(w.Key()), Result: changed, Revision: held.Revision}
	var text []byte
	if held.Object != nil {
		text = api.EncodeJSON(held.Object)
	}
	switch {
	case w.Object == nil:
		result.Result = deleted
	case errors.Is(held.Err, configstore.ErrNotFound):
		result.Result = created
	case bytes.Equal(api.EncodeJSON(w.Object), text):
		result.Result = unchanged
	case held.Object != nil && bytes.Equal(api.EncodeJSON(s.bare(w.Object)), api.EncodeJSON(s.bare(held.Object))):
		result.Result = inEffect
	}
	if errors.Is(held.Err, configstore.ErrInvalid) {
		result.Unusable = held.Err.Error() // writes may still replace or delete it
	}
	if withHeld {
		result.Held = text
	}
	p.results = append(p.results, result)
	if result.Result != unchanged {
		p.writes = append(p.writes, w)
		p.places = append(p.places, len(p.results)-1)
	}
}
