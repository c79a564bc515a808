package dial

import (
	"context"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// View is the view that lookups go by, nil before the first, and a channel that is closed
// once another one stands.
type View func() (view *catalog.View, changed <-chan struct{})

// leads tells followers what the view says of their names. One goroutine follows the
// view for all of them, as long as there are any; a change costs one look at each app that
// is followed, and no more where its entry is the same.
type leads struct {
	view View

	mu    sync.Mutex
	known map[way]*lead
	stop  context.CancelFunc
	done  chan struct{} // closed when the goroutine has ended; nil without one
}

// way is what a name leads to.
type way struct {
	app     catalog.App
	cluster string
}

// lead is what the view says of a way, and who wants to know.
type lead struct {
	followers map[*follower]struct{}

	seen  bool           // a view
	entry *catalog.Entry // of the view that was seen last
	count int            // addresses that lookups answer; 0 when they go elsewhere
	since time.Time      // when lookups came back, after they went elsewhere
}

func newLeads(view View) *leads { return &leads{view: view, known: map[way]*lead{}} }

// join tells a follower from now on.
func (l *leads) join(f *follower) {
	if l.view == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known[f.way] == nil {
		l.known[f.way] = &lead{followers: map[*follower]struct{}{}}
	}
	l.known[f.way].followers[f] = struct{}{}
	view, _ := l.view()
	l.look(f.way, view)
	f.counts(l.known[f.way].count)
	if l.done == nil {
		ctx, stop := context.WithCancel(context.Background())
		l.stop, l.done = stop, make(chan struct{})
		go l.run(ctx, l.done)
	}
}

// leave tells a follower no more. With the last, the goroutine ends.
func (l *leads) leave(f *follower) {
	l.mu.Lock()
	d := l.known[f.way]
	if d == nil {
		l.mu.Unlock()
		return
	}
	delete(d.followers, f)
	if len(d.followers) == 0 {
		delete(l.known, f.way)
	}
	var done chan struct{}
	if len(l.known) == 0 && l.done != nil {
		l.stop()
		done, l.done = l.done, nil
	}
	l.mu.Unlock()
	if done != nil {
		<-done
	}
}

func (l *leads) run(ctx context.Context, done chan struct{}) {
	defer close(done)
	for ctx.Err() == nil {
		_, changed := l.view()
		l.mu.Lock()
		view, _ := l.view() // under the lock, lest an older one is looked at after a newer
		for w := range l.known {
			l.look(w, view)
		}
		l.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// back tells how long ago lookups came back to a follower's name; ok is false where they
// never were away. Whoever is called by a lookup's answer may ask before the goroutine has
// seen the view.
func (l *leads) back(f *follower) (since time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.known[f.way]
	if d == nil {
		return time.Time{}, false
	}
	view, _ := l.view()
	l.look(f.way, view)
	return d.since, !d.since.IsZero()
}

// look notes what a view says of a way, and tells followers what is new to them. It
// wants the lock.
func (l *leads) look(w way, view *catalog.View) {
	if view == nil {
		return
	}
	d := l.known[w]
	entry, _ := view.Entries.Get(w.app)
	if d.seen && d.entry == entry {
		return
	}
	before, first := d.count, !d.seen
	d.entry, d.count, d.seen = entry, addresses(entry, w.cluster), true
	if d.count == before && !first {
		return
	}
	returned := !first && before == 0
	if returned {
		d.since = time.Now()
	}
	for f := range d.followers {
		f.counts(d.count)
		if returned {
			f.wanted(leadFor)
		}
	}
}

// addresses is how many names an entry has for its app in a cluster.
func addresses(entry *catalog.Entry, cluster string) int {
	if entry == nil {
		return 0
	}
	for i := range entry.Routes {
		if r := &entry.Routes[i]; r.Gateway && r.Cluster == cluster {
			return len(r.Addresses)
		}
	}
	return 0
}
