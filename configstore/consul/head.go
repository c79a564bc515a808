package consul

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	isthmus "github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore"
)

const (
	// headName is the key below the prefix that says what was changed last. No object can
	// have it.
	headName = ".changes"
	// headBytes is how many bytes of keys and ids of earlier writes are kept: some 80 writes of
	// one object, for readers that were busy meanwhile.
	headBytes = 4096
	// headValues is how many bytes of values go with them, of the newest writes: some ten
	// objects. Who has the value need not ask for it.
	headValues = 4096
)

// headAbout is for people who find the key.
const headAbout = "Which keys Isthmus wrote last, oldest first, and what the newest are now. Isthmus keeps it for those who watch; what is written by other hands need not be in it."

// head is which keys the last writes touched.
type head struct {
	index uint64 // Consul's ModifyIndex of it: 0 where there is none
	steps []step // oldest first; the last one's index is the head's own
}

// step is one write. Its index is where it stands in Consul's sequence; the id tells it
// from another one with that index, in a Consul that was put back.
type step struct {
	ID    string   `json:"id"`
	Index uint64   `json:"index,omitempty"` // not there in the last one, whose writer could not know it
	Keys  []string `json:"keys"`            // without the prefix

	// Values has the values of the keys, in their order, and null for one that was deleted.
	// It is not there for a write that is large, or long ago, or left a value as it was: then
	// the index of the key is not that of the write.
	Values []json.RawMessage `json:"values,omitempty"`
}

type headJSON struct {
	About string `json:"about"`
	Steps []step `json:"steps"`
}

// mark is a place in the sequence of writes by Isthmus.
type mark struct {
	index uint64
	id    string
}

// parseHead reads a head. One that can't be used has no steps, and so explains nothing.
func parseHead(index uint64, value []byte) head {
	h := head{index: index}
	var from headJSON
	if json.Unmarshal(value, &from) != nil || len(from.Steps) == 0 {
		return h
	}
	from.Steps[len(from.Steps)-1].Index = index
	var before uint64
	for i, s := range from.Steps {
		if s.Index <= before || s.ID == "" {
			return h
		}
		if len(s.Values) != len(s.Keys) {
			from.Steps[i].Values = nil
		}
		before = s.Index
		for _, key := range s.Keys {
			if _, err := isthmus.ParseKeyPath(isthmus.KeyPrefix + key); err != nil {
				return h
			}
		}
	}
	h.steps = from.Steps
	return h
}

// mark is where the head is.
func (h head) mark() mark {
	if len(h.steps) == 0 {
		return mark{}
	}
	last := h.steps[len(h.steps)-1]
	return mark{last.Index, last.ID}
}

// after is the writes by Isthmus after a mark. ok is false when the head does not go back
// that far, or has another past.
func (h head) after(m mark) (steps []step, ok bool) {
	for i, s := range h.steps {
		if s.Index == m.index && s.ID == m.id {
			return h.steps[i+1:], true
		}
	}
	return nil, false
}

// touched is the paths (api.KeyPath) that some writes have touched.
func touched(steps []step) []string {
	var paths []string
	for _, s := range steps {
		for _, key := range s.Keys {
			paths = append(paths, isthmus.KeyPrefix+key)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// carried is what some writes made of what they touched, but for what is known from later
// on. ok is false if they do not all say it.
func carried(steps []step, known map[string]string) (now snapshot, ok bool) {
	seen := map[string]bool{}
	for _, s := range slices.Backward(steps) {
		if len(s.Values) != len(s.Keys) {
			return snapshot{}, false
		}
		for i, key := range s.Keys {
			path := isthmus.KeyPrefix + key
			if seen[path] || known[path] != "" && later(known[path], s.Index) {
				continue
			}
			seen[path] = true
			if value := s.Values[i]; string(value) == "null" {
				now.missing = append(now.missing, path)
			} else {
				now.pairs = append(now.pairs, configstore.Pair{Path: path, Value: value, Revision: strconv.FormatUint(s.Index, 10)})
			}
		}
	}
	return now, true
}

// size is what of headBytes a write takes.
func (s *step) size() int {
	size := len(s.ID) // a few bytes, unless it is by another hand
	for _, key := range s.Keys {
		size += len(key)
	}
	return size
}

// next is the value of a head after one more write, to these paths. The values are what
// they are then, nil for what is deleted; or there are none, where that is not to be told.
func (h head) next(paths []string, values [][]byte) ([]byte, error) {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails, by its documentation
	newest := step{ID: hex.EncodeToString(id[:])}
	for _, path := range paths {
		newest.Keys = append(newest.Keys, path[len(isthmus.KeyPrefix):])
	}
	for _, value := range values {
		newest.Values = append(newest.Values, value)
	}
	kept := len(h.steps)
	for size := 0; kept > 0; kept-- {
		if size += h.steps[kept-1].size(); size > headBytes {
			break
		}
	}
	steps := append(slices.Clone(h.steps[kept:]), newest)
	lighten(steps)
	value, err := json.Marshal(headJSON{headAbout, steps})
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", headName, err)
	}
	return value, nil
}

// lighten leaves out the values of a write that is large, and of all before it.
func lighten(steps []step) {
	size := 0
	for i := range slices.Backward(steps) {
		for _, value := range steps[i].Values {
			size += len(value)
		}
		if size > headValues {
			for j := range steps[:i+1] {
				steps[j].Values = nil
			}
			return
		}
	}
}
