package file

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/derived"
)

// Watch is that of configstore.Store.
func (s *Store) Watch(ctx context.Context, from configstore.Version, deliver func(configstore.Change) error) error {
	return s.life.Do(ctx, func(ctx context.Context) error {
		w := newWatch(s)
		w.listens = true
		w.index.derived = derived.New(s.log)
		defer w.close()
		defer w.aside.reading.Wait()
		return w.run(ctx, from, deliver)
	})
}

// watch is one Watch.
type watch struct {
	store   *Store
	index   *index
	listens bool              // events are asked for
	events  *fsnotify.Watcher // of the directory and its parent; nil where the system has no more
	root    identity          // the directory that is listened to
	swapped bool              // there may be another directory, even of the same identity

	everything bool                 // every file has to be looked at
	scanned    time.Time            // when that was last done
	took       time.Duration        // how long it took
	away       time.Time            // since when there has been no directory; zero while there is one
	dirty      map[string]bool      // files that have to be read
	missing    map[string]time.Time // files that are gone, but have not been for long enough to be believed
	again      time.Duration        // when something half-written has to be looked at again
	trusting   bool                 // what seems half-written has been waited for long enough
	batch      string               // the last batch of a writer that was seen whole
	removed    bool                 // files that are gone were removed by a writer
	atOnce     bool                 // all files were replaced at once, as a directory is
	emptied    bool                 // no file is left that has not to be read
	whole      bool                 // all that changed is a batch, or the first set

	aside aside
}

func newWatch(s *Store) *watch {
	return &watch{store: s, index: newIndex(s.dir), dirty: map[string]bool{}, missing: map[string]time.Time{}, everything: true, aside: newAside()}
}

func (w *watch) run(ctx context.Context, from configstore.Version, deliver func(configstore.Change) error) error {
	glances := time.NewTicker(glance)
	defer glances.Stop()
	for first := true; ; first = false {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		look := w.look
		if first {
			look = func() error { return w.lookAll(ctx) }
		}
		if err := look(); err != nil {
			return err
		}
		w.trusting = false
		resumed := first && from != "" && from == w.index.version()
		change, news := w.index.change(first && !resumed)
		if resumed {
			change.Full, change.Objects, change.Deleted, news = false, nil, nil, true
		}
		if news {
			if err := deliver(change); err != nil {
				return err
			}
		}
		if err := w.wait(ctx, glances.C); err != nil {
			return err
		}
	}
}

// lookAll is the first look. It waits for what is half-written: the first set must not
// lack it.
func (w *watch) lookAll(ctx context.Context) error {
	for end := time.Now().Add(time.Second); ; {
		w.whole = true
		if err := w.look(); err != nil || w.again == 0 {
			return err
		}
		select {
		case <-time.After(w.again):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		w.trusting = time.Now().After(end)
	}
}

// look reads what has to be read. It holds the writers' lock, so it sees a batch whole.
func (w *watch) look() error {
	unlock, batch := w.store.readLock()
	defer unlock()
	if batch != w.batch {
		w.everything, w.whole, w.batch, w.removed = true, true, batch, batch != ""
	}
	w.again = 0
	if w.everything {
		if err := w.scan(); err != nil {
			return w.bear(err)
		}
		w.everything, w.away = false, time.Time{}
	}
	w.readDirty()
	w.removed, w.whole, w.atOnce = false, false, false
	return nil
}

// bear says nothing of a directory that was there until a moment ago: who replaces it removes it
// first.
func (w *watch) bear(err error) error {
	if w.away.IsZero() {
		w.away = time.Now()
	}
	if len(w.index.files) == 0 || time.Since(w.away) > w.store.patience {
		return err
	}
	w.again = absence
	return nil
}

// readDirty takes what the files say that have to be read. It begins with those that are there:
// what is in another file now is not lost.
func (w *watch) readDirty() {
	w.putAside()
	if w.aside.read == nil { // what was read comes first: it may be what is to be read again
		w.readAside()
	}
	defer w.readAside()
	files := w.aside.read
	w.aside.read = nil
	if now := w.store.readMany(slices.Collect(maps.Keys(w.dirty))); files == nil {
		files = now
	} else {
		maps.Copy(files, now)
	}
	for range 2 { // the second time, what moved to another file is not lost
		for name, p := range files {
			if p != nil && w.take(name, p) {
				delete(files, name)
			}
		}
	}
	w.emptied = !slices.ContainsFunc(slices.Collect(maps.Keys(w.index.files)), func(name string) bool { return !w.dirty[name] })
	for name, p := range files {
		if p == nil {
			w.take(name, nil)
		}
	}
}

// take takes what a file says, unless it seems half-written: then it is looked at again.
func (w *watch) take(name string, p *parsed) bool {
	if p != nil {
		delete(w.missing, name)
	}
	if w.waits(name, p) {
		w.dirty[name] = true
		return false
	}
	if wait := w.halfWritten(name, p); wait > 0 && !w.trusting {
		w.dirty[name] = true
		if w.again == 0 || wait < w.again {
			w.again = wait
		}
		return false
	}
	delete(w.dirty, name)
	delete(w.missing, name)
	w.index.update(name, p)
	return true
}

// due tells whether to look at every file for what no event told of: a link that leads elsewhere
// now, a mount, a file system of another machine. That takes a small part of the time.
func (w *watch) due() bool {
	return time.Since(w.scanned) >= min(rescan, w.store.scanShare*w.took) || !w.present()
}

// present tells whether the directory is still the one that is listened to.
func (w *watch) present() bool {
	root, err := identify(w.store.dir)
	return err == nil && w.root.same(root)
}

// scan marks the files that are not as they were.
func (w *watch) scan() error {
	began := time.Now()
	defer func() { w.scanned, w.took = time.Now(), time.Since(began) }()
	if err := w.relisten(); err != nil {
		return err
	}
	names, infos, err := w.store.list()
	if err != nil {
		return err
	}
	for _, name := range names {
		if known := w.index.files[name]; known == nil || !sameInfo(known.info, infos[name]) {
			w.dirty[name] = true
		}
	}
	for name := range w.index.files {
		if _, there := infos[name]; !there {
			w.dirty[name] = true
		}
	}
	return nil
}

func sameInfo(a, b os.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// halfWritten is how long to leave alone a file that seems not to be complete, or that somebody
// removed who may be about to write it anew. Nobody can tell a file that is written after it was
// removed from one that replaces another whole, so what is gone from either is waited for.
func (w *watch) halfWritten(name string, p *parsed) time.Duration {
	old := w.index.files[name]
	switch {
	case p == nil:
		return w.goneFor(name, old)
	case p.info == nil:
		return 0
	case old == nil || old.info == nil:
		if p.broken != nil || p.empty() {
			return rest(w.store.patience, p.info.ModTime())
		}
		return 0
	case p.empty() && w.index.loses(name, p):
		return rest(max(emptied, w.store.patience), p.info.ModTime())
	case p.broken != nil || w.index.loses(name, p), p.info.Size() < old.info.Size() && os.SameFile(old.info, p.info):
		return rest(w.store.patience, p.info.ModTime())
	}
	return 0
}

// goneFor is how long to wait for a file that is gone. If no file is left, somebody replaces all.
func (w *watch) goneFor(name string, old *parsed) time.Duration {
	if w.removed || old == nil || !w.index.loses(name, nil) {
		return 0
	}
	since, known := w.missing[name]
	if !known {
		since = time.Now()
		w.missing[name] = since
	}
	if w.emptied {
		return rest(max(emptied, w.store.patience), since)
	}
	return rest(w.store.patience, since)
}

// rest is what is left of a time; none if it began long ago, or the clock was set back.
func rest(of time.Duration, began time.Time) time.Duration {
	since := time.Since(began)
	if since < 0 {
		return 0
	}
	return max(of-since, 0)
}

// wait returns when there is something to look at.
func (w *watch) wait(ctx context.Context, glances <-chan time.Time) error {
	var again <-chan time.Time
	if w.again > 0 {
		timer := time.NewTimer(w.again)
		defer timer.Stop()
		again = timer.C
	}
	began := time.Now()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-again:
			return nil
		case files := <-w.aside.done:
			w.aside.take(files)
			return nil
		case <-glances:
			if w.due() {
				w.everything = true
				return nil
			}
		case e := <-w.eventChannel():
			switch {
			case !w.note(e):
			case time.Since(began) > lull && w.replaced(e):
				return nil // complete, and nothing else is going on
			default:
				return w.settle(ctx)
			}
		case err := <-w.errorChannel():
			w.everything = true // events were lost
			w.store.log.Debug("events of the config directory were lost; all of it is looked at", "dir", w.store.dir, "err", err)
			return w.settle(ctx)
		}
	}
}

// replaced tells whether a file that is known has another in its place, by a rename. Who
// moves the old one away first is seen to do that.
func (w *watch) replaced(e fsnotify.Event) bool {
	name := filepath.Base(e.Name)
	known := w.index.files[name]
	if !e.Has(fsnotify.Create) || w.everything || len(w.dirty) > 1 || known == nil || known.info == nil {
		return false
	}
	now, err := os.Stat(e.Name)
	return err == nil && !os.SameFile(known.info, now)
}

// settle takes the events that belong to the one that came.
func (w *watch) settle(ctx context.Context) error {
	end := time.NewTimer(settleMax)
	defer end.Stop()
	quiet := time.NewTimer(settle)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case e := <-w.eventChannel():
			w.note(e)
			quiet.Reset(settle)
		case <-w.errorChannel():
			w.everything = true
		case <-quiet.C:
			return nil
		case <-end.C:
			return nil
		}
	}
}

// note marks what an event is about, and tells whether it is about anything.
func (w *watch) note(e fsnotify.Event) bool {
	name := filepath.Base(e.Name)
	switch {
	case filepath.Clean(e.Name) == w.store.dir:
		w.everything, w.swapped = true, true // the directory itself, or a link that leads to it
	case filepath.Dir(e.Name) != w.store.dir:
		return false // a neighbour of the directory
	case strings.HasPrefix(name, ".."):
		w.everything, w.atOnce = true, true // Kubernetes swaps "..data", which the files lead through
	case wanted(name):
		w.dirty[name] = true
	default:
		return false
	}
	return true
}

// relisten asks for events of the directory as it is now, and of its parent for when it is
// replaced. It begins anew, since a new directory may have the number of the old one, whose last
// events are still to come.
func (w *watch) relisten() error {
	root, err := identify(w.store.dir)
	if err != nil {
		return w.store.noDirectory(err)
	}
	if !w.swapped && w.root.same(root) {
		return nil
	}
	w.root, w.swapped, w.removed, w.atOnce = root, false, false, true
	w.close()
	if w.listens {
		if err := w.listen(); err != nil {
			w.store.log.Warn("no events for the config directory; it is looked at twice a second instead, or as often as its size allows", "dir", w.store.dir, "err", err)
		}
	}
	return nil
}

func (w *watch) listen() error {
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("%w; raise fs.inotify.max_user_instances if there are too many", err)
	}
	if err := events.Add(w.store.dir); err != nil {
		return errors.Join(fmt.Errorf("%w; raise fs.inotify.max_user_watches if there are too many", err), events.Close())
	}
	if err := events.Add(filepath.Dir(w.store.dir)); err != nil {
		w.store.log.Debug("no events for the parent of the config directory", "dir", w.store.dir, "err", err)
	}
	w.events = events
	return nil
}

func (w *watch) close() {
	if w.events == nil {
		return
	}
	if err := w.events.Close(); err != nil {
		w.store.log.Debug("close the events of the config directory", "dir", w.store.dir, "err", err)
	}
	w.events = nil
}

func (w *watch) eventChannel() <-chan fsnotify.Event {
	if w.events == nil {
		return nil
	}
	return w.events.Events
}

func (w *watch) errorChannel() <-chan error {
	if w.events == nil {
		return nil
	}
	return w.events.Errors
}
