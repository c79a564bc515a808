package consul

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	isthmus "github.com/isthmus-mesh/isthmus/api"
)

const (
	// headName is the key below the prefix that says what was changed last. No object can
	// have it.
	headName = ".changes"
	// headBytes is how many bytes of keys and ids of earlier writes are kept: some 80 writes of
	// one object, for readers that were busy meanwhile.
	headBytes = 4096
)

// headAbout is for people who find the key.
const headAbout = "Which keys Isthmus wrote last, oldest first. Isthmus keeps it for those who watch; what is written by other hands need not be in it."

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
	for _, s := range from.Steps {
		if s.Index <= before || s.ID == "" {
			return h
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

// since is the paths (api.KeyPath) that Isthmus has written after a mark. ok is false
// when the head does not go back that far, or has another past.
func (h head) since(m mark) (paths []string, ok bool) {
	for i, s := range h.steps {
		if s.Index != m.index || s.ID != m.id {
			continue
		}
		for _, later := range h.steps[i+1:] {
			for _, key := range later.Keys {
				paths = append(paths, isthmus.KeyPrefix+key)
			}
		}
		slices.Sort(paths)
		return slices.Compact(paths), true
	}
	return nil, false
}

// next is the value of a head after one more write, to these paths.
func (h head) next(paths []string) ([]byte, error) {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails, by its documentation
	newest := step{ID: hex.EncodeToString(id[:])}
	for _, path := range paths {
		newest.Keys = append(newest.Keys, path[len(isthmus.KeyPrefix):])
	}
	kept := len(h.steps)
	for size := 0; kept > 0; kept-- {
		size += len(h.steps[kept-1].ID) // a few bytes, unless it is by another hand
		for _, key := range h.steps[kept-1].Keys {
			size += len(key)
		}
		if size > headBytes {
			break
		}
	}
	steps := append(slices.Clone(h.steps[kept:]), newest)
	value, err := json.Marshal(headJSON{headAbout, steps})
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", headName, err)
	}
	return value, nil
}
