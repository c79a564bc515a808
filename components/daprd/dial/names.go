// Package dial answers gateway names inside the process when gRPC dials them, so
// that a daprd with Isthmus loaded needs no DNS for them, follows a gateway's new
// address on a live connection, and survives the loss of one of several gateways.
//
// daprd dials other sidecars as "name:port", which gRPC gives to its resolver
// "passthrough", and as "dns:///name:port" in Kubernetes mode. Both resolvers are
// wrapped rather than replaced by a new default scheme: whatever is not a gateway
// name then goes exactly where it went before, also for clients inside daprd that
// have nothing to do with service invocation (Sentry, placement, OTLP).
package dial

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/resolver"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/live"
)

// Schemes are gRPC's resolvers that a standalone daprd and one in Kubernetes dial by.
func Schemes() []string { return []string{"passthrough", "dns"} }

// Times say how long things wait, and when host names among gateway addresses are
// looked up again.
type Times struct {
	Grace   time.Duration // for the gateways of a cluster that the view has only just begun to lead to
	Every   time.Duration // while all is well
	Soonest time.Duration // at the earliest, when a connection failed or a lookup did
	Lookup  time.Duration // how long one lookup may take
}

// DefaultTimes are the times of [New].
func DefaultTimes() Times {
	return Times{Grace: time.Second, Every: 30 * time.Second, Soonest: time.Second, Lookup: 5 * time.Second}
}

// Names knows the gateways behind gateway names. It is safe for use by many
// goroutines.
type Names struct {
	log      *slog.Logger
	times    Times
	lookup   func(ctx context.Context, host string) ([]string, error)
	gateways atomic.Pointer[live.Value[*catalog.Gateways]]
	retry    atomic.Bool
	leads    atomic.Pointer[leads]

	mu     sync.Mutex
	fleets map[string]*fleet // by cluster; a few words for each that was ever dialled
}

// New returns Names that know no gateway until Use. The first call comes before anything
// dials, as Register does.
func New(log *slog.Logger) *Names {
	registerPolicy()
	n := &Names{fleets: map[string]*fleet{}, log: log, times: DefaultTimes(), lookup: net.DefaultResolver.LookupHost}
	n.leads.Store(newLeads(nil))
	return n
}

// Use makes names follow these gateways from the next dial on; retry says whether a
// call that a lost gateway cut off is tried again through another. view says which names
// lookups answer; nil is a view that is never known. daprd loads its components anew when its
// configuration changes, so this may be called again.
func (n *Names) Use(gateways *live.Value[*catalog.Gateways], view View, retry bool) {
	n.leads.Store(newLeads(view))
	n.retry.Store(retry)
	n.gateways.Store(gateways)
}

// Register wraps gRPC's resolvers for Schemes. Call it once and before anything
// dials: gRPC's registry is not safe for concurrent use.
func (n *Names) Register() error {
	for _, scheme := range Schemes() {
		stock := resolver.Get(scheme)
		if stock == nil {
			return fmt.Errorf("answer gateway names at dial time: gRPC has no resolver %q to wrap", scheme)
		}
		resolver.Register(n.Wrap(stock))
	}
	return nil
}

// Wrap returns a builder that answers gateway names and leaves all others to stock.
func (n *Names) Wrap(stock resolver.Builder) resolver.Builder {
	return &builder{Builder: stock, names: n}
}

// target is what a gateway name leads to.
type target struct {
	gateways *live.Value[*catalog.Gateways]
	app      catalog.App
	cluster  string
	shard    int // catalog.NoShard in the name of an app
}

// target says where a "host:port" leads to; ok is false for what is not a gateway name.
func (n *Names) target(name string) (to target, ok bool) {
	to.gateways = n.gateways.Load()
	if to.gateways == nil {
		return target{}, false
	}
	now, ok := to.gateways.Load()
	if !ok || now == nil {
		return target{}, false
	}
	host, _, err := net.SplitHostPort(name)
	if err != nil {
		return target{}, false
	}
	to.app, to.cluster, to.shard, ok = now.Domain.ParseShard(host)
	return to, ok
}

// fleet is the gateways of a cluster, as their connections fare.
func (n *Names) fleet(cluster string) *fleet {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := n.fleets[cluster]
	if f == nil {
		f = newFleet(cluster, n.log)
		n.fleets[cluster] = f
	}
	return f
}

// builder is gRPC's resolver for one scheme with gateway names answered first. It
// leaves authority, and so SNI, to gRPC's rule: the name as dialled.
type builder struct {
	resolver.Builder
	names *Names
}

// Build starts a resolver for one connection.
func (b *builder) Build(target resolver.Target, cc resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error) {
	name := target.Endpoint()
	to, ok := b.names.target(name)
	// A dialer of the caller's own expects the name, not what it stands for.
	if !ok || opts.Dialer != nil {
		return b.Builder.Build(target, cc, opts)
	}
	return start(b.names, to, name, cc), nil
}

// addressesOf lists a cluster's gateways; there are none when nothing is known.
func addressesOf(g *catalog.Gateways, cluster string) []string {
	if g == nil {
		return nil
	}
	return g.Addresses[cluster]
}

// noGateway is why a call to a gateway name fails.
func noGateway(name, cluster string) error {
	return fmt.Errorf("dial %s: this app's view names no gateway for cluster %s; check the gateways of the object Cluster %s", name, cluster, cluster)
}
