// Package topology turns objects, instances and the news of peers into answers: a view per app, the
// gateway's table, and the exports to each peer.
//
// [Graph] is the dependency graph: pure, without I/O, clocks or goroutines. A change recomputes
// only the nodes that it reaches. [Topology] owns one Graph in one goroutine, publishes its
// results, and notifies afterwards.
package topology

import (
	"log/slog"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology/destination"
)

// Config is what a graph needs to know of its own cluster.
type Config struct {
	Cluster string            // this cluster's name
	Network string            // its network; empty if it shares none
	Domain  catalog.Domain    // of host names
	Open    bool              // an app without a selection resolves every app of this cluster
	Guard   catalog.GuardMode // of callers that nothing lets in
	// SelectionIsConsent lets a selection open the guards of other namespaces, too.
	SelectionIsConsent bool
	Declared           Declared
	PreferZone         bool // callers prefer instances of their own zone, unless their selection says otherwise
	// Kubernetes has the gateway take the names of Dapr's services there; empty: none.
	Kubernetes catalog.Kubernetes
	// Tunnels are the addresses of this cluster's own gateway for callers here, which reach clusters
	// by it that dial this one.
	Tunnels []string
	// AnyInstance tells that this cluster's gateway takes a name of an instance for any of the app, as
	// Envoy does. So nobody may choose a version by it.
	AnyInstance bool
	// Destinations are the rules for the addresses of exported apps, and for those that peers
	// on the same network name. Sources hold instances to them before they come here.
	Destinations *destination.Rules
	// Events is told of apps that lose their last ready instance, and get one again; nil: nobody is.
	Events *slog.Logger
}

// Change is news from any of the three sources. It is applied as a whole: no view shows a part of
// it. Its deletions come before its additions.
type Change struct {
	Objects   *ObjectChange
	Instances []InstanceChange
	Peers     []PeerChange
	// Followed are apps whose view somebody has begun to follow, and those whose nobody follows any
	// more. [Topology] sets it.
	Followed map[catalog.App]bool
	// Now is when it comes, since any moment that stays the same: ramps step by it.
	// [Topology] sets it.
	Now time.Duration
}

// ObjectChange is news from the config store.
type ObjectChange struct {
	Full   bool // Put is the complete set: an object that it does not hold is gone, unless Keep names it
	Put    []catalog.Object
	Delete []catalog.Key
	Keep   []catalog.Key // stored but unusable: the last good object stands
}

// InstanceChange is news from one source of instances. Sources do not see each
// other's instances; an app has those of all of them.
//
// Instances of one app that share an address are one, which is ready while no source
// says otherwise. Of two apps at one address, [Rank] says which has it.
type InstanceChange struct {
	Source string
	Rank   Rank // of the source
	Full   bool // Put is everything that the source has
	Put    []catalog.Instance
	Delete []InstanceKey
}

// InstanceKey names an instance within a source.
type InstanceKey struct {
	App catalog.App
	ID  string
}

// KeyOf is the name that an instance has within its source.
func KeyOf(i *catalog.Instance) InstanceKey { return InstanceKey{App: i.App, ID: i.ID} }

// PeerChange is news of one peer.
type PeerChange struct {
	Cluster string
	Full    bool // Put is everything that the peer exports to this cluster
	Put     []PeerExport
	Delete  []catalog.App
	Lease   Lease
}

// Lease says how far a peer's word can be relied on. The zero value changes nothing.
type Lease uint8

// The states of a peer's lease.
const (
	Unchanged Lease = iota
	Fresh           // heard from; the peer's word holds
	Expired         // not heard from for too long
	Damped          // heard from, but it ran out too often lately: for callers without another way
	Resting         // heard when it last was asked, which is seldom: nothing here leads there
	Silent          // asked, and not heard; what was heard of before stays as it is
	Forgotten       // as if it had never been heard: its Cluster object is gone
)

// PeerExport is one app that a peer exports to this cluster, or that this cluster
// exports to a peer. It is immutable.
type PeerExport struct {
	App      catalog.App
	Allow    []catalog.Allow // what concerns the importing cluster
	Ready    uint32          // how many instances are ready
	Draining uint32          // how many more take no new calls
	Shards   uint32          // host names that callers may spread over; below 2 there are none
	// Instances are the tokens of the ready instances; none where two would be alike.
	Instances []uint32
	// Addresses are those of the ready instances, only between clusters on one network. One that
	// the cluster names with two apps is neither's.
	Addresses []string
	Zones     *catalog.Labels // of Instances or, where there are none, of Addresses
	Versions  *catalog.Labels // likewise
	// Actor is set for an actor type, whose App is that of [catalog.Actors.App].
	Actor *ActorExport
	// Named tells that no app of the importing cluster may be led to this one, by what that cluster
	// said: then only App and Allow are told, and in Ready 1 for any number.
	Named bool
}

// Interest is the apps of which a peer is told all. It is immutable; nil stands for every app.
type Interest struct{ Apps *catalog.AppSet }

// has tells whether all is told of an app. Of actor types it is.
func (i *Interest) has(app catalog.App) bool {
	if i == nil || i.Apps.Has(app) {
		return true
	}
	_, actors := app.Actors()
	return actors
}

// PeerKey tells the views of peers apart: by the peer, and by its interest's digest, which is empty
// for every app.
type PeerKey struct{ Cluster, Interest string }

// Key is that of a cluster's view by the interest.
func (i *Interest) Key(cluster string) PeerKey {
	if i == nil {
		return PeerKey{Cluster: cluster}
	}
	return PeerKey{cluster, "=" + string(i.Apps.Digest())}
}

// ActorExport is what an export says of an actor type.
type ActorExport struct {
	Object   string // the ActorType's name
	Draining bool
}

// PeerView is what one peer may know: immutable, complete, with a revision.
type PeerView struct {
	Revision uint64
	Exports  catalog.Table[*PeerExport]

	interest *Interest
}

// Effects are what a change of objects would alter.
type Effects struct {
	Lookups []Effect       // of this cluster's callers, by caller and app
	Exports []ExportEffect // what other clusters would be told, by cluster and app
}

// ExportEffect is an app whose callers in another cluster change. Lookups there change with it;
// only that cluster can tell how.
type ExportEffect struct {
	Cluster string
	App     catalog.App
	Before  []catalog.Allow // none: not exported to the cluster
	After   []catalog.Allow
}

// Effect is one decision that a change alters, or would alter.
type Effect struct {
	Caller catalog.App // the zero App stands for every app without a selection
	App    catalog.App
	Before catalog.Decision
	After  catalog.Decision
}
