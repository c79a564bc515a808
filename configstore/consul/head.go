package consul

import (
	"strconv"

	isthmus "github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore"
)

const (
	// headName is the key of the head below the prefix. No object can have it.
	headName = ".changes"
	// headBytes is how long a head is without its newest batch: some 80 writes of one object, for
	// readers that were busy meanwhile.
	headBytes = 4096
)

// head is a configstore.Head whose batches have Consul's ModifyIndex as their revision.
type head struct {
	configstore.Head
	index uint64 // Consul's ModifyIndex of it: 0 where there is none
}

// parseHead reads a head. One that can't be used has no batches, and so explains nothing.
func parseHead(index uint64, value []byte) head {
	h, ok := configstore.ParseHead(string(value), index)
	for _, b := range h.Batches {
		for _, path := range b.Paths {
			_, err := isthmus.ParseKeyPath(path)
			ok = ok && err == nil
		}
	}
	if !ok {
		return head{index: index}
	}
	return head{h, index}
}

// next is the value of a head after one more write; see configstore.Head.Next.
func (h head) next(paths []string, values [][]byte) []byte {
	length := headBytes
	for _, path := range paths {
		length += len(path)
	}
	return []byte(h.Next(paths, values).Text(length))
}

// carried is what some writes made of what they touched, but for what is known from later
// on. ok is false if they do not all say it.
func carried(batches []configstore.Batch, known map[string]string) (now snapshot, ok bool) {
	seen := map[string]bool{}
	for _, b := range batches {
		if b.Values == nil {
			return snapshot{}, false
		}
		for i, path := range b.Paths {
			if seen[path] || known[path] != "" && later(known[path], b.Revision) {
				continue
			}
			seen[path] = true
			if value := b.Values[i]; value == nil {
				now.missing = append(now.missing, path)
			} else {
				now.pairs = append(now.pairs, configstore.Pair{Path: path, Value: value, Revision: strconv.FormatUint(b.Revision, 10)})
			}
		}
	}
	return now, true
}
