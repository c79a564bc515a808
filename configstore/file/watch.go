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
	ctx, leave, err := s.life.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	w := &watch{store: s, index: newIndex(s.dir), dirty: map[string]bool{}, everything: true}
	w.index.derived = derived.New(s.log)
	if err := w.listen(); err != nil {
		s.log.Warn("no events for the config directory; it is looked at every second instead", "dir", s.dir, "err", err)
	}
	defer w.close()
	return w.run(ctx, from, deliver)
}

// watch is one Watch.
type watch struct {
	store  *Store
	index  *index
	events *fsnotify.Watcher // nil where the system has no more
	root   os.FileInfo       // the directory that is listened to

	everything bool            // every file has to be looked at
	dirty      map[string]bool // files that have to be read
	again      time.Duration   // when something half-written has to be looked at again
	trusting   bool            // what seems half-written has been waited for long enough
	batch      string          // the last batch of a writer that was seen whole
}

func (w *watch) run(ctx context.Context, from configstore.Version, deliver func(configstore.Change) error) error {
	rescan := time.NewTicker(w.rescanEvery())
	defer rescan.Stop()
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
		if err := w.wait(ctx, rescan.C); err != nil {
			return err
		}
	}
}

func (w *watch) rescanEvery() time.Duration {
	if w.events == nil {
		return poll
	}
	return rescan
}

// lookAll is the first look. It waits for what is half-written: the first set must not
// lack it.
func (w *watch) lookAll(ctx context.Context) error {
	for end := time.Now().Add(time.Second); ; {
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
		w.everything, w.batch = true, batch
	}
	for {
		if w.everything {
			if err := w.scan(); err != nil {
				return err
			}
			w.everything = false
		}
		if gone := w.readDirty(); gone && !w.present() {
			w.everything = true // not files went, but the directory
			continue
		}
		return nil
	}
}

// readDirty tells whether any file is gone.
func (w *watch) readDirty() (gone bool) {
	w.again = 0
	for name, p := range w.store.readMany(slices.Collect(maps.Keys(w.dirty))) {
		gone = gone || p == nil
		if rest := w.halfWritten(name, p); rest > 0 && !w.trusting {
			if w.again == 0 || rest < w.again {
				w.again = rest
			}
			continue
		}
		delete(w.dirty, name)
		w.index.update(name, p)
	}
	return gone
}

// present tells whether the directory is still the one that is listened to.
func (w *watch) present() bool {
	root, err := os.Stat(w.store.dir)
	return err == nil && w.root != nil && os.SameFile(w.root, root)
}

// scan marks the files that are not as they were.
func (w *watch) scan() error {
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

// halfWritten is how long to leave alone a file that is written in place and seems
// not to be complete.
func (w *watch) halfWritten(name string, p *parsed) time.Duration {
	old := w.index.files[name]
	if p == nil || p.info == nil {
		return 0
	}
	rest := w.store.patience - time.Since(p.info.ModTime())
	if rest <= 0 || rest > w.store.patience { // long ago, or the clock was set back
		return 0
	}
	if old == nil || old.info == nil {
		if p.broken != nil || len(p.objects)+len(p.foreign) == 0 {
			return rest
		}
		return 0
	}
	if !os.SameFile(old.info, p.info) {
		return 0 // replaced, not written in place
	}
	if p.broken != nil || p.info.Size() < old.info.Size() {
		return rest
	}
	for key := range old.objects {
		if !p.holds(key) {
			return rest
		}
	}
	for id := range old.foreign {
		if p.foreign[id] == nil {
			return rest
		}
	}
	return 0
}

// wait returns when there is something to look at.
func (w *watch) wait(ctx context.Context, rescan <-chan time.Time) error {
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
		case <-rescan:
			w.everything = true
			return nil
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
		w.everything = true // the directory itself, or a link that leads to it
	case filepath.Dir(e.Name) != w.store.dir:
		return false // a neighbour of the directory
	case strings.HasPrefix(name, ".."):
		w.everything = true // Kubernetes swaps "..data", which the files lead through
	case wanted(name):
		w.dirty[name] = true
	default:
		return false
	}
	return true
}

// listen asks for events of the directory, and of its parent for when it is replaced.
func (w *watch) listen() error {
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	if err := events.Add(filepath.Dir(w.store.dir)); err != nil {
		w.store.log.Debug("no events for the parent of the config directory", "dir", w.store.dir, "err", err)
	}
	w.events = events
	return nil
}

// relisten asks for events of the directory as it is now.
func (w *watch) relisten() error {
	root, err := os.Stat(w.store.dir)
	if err != nil {
		return w.store.noDirectory(err)
	}
	if w.root != nil && os.SameFile(w.root, root) {
		return nil
	}
	w.root = root
	if w.events == nil {
		return nil
	}
	_ = w.events.Remove(w.store.dir) // not there, the first time
	if err := w.events.Add(w.store.dir); err != nil {
		if errors.Is(err, os.ErrPermission) {
			return w.store.noDirectory(err)
		}
		return fmt.Errorf("store file: watch %s: %w; raise fs.inotify.max_user_watches if there are too many", w.store.dir, err)
	}
	return nil
}

func (w *watch) close() {
	if w.events == nil {
		return
	}
	if err := w.events.Close(); err != nil {
		w.store.log.Debug("close the events of the config directory", "dir", w.store.dir, "err", err)
	}
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
