package instancestest

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Followed is an instances.Feed at work on one source, and its instances.
type Followed struct {
	Feed *instances.Feed

	mu      sync.Mutex
	stands  map[topology.InstanceKey]catalog.Instance
	deleted []topology.InstanceKey
	graph   *topology.Graph
	open    *catalog.View // what callers see
	applied func()        // after each change, with mu held
}

// Follow runs a Feed until the test ends.
func Follow(t testing.TB, s instances.Source) *Followed {
	t.Helper()
	f := newFollowed(func() {})
	f.run(t, s)
	return f
}

func newFollowed(applied func()) *Followed {
	f := &Followed{stands: map[topology.InstanceKey]catalog.Instance{}, applied: applied, graph: topology.NewGraph(topology.Config{Cluster: "west", Open: true})}
	f.see(topology.Change{Objects: &topology.ObjectChange{Full: true}})
	return f
}

// see has callers see a change.
func (f *Followed) see(c topology.Change) {
	for _, u := range f.graph.Apply(c) {
		if u.Open != nil {
			f.open = u.Open
		}
	}
}

// served is where callers see each app.
func (f *Followed) served() map[catalog.App][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[catalog.App][]string{}
	for app, e := range f.open.Entries.All() {
		for _, r := range e.Routes {
			all[app] = append(all[app], r.Addresses...)
		}
	}
	return all
}

func (f *Followed) run(t testing.TB, s instances.Source) {
	t.Helper()
	var err error
	if f.Feed, err = instances.NewFeed(instances.FeedConfig{Sources: []instances.Source{s}}, f, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() {
		if err := f.Feed.Run(ctx); err != nil && ctx.Err() == nil {
			t.Errorf("the feed ended with %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		wait.Wait()
	})
}

// Apply is that of instances.Applier.
func (f *Followed) Apply(_ context.Context, c topology.Change) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range c.Instances {
		if i.Full {
			clear(f.stands)
		}
		for _, key := range i.Delete {
			delete(f.stands, key)
			f.deleted = append(f.deleted, key)
		}
		for _, p := range i.Put {
			f.stands[topology.InstanceKey{App: p.App, ID: p.ID}] = p
		}
	}
	f.see(c)
	f.applied()
	return 1, nil
}

// Stands are the instances that stand now, in no order.
func (f *Followed) Stands() []catalog.Instance {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Values(f.stands))
}

// Count is how many of those that stand are such.
func (f *Followed) Count(such func(catalog.Instance) bool) (n int) {
	for _, i := range f.Stands() {
		if such(i) {
			n++
		}
	}
	return n
}

// Deleted are the instances that were taken away one by one so far, the oldest first.
func (f *Followed) Deleted() []topology.InstanceKey {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.deleted)
}

// Status is what the Feed says of the source.
func (f *Followed) Status() instances.Status {
	all, _ := f.Feed.Status().Load()
	return all[0]
}
