package objects

import (
	"context"
	"slices"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// addTo adds an object to a change. A guest whose time is over counts as not there.
func addTo(change *topology.ObjectChange, o catalog.Object, now time.Time) {
	if catalog.Ended(o, now) {
		change.Delete = append(change.Delete, o.Key())
	} else {
		change.Put = append(change.Put, o)
	}
}

// counting are the Cluster objects that count at a moment.
func (f *Feed) counting(now time.Time) []*catalog.Cluster {
	all, _ := f.stored.Load()
	return slices.DeleteFunc(slices.Clone(all), func(c *catalog.Cluster) bool { return catalog.Ended(c, now) })
}

// clockCheck is how long RunGuests waits at most: somebody may set the clock.
const clockCheck = time.Minute

// RunGuests ends guests when their time is over, until ctx ends.
func (f *Feed) RunGuests(ctx context.Context) error {
	for {
		clusters, _, changed := f.clusters.Follow()
		wait := clockCheck
		for _, c := range clusters {
			if c.Guest != nil {
				wait = min(wait, max(0, time.Until(c.Guest.Until)))
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
			if err := f.endGuests(ctx); err != nil {
				return nil // the topology has ended, or ctx
			}
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		timer.Stop()
	}
}

// endGuests takes guests whose time is over out of the topology, and then out of the clusters that count.
func (f *Feed) endGuests(ctx context.Context) error {
	f.taking.Lock()
	defer f.taking.Unlock()
	now, change := time.Now(), &topology.ObjectChange{}
	clusters, _ := f.clusters.Load()
	for _, c := range clusters {
		if catalog.Ended(c, now) {
			change.Delete = append(change.Delete, c.Key())
		}
	}
	if len(change.Delete) == 0 {
		return nil
	}
	revision, err := f.topology.Apply(ctx, topology.Change{Objects: change})
	if err == nil {
		f.clusters.Store(f.counting(now))
		f.applied.Store(revision)
	}
	return err
}
