package configstore

import (
	"maps"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// Ledger makes Changes of a key-value store's reports. It decodes new values, leaves the rest
// alone, and remembers refused ones, so that each Change names all of them. Every backend on keys
// and values has one for each Watch. It is for one goroutine.
type Ledger struct {
	// Prefix is what the store has before each path, which is said where something is
	// refused.
	Prefix string
	// Restate says where something is refused, for a store whose people know no paths. It may be nil.
	Restate func(path string, r Refusal) Refusal

	refused map[string]Refusal // by path
	sorted  []Refusal          // of refused; nil when it is to be made again
}

// Reset begins anew with the full set.
func (l *Ledger) Reset(pairs []Pair, at Version) Change {
	l.refused, l.sorted = nil, nil
	return Change{Full: true, Objects: l.decode(pairs), Refused: l.Refused(), Version: at}
}

// Resume takes the full set of a store that a reader goes on from. The reader has the objects, and
// the Ledger needs the refused keys. It is the state that the next Apply comes after.
func (l *Ledger) Resume(pairs []Pair) {
	l.refused, l.sorted = nil, nil
	l.decode(pairs)
}

// Apply takes the pairs that were put and deleted since. No path may be in both, or twice. A
// deleted path need not have been there.
func (l *Ledger) Apply(put []Pair, deleted []string, at Version) Change {
	change := Change{Version: at}
	for _, path := range deleted {
		l.forget(path)
		if key, err := api.ParseKeyPath(path); err == nil {
			change.Deleted = append(change.Deleted, key)
		}
	}
	for _, p := range put {
		l.forget(p.Path)
	}
	change.Objects = l.decode(put)
	change.Refused = l.Refused()
	return change
}

// Refuse refuses a key that can't be read now, so that the last good object of it stands. It is
// refused until it is put or deleted.
func (l *Ledger) Refuse(path string, err error) {
	key, keyErr := api.ParseKeyPath(path)
	if keyErr != nil {
		key = catalog.Key{}
	}
	l.refuse(path, Refusal{Key: key, Err: err})
}

func (l *Ledger) refuse(path string, r Refusal) {
	if l.refused == nil {
		l.refused = map[string]Refusal{}
	}
	if r.Where = l.Prefix + path; l.Restate != nil {
		r = l.Restate(path, r)
	}
	l.refused[path], l.sorted = r, nil
}

// Why is why a path is refused, and nil if it is not.
func (l *Ledger) Why(path string) error { return l.refused[path].Err }

// Refused is everything that is refused now, ordered by path. It is the caller's.
func (l *Ledger) Refused() []Refusal {
	if l.sorted == nil && len(l.refused) > 0 {
		l.sorted = slices.SortedFunc(maps.Values(l.refused), func(a, b Refusal) int { return strings.Compare(a.Where, b.Where) })
	}
	return slices.Clone(l.sorted)
}

// decode is the objects of pairs; what is none is noted.
func (l *Ledger) decode(pairs []Pair) []Stored {
	objects, refused := Decode(pairs)
	for _, r := range refused {
		l.refuse(r.Where, r)
	}
	return objects
}

func (l *Ledger) forget(path string) {
	if _, ok := l.refused[path]; ok {
		delete(l.refused, path)
		l.sorted = nil
	}
}
