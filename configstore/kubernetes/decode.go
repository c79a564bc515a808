package kubernetes

import (
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"

	"encoding/json"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// parseAll reads resources by every processor, as configstore.Decode does.
func (r resource) parseAll(raw []json.RawMessage) ([]item, error) {
	workers := min(runtime.GOMAXPROCS(0), 1+len(raw)/256)
	items := make([]item, len(raw))
	errs := make([]error, workers)
	var wait sync.WaitGroup
	for n := range workers {
		wait.Go(func() {
			for i := n; i < len(raw) && errs[n] == nil; i += workers {
				items[i], errs[n] = r.parse(raw[i])
			}
		})
	}
	wait.Wait()
	return items, errors.Join(errs...)
}

// decode makes objects of resources, and refuses what is none.
func decode(items []item) ([]configstore.Stored, []configstore.Refusal) {
	pairs := make([]configstore.Pair, len(items))
	for i := range items {
		pairs[i] = items[i].pair()
	}
	objects, refused := configstore.Decode(pairs)
	if len(refused) == 0 {
		return objects, nil
	}
	keys := make(map[string]catalog.Key, len(items))
	for _, i := range items {
		keys[i.path()] = i.key
	}
	for i := range refused {
		refused[i] = restate(refused[i], keys[refused[i].Where])
	}
	return objects, refused
}

// restate says of a refusal what a user of kubectl can find: the resource rather than a
// key and its columns.
func restate(r configstore.Refusal, key catalog.Key) configstore.Refusal {
	r.Where = where(key)
	var all api.Errors
	if !errors.As(r.Err, &all) {
		return r
	}
	said := make(api.Errors, len(all))
	for i, e := range all {
		copied := *e
		copied.File, copied.Line, copied.Column = r.Where, 0, 0
		said[i] = &copied
	}
	r.Err = said
	return r
}
