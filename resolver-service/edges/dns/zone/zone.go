// Package zone answers DNS queries about apps, each caller by its own view: names of the
// zone, which is a domain such as isthmus.internal, names of Dapr's services in
// Kubernetes, and the reverse names of instances.
//
// Nothing is prepared for an app until somebody asks for it. Then its addresses are packed
// as records once for each plan, and kept with the plan ([catalog.Plan.Keep]).
package zone

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/transport"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Zone is a [transport.Handler].
type Zone struct {
	cfg      Config
	topology *topology.Topology
	log      *slog.Logger

	domain     suffix // of the zone
	services   suffix // svc.<Kubernetes>
	ttl        uint32
	gatewayTTL uint32
	negative   uint32 // TTL of what is not there, and of what is stale

	cookies  cookies
	counters counters
	gateways gateways
	settled  atomic.Bool

	knownCallers struct {
		all atomic.Pointer[catalog.Table[*knownCaller]]
		mu  sync.Mutex // for who changes them
	}
}

// suffix is the end of names.
type suffix struct {
	wire   []byte // nil: no name has it
	labels int
}

func newSuffix(name string) suffix {
	if name == "" {
		return suffix{}
	}
	s := suffix{wire: wire.AppendName(nil, name)}
	for at := 0; s.wire[at] != 0; at += 1 + int(s.wire[at]) {
		s.labels++
	}
	return s
}

// of tells how many labels a name has before the suffix.
func (s *suffix) of(n *wire.Name) (below int, ok bool) {
	if s.wire == nil {
		return 0, false
	}
	return n.Below(s.wire, s.labels)
}

var (
	reverse4 = newSuffix("in-addr.arpa")
	reverse6 = newSuffix("ip6.arpa")
)

// maxNSID is how much of Config.NSID is told.
const maxNSID = 128

// New makes a zone. It answers as soon as it is made; Run keeps it tidy.
func New(cfg Config, t *topology.Topology, log *slog.Logger) *Zone {
	z := &Zone{cfg: cfg, topology: t, log: log}
	z.cfg.NSID = cfg.NSID[:min(len(cfg.NSID), maxNSID)]
	z.domain = newSuffix(string(cfg.Domain))
	if cfg.Kubernetes != "" {
		z.services = newSuffix("svc." + cfg.Kubernetes)
	}
	z.ttl = seconds(cfg.TTL, DefaultTTL)
	z.gatewayTTL = seconds(cfg.GatewayTTL, DefaultGatewayTTL)
	z.negative = min(z.ttl, uint32(MaxNegativeTTL/time.Second))
	z.cookies.setSecret(cfg.CookieSecret)
	z.gateways.zone = z
	z.knownCallers.all.Store(&catalog.Table[*knownCaller]{})
	if cfg.Settled == nil {
		z.settled.Store(true)
	}
	return z
}

// maxTTL is the longest time that a TTL can say (RFC 2181, 8).
const maxTTL = 1<<31 - 1

func seconds(d, unset time.Duration) uint32 {
	if d == 0 {
		d = unset
	}
	return uint32(min(max(d, 0)/time.Second, maxTTL))
}

// idle is how long at least a caller's view is followed after its last query.
const idle = 5 * time.Minute

// Run packs gateways' addresses again when they change, and lets go of callers that
// have not asked for a while, until ctx ends.
func (z *Zone) Run(ctx context.Context) error {
	tick := time.NewTicker(idle)
	defer tick.Stop()
	defer z.release(func(*knownCaller) bool { return true })
	for {
		changed := z.gateways.follow()
		select {
		case <-changed.clusters:
		case <-changed.hosts:
		case <-tick.C:
			z.release((*knownCaller).idle)
		case <-ctx.Done():
			return nil
		}
	}
}

// Answer appends the response to a query; see [transport.Handler].
func (z *Zone) Answer(q *transport.Query, out []byte) (response []byte, later bool) {
	var x exchange
	x.zone, x.query = z, q
	x.response.zone = z
	response = x.respond(out)
	if x.later {
		return out, true
	}
	z.counters.add(x.outcome)
	return response, false
}

// Wait answers a query that has to wait; see [transport.Handler].
func (z *Zone) Wait(ctx context.Context, q *transport.Query, out []byte) []byte {
	var x exchange
	x.zone, x.query, x.ctx = z, q, ctx
	x.response.zone = z
	response := x.respond(out)
	z.counters.add(x.outcome)
	return response
}

// isSettled tells whether what is missing is not to be had; see Config.Settled.
func (z *Zone) isSettled() bool {
	if z.settled.Load() {
		return true
	}
	select {
	case <-z.cfg.Settled:
		z.settled.Store(true)
		return true
	default:
		return false
	}
}

// serial is the zone's: when it last changed, in seconds. So it grows over restarts too, and
// replicas with the same clock and the same changes agree. It wraps around as RFC 1982 has
// it, and is never 0, which some take for none.
func (z *Zone) serial() uint32 { return max(uint32(z.topology.Changed()), 1) }
