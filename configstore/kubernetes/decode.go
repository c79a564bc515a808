package kubernetes

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// parseAll reads resources by every processor.
func (r resource) parseAll(raw []json.RawMessage) ([]item, error) {
	items := make([]item, len(raw))
	errs := make([]error, len(raw))
	configstore.Spread(len(raw), 256, func(i int) { items[i], errs[i] = r.parse(raw[i]) })
	return items, cmp.Or(errs...)
}

// newLedger is a ledger of resources.
func newLedger() configstore.Ledger { return configstore.Ledger{Restate: restate} }

// pairs is resources as other stores have them.
func pairs(items []item) []configstore.Pair {
	all := make([]configstore.Pair, len(items))
	for i := range items {
		all[i] = items[i].pair()
	}
	return all
}

// decode makes objects of resources, and refuses what is none.
func decode(items []item) ([]configstore.Stored, []configstore.Refusal) {
	ledger := newLedger()
	all := ledger.Reset(pairs(items), "")
	return all.Objects, all.Refused
}

// restate says of a refusal what a user of kubectl can find: the resource rather than a
// key and its columns.
func restate(path string, r configstore.Refusal) configstore.Refusal {
	r.Where = where(keyOf(path))
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
