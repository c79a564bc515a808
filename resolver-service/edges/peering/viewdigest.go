package peering

import (
	"encoding/binary"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// viewDigest is the digest of all that a peer may know. It is updated from one view to the next.
// Replicas with the same exports have the same digest, whatever their revisions. It is safe for
// concurrent use.
type viewDigest struct {
	mu   sync.Mutex
	view *topology.PeerView // nil: none yet
	sum  uint64

	onFullScan func(exports int) // gets the number of exports when all are scanned; may be nil
}

// of returns the digest of a view. It is never 0.
func (c *viewDigest) of(view *topology.PeerView) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.view == nil {
		c.view, c.sum = &topology.PeerView{}, 0
		if c.onFullScan != nil {
			c.onFullScan(view.Exports.Len())
		}
	}
	if c.view != view {
		same := func(a, b *topology.PeerExport) bool { return a == b }
		for edit := range view.Exports.Diff(&c.view.Exports, same) {
			if old, had := c.view.Exports.Get(edit.App); had {
				c.sum -= exportDigest(old)
			}
			if !edit.Remove {
				c.sum += exportDigest(edit.Value)
			}
		}
		c.view = view
	}
	return max(c.sum, 1)
}

// current is the view that the digest is of, and the digest.
func (c *viewDigest) current() (*topology.PeerView, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view, c.sum
}

func exportDigest(e *topology.PeerExport) uint64 {
	w, err := toWire(e)
	if err != nil {
		return 0 // it can't be sent either
	}
	var text [16]byte
	binary.LittleEndian.PutUint64(text[:], xxhash.Sum64String(e.App.String()))
	binary.LittleEndian.PutUint64(text[8:], w.Digest)
	return xxhash.Sum64(text[:])
}
