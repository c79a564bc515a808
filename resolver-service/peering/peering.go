// Package peering tells other clusters' resolver services what this one exports to
// them, and learns from them what they export.
//
// [Server] answers peers: it streams the differences of one immutable
// [topology.PeerView] after the other. [Links] keeps one link per Cluster object,
// through that cluster's gateways, and hands what it hears to the topology. What a
// peer said stands while the link is down, until its lease runs out.
package peering

import (
	"time"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// renewEvery is how often a server renews a lease when there is nothing to tell.
const renewEvery = time.Second

// minLease is the shortest lease that renewals keep up.
const minLease = 2 * renewEvery

// How long a link waits for a word before it takes the connection for dead and makes
// a new one. The first word may be large, and the peer's store slow to open.
const (
	firstWordWithin = 30 * time.Second
	nextWordWithin  = 10 * time.Second
)

// Bounds of what one peer may say.
const (
	maxMessage   = 64 << 20 // bytes
	maxExports   = 100_000
	maxBytes     = 256 << 20 // of all exports
	maxAllow     = 10_000    // per export
	maxAddresses = 10_000    // per export
)

// toWire makes the message of an export, with its digest.
func toWire(e *topology.PeerExport) (*v1alpha1.Export, error) {
	w := &v1alpha1.Export{
		App:       wire.App(e.App),
		Ready:     e.Ready,
		Addresses: e.Addresses,
		Allow:     make([]*v1alpha1.Allow, len(e.Allow)),
	}
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
