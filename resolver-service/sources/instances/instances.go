// Package instances has the sources of instances beside sidecars' own streams: the contract of a
// source, and the [Feed] that follows sources and hands their changes to the topology. Each source
// has a folder of its own below this one, and all are held to instancestest.
package instances

import (
	"context"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Member is another replica that serves sidecars.
type Member struct {
	Replica string
	Hears   []string // the clusters that it hears
}

// Source tells which instances there are, of as many apps as it knows.
type Source interface {
	// Name is what status, logs and metrics call the source. It is the same for the
	// life of the process, and no two sources share one.
	Name() string
	// Rank is how well the source knows which app has an address. It never changes.
	Rank() topology.Rank
	// Watch hands emit the full set, and then each change, until ctx ends or contact is
	// lost, and returns why. It is called again after a failure, and begins with the
	// full set each time. A source that can't be read emits nothing, rather than an
	// empty set: what it said before goes on standing. An error from emit ends Watch,
	// which then returns it.
	//
	// emit is called by one goroutine at a time, and not after Watch has returned. It
	// waits for nobody, so a source need not queue anything.
	//
	// The error says what was tried, and with what. One that is about credentials, which
	// only a person can mend, is a configstore.ErrDenied: then pauses are longer.
	Watch(ctx context.Context, emit func(Change) error) error
}

// Change is news from one source. emit must not keep the slices.
type Change struct {
	Full    bool // Put is everything that the source has
	Put     []catalog.Instance
	Delete  []topology.InstanceKey
	Refused []Refusal // all that the source has at the moment and can't be used
	Remarks []Refusal // all that is used and is not as it should be, which is told after what is refused
}

// Refusal is something that a source has and can't be used, and why. What stood for it
// before is gone: an instance whose address can't be read can't be called.
type Refusal struct {
	Where string // such as "EndpointSlice shop/orders-dapr-x2x, endpoint 3"
	Err   error
}
