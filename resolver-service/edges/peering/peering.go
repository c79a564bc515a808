// Package peering exchanges exports with the resolver services of other clusters.
//
// [Server] answers peers: it streams the differences between one immutable [topology.PeerView]
// and the next. [Links] keeps one link for each Cluster object, through that cluster's gateways,
// and hands the peer's exports to the topology. While a link is down, the exports stay until the
// peer's lease ends.
//
// A link has several connections, through different gateways where possible. One carries the
// exports; the others only renew the lease. The peering page in docs/ explains the states of a
// link, and when a lease ends.
package peering

import (
	"context"
	"crypto/x509"
	"net"
	"time"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/membership/introductions"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Config describes this service's own cluster.
type Config struct {
	Cluster   string         // this cluster's name
	Namespace string         // of Isthmus' own apps; empty means identity.SystemNamespace
	Domain    catalog.Domain // of the reserved host names behind gateways
	Version   string         // of the program, for operators of peers
	// Service tells services apart that have this cluster's name: replicas share it, and a restart
	// does not change it. Nil or empty: it is not known, and this service is told apart from none.
	// It may be called concurrently.
	Service func() string

	// Announcement is the roots that this cluster announces for itself; nil: nothing is said of them.
	// Nil announces none. It may be called concurrently.
	Announcement func() *v1alpha1.RootsAnnouncement
	// Announced takes the roots that a peer announces for itself, and the certificate of the
	// connection. It may be called concurrently, and must not block. Nil ignores them.
	Announced func(cluster, roots string, by []*x509.Certificate)

	// Introduces has the introductions for peers; nil: there are none.
	Introduces *introductions.Directory
	// Heard takes the introductions of peers; nil: they are not heard.
	Heard Heard

	// Many is the number of links above which peers are told an interest, and links rest; 0 stands for
	// 32. With a negative number they are as with that many links, and with one at least.
	Many int

	// MaxKnown bounds the bytes of exports that a new stream names as known; 0 stands for 3 MiB.
	MaxKnown int

	// Now is the clock that peers are told of; nil means time.Now.
	Now func() time.Time

	// Resolver is how host names of gateways are looked up; nil: as the system does.
	Resolver func() *net.Resolver

	// Dial connects to a gateway, "host:port", until ctx ends; nil means TCP. It may be called
	// concurrently.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Tunnel connects to the gateway of a cluster that dials this one, until ctx ends. It may be called
	// concurrently.
	Tunnel func(ctx context.Context, cluster string) (net.Conn, error)
}

func (c *Config) now() time.Time {
	if c.Now == nil {
		return time.Now()
	}
	return c.Now()
}

// Bounds of the time between two renewals of a lease.
const (
	minRenew         = 250 * time.Millisecond
	maxRenew         = 2 * time.Second
	renewalsPerLease = 8
	defaultRenew     = time.Second // for a peer that requests no other
)

// minLease is the shortest lease. It lasts four renewals.
const minLease = 4 * minRenew

// renewInterval is the time between two renewals of a lease.
func renewInterval(staleAfter time.Duration) time.Duration {
	return min(max(staleAfter/renewalsPerLease, minRenew), maxRenew)
}

// Bounds of what one peer may send.
const (
	maxMessage   = 4 << 20 // bytes
	maxExports   = 100_000
	maxBytes     = 64 << 20  // of all exports
	maxAllow     = 10_000    // per export
	maxAddresses = 10_000    // per export
	maxInstances = 1_000_000 // per export
)

// fullMessage is the size in bytes at which the next message begins.
const fullMessage = 512 << 10

// toWire encodes an export with its digest.
func toWire(e *topology.PeerExport) (*v1alpha1.Export, error) {
	w := &v1alpha1.Export{
		App:       wire.App(e.App),
		Ready:     e.Ready,
		Draining:  e.Draining,
		Shards:    e.Shards,
		Addresses: e.Addresses,
		Instances: e.Instances,
		Allow:     wire.Allow(e.Allow),
		Named:     e.Named,
	}
	w.Zones, w.ZoneOf = e.Zones.Parts()
	w.Versions, w.VersionOf = e.Versions.Parts()
	if a := e.Actor; a != nil {
		w.Actor = &v1alpha1.ActorExport{Object: a.Object, Draining: a.Draining}
	}
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(w)
	if err != nil {
		return nil, err
	}
	w.Digest = xxhash.Sum64(text)
	return w, nil
}
