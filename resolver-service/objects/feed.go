package objects

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Feed brings the objects of the config store into the topology, and knows which of them lookups
// follow.
type Feed struct {
	topology  *topology.Topology
	follower  *configstore.Follower
	stored    live.Value[[]*catalog.Cluster]
	clusters  live.Value[[]*catalog.Cluster] // those of stored that count
	instances live.Value[[]*catalog.AppInstance]
	applied   live.Value[uint64] // the topology's revision after each change
	log       *slog.Logger
	// derivedLog has what derives from the word of others.
	derivedLog *throttle.Log

	// failedClosed has the selections that were refused when the store was first read. Their apps
	// have empty selections in the topology until they are corrected or deleted. The follower's
	// goroutine owns it.
	failedClosed map[catalog.Key]bool

	taking sync.Mutex // held while the topology is told something
	// derive adds derived objects to each change of written ones; nil: none. taking is held meanwhile.
	derive func(*configstore.Change)
	// foresee is derive for a change that is not made.
	foresee func(*configstore.Change)
	synced  bool // the full set is in; taking guards it

	sources <-chan struct{} // nil: nothing to wait for
	ending  <-chan struct{} // closed when Run must end

	mu      sync.RWMutex // guards what follows
	set     configstore.Set
	writing map[catalog.Key]int // that this service's own callers write now
	writers map[catalog.Key]string
	changes []objectChange // the newest last
}

// NewFeed makes a feed. It starts nothing.
func NewFeed(store configstore.Store, t *topology.Topology, log *slog.Logger) *Feed {
	f := &Feed{topology: t, log: log, derivedLog: throttle.New(log, throttle.Interval), failedClosed: map[catalog.Key]bool{}, writing: map[catalog.Key]int{}, writers: map[catalog.Key]string{}}
	f.follower = configstore.NewFollower(store, f.take, log)
	return f
}

// After delays the first objects until sources is closed, so that no view lacks the instances of
// the sources. Instances has its value earlier. Call it before Run.
func (f *Feed) After(sources <-chan struct{}) { f.sources = sources }

// Deriving has derive add derived objects to each change of written ones, and foresee to each that is
// not made. Call it before Run.
func (f *Feed) Deriving(derive, foresee func(*configstore.Change)) {
	f.derive, f.foresee = derive, foresee
}

// Run follows the store until ctx ends, and then returns nil, or until the store is closed.
func (f *Feed) Run(ctx context.Context) error {
	f.ending = ctx.Done()
	err := f.follower.Run(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Status is the state of the follower.
func (f *Feed) Status() configstore.Status {
	s, _ := f.Follower().Load()
	return s
}

// Follower is the state of the follower, which can be followed.
func (f *Feed) Follower() *live.Value[configstore.Status] { return f.follower.Status() }

// Stored returns the Cluster objects, which can be followed, also those of guests whose time is over.
func (f *Feed) Stored() *live.Value[[]*catalog.Cluster] { return &f.stored }

// Clusters returns the Cluster objects that count, which can be followed.
func (f *Feed) Clusters() *live.Value[[]*catalog.Cluster] { return &f.clusters }

// Instances returns the AppInstance objects, which can be followed. The source of static
// instances brings these instances into the topology, with their health; the feed does not.
func (f *Feed) Instances() *live.Value[[]*catalog.AppInstance] { return &f.instances }

// Selections returns the apps that have a selection, in order.
func (f *Feed) Selections() []catalog.App {
	var apps []catalog.App
	for _, stored := range f.all() {
		if s, ok := stored.Object.(*catalog.AppEndpoints); ok {
			apps = append(apps, s.App)
		}
	}
	return apps
}

// take applies one change to the topology, and only then to the feed, all at once. So lookups
// follow all that the feed shows.
func (f *Feed) take(c configstore.Change) error {
	if err := f.await(c); err != nil {
		return err
	}
	f.taking.Lock()
	defer f.taking.Unlock()
	if f.derive != nil {
		f.derive(&c)
	}
	f.synced = true
	now := time.Now()
	change := topologyChange(c, now)
	f.failClosed(c, change)
	return f.apply(c, change, now, func(args ...any) { f.log.Info("objects changed in the store", args...) })
}

// Derive applies the objects that derive adds to an empty change, and logs them under what, now and
// then. Before the full set is in, it applies nothing, because that set will have them.
func (f *Feed) Derive(what string, derive func(*configstore.Change)) error {
	f.taking.Lock()
	defer f.taking.Unlock()
	var c configstore.Change
	derive(&c)
	if !f.synced || len(c.Objects)+len(c.Deleted) == 0 {
		return nil
	}
	now := time.Now()
	return f.apply(c, topologyChange(c, now), now, func(args ...any) { f.derivedLog.Info(what, what, args...) })
}

// topologyChange is a change for the topology.
func topologyChange(c configstore.Change, now time.Time) *topology.ObjectChange {
	change := &topology.ObjectChange{Full: c.Full, Delete: slices.Clip(c.Deleted), Put: make([]catalog.Object, 0, len(c.Objects))}
	for i := range c.Objects {
		addTo(change, c.Objects[i].Object, now)
	}
	for _, r := range c.Refused {
		change.Keep = append(change.Keep, r.Key)
	}
	return change
}

// apply applies a change to the topology, and then to the feed; taking is held. Guests end in both by
// one moment.
func (f *Feed) apply(c configstore.Change, change *topology.ObjectChange, now time.Time, log func(args ...any)) error {
	// The topology answers until it ends, and its end ends the feed.
	revision, err := f.topology.Apply(context.Background(), topology.Change{Objects: change})
	if err != nil {
		return err
	}
	f.logOthers(c, log)
	f.remember(c, now)
	f.applied.Store(revision)
	return nil
}

// expect says that a caller of this service writes objects, which is logged with the caller's name.
// The function that it returns says that this has ended.
func (f *Feed) expect(writer string, writes []configstore.Write) (end func()) {
	count := func(by int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, w := range writes {
			f.writers[w.Key()] = writer
			if f.writing[w.Key()] += by; f.writing[w.Key()] == 0 {
				delete(f.writing, w.Key())
				delete(f.writers, w.Key())
			}
		}
	}
	count(1)
	return func() { count(-1) }
}

// logOthers remembers a change, and logs it where it did not come by this service but by another
// replica, or by whatever else writes to the store. It is called before the set has the change. What
// others introduce is not remembered, or they could have it push out the rest.
func (f *Feed) logOthers(c configstore.Change, log func(args ...any)) {
	if c.Full {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	add := func(key catalog.Key, result, revision string, of catalog.Object) {
		if c, ok := of.(*catalog.Cluster); !ok || c.IntroducedBy == "" {
			f.note(key, result)
		}
		if f.writing[key] == 0 {
			names = append(names, strings.TrimSpace(key.String()+" "+result+" "+revision))
		}
	}
	for i := range c.Objects {
		stored, result := &c.Objects[i], created
		if was, there := f.set.Get(stored.Object.Key()); there {
			if result = changed; was.Revision == stored.Revision {
				continue // it stands in another line of its file
			}
		}
		add(stored.Object.Key(), result, stored.Revision, stored.Object)
	}
	for _, key := range c.Deleted {
		was, _ := f.set.Get(key)
		add(key, deleted, "", was.Object)
	}
	if len(names) > 0 {
		log("objects", len(names), "first", strings.Join(names[:min(len(names), mostNamed)], ", "))
	}
}

func (f *Feed) remember(c configstore.Change, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.set.Apply(c)
	updateList(f, &f.stored, catalog.KindCluster, c)
	updateList(f, &f.instances, catalog.KindAppInstance, c)
	if c.Full || touches(c, catalog.KindCluster) {
		f.clusters.Store(f.counting(now))
	}
}

// updateList applies a change, which the feed's set has already, to the list of one kind. The
// list stays sorted.
func updateList[T catalog.Object](f *Feed, list *live.Value[[]T], kind catalog.Kind, c configstore.Change) {
	switch {
	case c.Full:
		list.Store(ofKind[T](f.set.All()))
		return
	case !touches(c, kind):
		return
	}
	was, _ := list.Load()
	next := slices.Clone(was) // readers may have it
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

// await waits for the sources of instances, before the first change.
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

// failClosed gives an empty selection to each app whose selection is refused before a good
// version was ever seen, as after a restart. Otherwise the app would follow the cluster's
// default, and might see more than its own selection ever allowed. A selection that is refused
// later is different: its last good version stays, because a mistake in a new one must not cut
// off a working app.
func (f *Feed) failClosed(c configstore.Change, change *topology.ObjectChange) {
	refused := map[catalog.Key]bool{}
	for _, r := range c.Refused {
		refused[r.Key] = true
	}
	for key := range f.failedClosed {
		if !refused[key] {
			delete(f.failedClosed, key)
			change.Delete = append(change.Delete, key) // deletions come first, so Put wins
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
		if r.Key.Kind != catalog.KindAppEndpoints || good[r.Key] || f.failedClosed[r.Key] || app.CheckHost() != nil {
			continue
		}
		f.failedClosed[r.Key] = true
		change.Put = append(change.Put, &catalog.AppEndpoints{App: app, Source: catalog.Source{File: r.Where}})
		f.log.Warn("selection refused, and there is no good version of it: the app can call only itself; correct or delete the object",
			"app", app.String(), "object", r.Key.String(), "err", r.Err)
	}
}

func touches(c configstore.Change, kind catalog.Kind) bool {
	return slices.ContainsFunc(c.Objects, func(s configstore.Stored) bool { return s.Object.Key().Kind == kind }) ||
		slices.ContainsFunc(c.Deleted, func(k catalog.Key) bool { return k.Kind == kind })
}

// ofKind returns the objects of one kind.
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

// derived is an object that lookups follow and that no store holds.
func (f *Feed) derived(key catalog.Key) (configstore.Stored, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	stored, ok := f.set.Get(key)
	return stored, ok && stored.Object.Origin().From != ""
}

// revision is the revision of a written object that lookups follow, or configstore.Absent.
func (f *Feed) revision(key catalog.Key) string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if stored, ok := f.set.Get(key); ok && stored.Object.Origin().From == "" {
		return stored.Revision
	}
	return configstore.Absent
}
