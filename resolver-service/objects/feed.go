package objects

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Feed brings what the config store holds into the topology, and knows how far that
// has come.
type Feed struct {
	topology  *topology.Topology
	follower  *configstore.Follower
	clusters  live.Value[[]*catalog.Cluster]
	instances live.Value[[]*catalog.AppInstance]
	applied   live.Value[uint64] // the topology's revision after each change
	log       *slog.Logger

	// closed are selections that were refused when the store was first read: the apps
	// have empty ones in the topology, until theirs are mended or deleted. Of the
	// follower's goroutine.
	failedClosed map[catalog.Key]bool

	sources <-chan struct{} // nil: there is nothing to wait for
	ending  <-chan struct{} // closed when Run must end

	mu  sync.RWMutex // guards set
	set configstore.Set
}

// NewFeed makes a feed, and starts nothing.
func NewFeed(store configstore.Store, t *topology.Topology, log *slog.Logger) *Feed {
	f := &Feed{topology: t, log: log, failedClosed: map[catalog.Key]bool{}}
	f.follower = configstore.NewFollower(store, f.take, log)
	return f
}

// After has the first objects wait, before they come into the topology, until sources is
// closed: so no view is without the instances that sources have. Instances has its value
// before. It is called before Run.
func (f *Feed) After(sources <-chan struct{}) { f.sources = sources }

// Run follows the store until ctx ends, when it returns nil, or the store is closed.
func (f *Feed) Run(ctx context.Context) error {
	f.ending = ctx.Done()
	err := f.follower.Run(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Status is how the feed stands to its store.
func (f *Feed) Status() configstore.Status {
	s, _ := f.follower.Status().Load()
	return s
}

// Clusters are the Cluster objects; they can be followed.
func (f *Feed) Clusters() *live.Value[[]*catalog.Cluster] { return &f.clusters }

// Instances are the AppInstance objects; they can be followed. What they name is not in
// the topology by them: the source of static instances brings it there, with its health.
func (f *Feed) Instances() *live.Value[[]*catalog.AppInstance] { return &f.instances }

// Selections are the apps that have a selection, in order.
func (f *Feed) Selections() []catalog.App {
	var apps []catalog.App
	for _, stored := range f.all() {
		if s, ok := stored.Object.(*catalog.AppEndpoints); ok {
			apps = append(apps, s.App)
		}
	}
	return apps
}

// take brings one change into the topology. It is noted in the feed only afterwards, in all
// its parts at once, so whoever waits for the feed finds lookups that follow.
func (f *Feed) take(c configstore.Change) error {
	change := &topology.ObjectChange{Full: c.Full, Delete: c.Deleted, Put: make([]catalog.Object, len(c.Objects))}
	for i := range c.Objects {
		change.Put[i] = c.Objects[i].Object
	}
	for _, r := range c.Refused {
		change.Keep = append(change.Keep, r.Key)
	}
	if err := f.await(c); err != nil {
		return err
	}
	f.failClosed(c, change)
	// The topology answers until it ends, and that ends the feed too.
	revision, err := f.topology.Apply(context.Background(), topology.Change{Objects: change})
	if err != nil {
		return err
	}
	f.remember(c)
	f.applied.Store(revision)
	return nil
}

func (f *Feed) remember(c configstore.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.set.Apply(c)
	updateList(f, &f.clusters, catalog.KindCluster, c)
	updateList(f, &f.instances, catalog.KindAppInstance, c)
}

// renew makes a list of the objects of one kind what it is after a change, which the feed's
// set has already. It stays in order.
func updateList[T catalog.Object](f *Feed, list *live.Value[[]T], kind catalog.Kind, c configstore.Change) {
	switch {
	case c.Full:
		list.Store(ofKind[T](f.set.All()))
		return
	case !touches(c, kind):
		return
	}
	was, _ := list.Load()
	next := slices.Clone(was) // others may be reading it
	place := func(key catalog.Key) (at int, there bool) {
		return slices.BinarySearchFunc(next, key, func(o T, key catalog.Key) int { return o.Key().Compare(key) })
	}
	for _, key := range c.Deleted {
		if at, there := place(key); there {
			next = slices.Delete(next, at, at+1)
		}
	}
	for _, o := range ofKind[T](c.Objects) {
		if at, there := place(o.Key()); there {
			next[at] = o
		} else {
			next = slices.Insert(next, at, o)
		}
	}
	list.Store(next)
}

// await waits for the sources of instances, with the first change.
func (f *Feed) await(c configstore.Change) error {
	if f.sources == nil || !c.Full {
		return nil
	}
	f.instances.Store(ofKind[*catalog.AppInstance](c.Objects))
	select {
	case <-f.sources:
		return nil
	case <-f.ending:
		return context.Canceled
	}
}

// failClosed sees to selections that were refused before a good version of them was
// ever seen, as after a restart. Without one the app would follow the cluster's default
// and see more than its own selection may ever have held, so it gets an empty one. One
// that is refused later is another matter: the last good version stands, and a new
// object with a mistake must not cut off an app that works.
func (f *Feed) failClosed(c configstore.Change, change *topology.ObjectChange) {
	refused := map[catalog.Key]bool{}
	for _, r := range c.Refused {
		refused[r.Key] = true
	}
	for key := range f.failedClosed {
		if !refused[key] {
			delete(f.failedClosed, key)
			change.Delete = append(change.Delete, key) // deletions come first: what was put stands
		}
	}
	if !c.Full {
		return
	}
	good := map[catalog.Key]bool{}
	for i := range c.Objects {
		good[c.Objects[i].Object.Key()] = true
	}
	for _, r := range c.Refused {
		app := catalog.App{Namespace: r.Key.Namespace, ID: r.Key.Name}
		if r.Key.Kind != catalog.KindAppEndpoints || good[r.Key] || f.failedClosed[r.Key] || app.Check() != nil {
			continue
		}
		f.failedClosed[r.Key] = true
		change.Put = append(change.Put, &catalog.AppEndpoints{App: app, Source: catalog.Source{File: r.Where}})
		f.log.Warn("the selection is refused and no good version of it is known: the app may call itself only until it is mended or deleted",
			"app", app.String(), "object", r.Key.String(), "err", r.Err)
	}
}

func touches(c configstore.Change, kind catalog.Kind) bool {
	return slices.ContainsFunc(c.Objects, func(s configstore.Stored) bool { return s.Object.Key().Kind == kind }) ||
		slices.ContainsFunc(c.Deleted, func(k catalog.Key) bool { return k.Kind == kind })
}

// only are the objects of one kind.
func ofKind[T catalog.Object](all []configstore.Stored) (objects []T) {
	for _, stored := range all {
		if o, ok := stored.Object.(T); ok {
			objects = append(objects, o)
		}
	}
	return objects
}

func (f *Feed) all() []configstore.Stored {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.set.All()
}

// revision is the revision of an object that lookups follow; configstore.Absent for
// none.
func (f *Feed) revision(key catalog.Key) string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if stored, ok := f.set.Get(key); ok {
		return stored.Revision
	}
	return configstore.Absent
}
