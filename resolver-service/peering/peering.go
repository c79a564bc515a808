// Package peering tells other clusters' resolver services what this one exports to
// them, and learns from them what they export.
//
// [Server] answers peers: it streams the differences of one immutable
// [topology.PeerView] after the other. [Links] keeps one link per Cluster object,
// through that cluster's gateways, and hands what it hears to the topology. What a
// peer said stands while the link is down, until its lease runs out.
//
// A link has several connections, through different gateways where there are: one with
// the exports, and others that renew the lease and nothing else. docs/peering.md says
// what its states mean, and when a lease ends.
package peering

import (
	"context"
	"net"
	"time"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Config is what peering needs to know of its own cluster.
type Config struct {
	Cluster   string         // this cluster's name
	Namespace string         // of Isthmus' own apps; empty for identity.SystemNamespace
	Domain    catalog.Domain // of the reserved names behind gateways

	// Dial connects to a gateway, "host:port", until ctx ends; nil for TCP. Several calls
	// run at a time.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

// Bounds of the time between two renewals of a lease. A lease has eight.
const (
	minRenew     = 250 * time.Millisecond
	maxRenew     = 2 * time.Second
	renewals     = 8
	defaultRenew = time.Second // for a peer that does not ask for another
)

// minLease is the shortest lease: of four renewals.
const minLease = 4 * minRenew

// renewEvery is how often a lease is renewed.
func renewEvery(staleAfter time.Duration) time.Duration {
	return min(max(staleAfter/renewals, minRenew), maxRenew)
}

// Bounds of what one peer may say.
const (
	maxMessage   = 4 << 20 // bytes
	maxExports   = 100_000
	maxBytes     = 64 << 20  // of all exports
	maxAllow     = 10_000    // per export
	maxAddresses = 10_000    // per export
	maxInstances = 1_000_000 // per export
)

// fullMessage is how much a message has before the next one is begun, in bytes.
const fullMessage = 512 << 10

// toWire makes the message of an export, with its digest.
func toWire(e *topology.PeerExport) (*v1alpha1.Export, error) {
	w := &v1alpha1.Export{
		App:       wire.App(e.App),
		Ready:     e.Ready,
		Draining:  e.Draining,
		Shards:    e.Shards,
		Addresses: e.Addresses,
		Instances: e.Instances,
		Allow:     make([]*v1alpha1.Allow, len(e.Allow)),
	}
	w.Zones, w.ZoneOf = e.Zones.Parts()
	for i, a := range e.Allow {
		w.Allow[i] = &v1alpha1.Allow{Cluster: a.Cluster, Namespace: a.Namespace, App: a.App}
	}
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(w)
	if err != nil {
		return nil, err
	}
	w.Digest = xxhash.Sum64(text)
	return w, nil
}

func appFromWire(a *v1alpha1.App) catalog.App {
	return catalog.App{Namespace: a.GetNamespace(), ID: a.GetId()}
}
