package topology

import (
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// head is the newest published state, as far as it is one value for all.
type head struct {
	revision atomic.Uint64
	changed  atomic.Int64 // Unix seconds of the revision
	stats    atomic.Pointer[Stats]
	ready    live.Value[bool]
	gateway  live.Value[*catalog.GatewayTable]
	callers  live.Value[*catalog.Callers]
	clusters live.Value[*catalog.Gateways]
}

func (h *head) publishRevision(revision uint64) {
	if revision != h.revision.Load() {
		h.changed.Store(max(h.changed.Load(), time.Now().Unix()))
		h.revision.Store(revision)
	}
}

// Ready holds true once the store's full set is in.
func (h *head) Ready() *live.Value[bool] { return &h.ready }

// Gateway is the gateway's table.
func (h *head) Gateway() *live.Value[*catalog.GatewayTable] { return &h.gateway }

// Callers say which app asks from an IP address: that of an instance there, also of one that
// is draining. Nothing is there until the store's full set is in.
func (h *head) Callers() *live.Value[*catalog.Callers] { return &h.callers }

// Clusters are the gateways of every Cluster object, and which of the clusters have not been
// heard: where one of these is heard, views have its routes first. Nothing is there until the
// store's full set is in.
func (h *head) Clusters() *live.Value[*catalog.Gateways] { return &h.clusters }

// Revision is that of the newest published state.
func (h *head) Revision() uint64 { return h.revision.Load() }

// Changed is when the newest state was published, in Unix seconds by this machine's clock; 0
// before the first. It never goes back, also where the clock does.
func (h *head) Changed() int64 { return h.changed.Load() }

// Stats counts what the topology holds.
func (h *head) Stats() Stats { return *h.stats.Load() }
