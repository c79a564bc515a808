package dapr

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// watch is one Watch, and what its reader has. It is for one goroutine.
type watch struct {
	store   *Store
	lease   *lease
	deliver func(configstore.Change) error

	ledger configstore.Ledger
	known  map[string]string // revisions, by path
	denied map[string]bool   // paths that may not be read
	head   string            // its text
	had    bool              // there was something once

	hints     hints
	listening bool // a subscription has begun
	untold    int  // changes that were found by looking, since something was last told
}

func (s *Store) newWatch(deliver func(configstore.Change) error) *watch {
	return &watch{
		store: s, deliver: deliver, known: map[string]string{}, denied: map[string]bool{},
		ledger: configstore.Ledger{Prefix: s.config.Prefix}, hints: newHints(),
	}
}

// Watch is that of configstore.Store. It always begins with the full set.
func (s *Store) Watch(ctx context.Context, from configstore.Version, deliver func(configstore.Change) error) error {
	return s.life.Watch(ctx, deliver, func(ctx context.Context, deliver func(configstore.Change) error) error {
		l, err := s.acquire(ctx)
		if err != nil {
			return s.fail(ctx, "connect", err)
		}
		defer s.release(l)
		readerFailed := false
		w := s.newWatch(func(c configstore.Change) error {
			err := deliver(c)
			readerFailed = err != nil
			return err
		})
		w.lease, w.had = l, from != "" && from != emptyVersion
		if err = w.run(ctx); !readerFailed && ctx.Err() == nil {
			s.renew(l)
		}
		return s.fail(ctx, "watch "+s.config.Prefix+api.KeyPrefix, err)
	})
}

// settling is when a reader looks again after it has subscribed: most engines do not say
// when a subscription has begun, and something may have been written until then.
var settling = []time.Duration{10 * time.Millisecond, 50 * time.Millisecond, 250 * time.Millisecond}

// rescanSoon is when everything is read again after that, for what was written by hand.
const rescanSoon = time.Second

// settles is how long a subscription may take to begin once it has been made.
func (l *lease) settles() time.Duration {
	if _, ok := l.engine.(*postgresEngine); ok {
		return 0 // LISTEN has been acknowledged
	}
	return rescanSoon
}

func (w *watch) run(ctx context.Context) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.subscribe(ctx)
	heartbeat, rescan := time.NewTimer(w.store.config.Heartbeat), time.NewTimer(w.store.config.Rescan)
	defer heartbeat.Stop()
	defer rescan.Stop()
	for looks := len(settling); ; looks++ {
		all, looked := false, false
		var paths map[string]bool
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.hints.News():
			now := w.hints.take()
			if w.listening = now.listening; now.begun {
				looks = 0
				rescan.Reset(min(w.lease.settles(), w.store.config.Rescan))
			}
			if !now.told {
				heartbeat.Reset(w.nextLook(looks))
				continue
			}
			paths, all = now.paths, now.many
			w.untold = 0
			w.store.untold.Store(false)
		case <-heartbeat.C:
			looked = looks >= len(settling)
			all = w.lease.settings.component.kind == kindKubernetes // which costs no more
		case <-rescan.C:
			all = true
			rescan.Reset(w.store.config.Rescan)
		}
		head := w.head
		if err := w.update(ctx, paths, all); err != nil {
			return err
		}
		if looked && w.head != head {
			w.missed()
		}
		heartbeat.Reset(w.nextLook(looks))
	}
}

// missed notes a change that nobody told of, and warns where that is no exception.
func (w *watch) missed() {
	const exceptions = 2
	set := w.lease.settings
	need := notifies[set.component.kind] // none where looking is how changes are found
	if w.untold++; w.untold <= exceptions || need == "" || !w.listening {
		return
	}
	w.store.untold.Store(true)
	set.once.Warn("untold", "the store tells nobody of changes; they are found by looking, late", "every", w.store.config.Heartbeat, "store", set.where(), "do", need)
}

// nextLook is how long to wait for news before looking anyway.
func (w *watch) nextLook(looks int) time.Duration {
	if looks < len(settling) {
		return min(settling[looks], w.store.config.Heartbeat)
	}
	return w.store.config.Heartbeat
}

// begin delivers the full set.
func (w *watch) begin(ctx context.Context) error {
	all, err := w.readAll(ctx)
	if err != nil {
		return err
	}
	for path, h := range all.pairs {
		w.known[path] = h.revision()
	}
	w.head, w.had = all.head, w.had || all.head != "" || len(all.pairs) > 0
	change := w.ledger.Reset(pairsOf(all.pairs), w.version())
	for path, err := range all.denied {
		w.denied[path] = true
		w.ledger.Refuse(path, err)
	}
	change.Refused = w.ledger.Refused()
	return w.deliver(change)
}

func (w *watch) version() configstore.Version { return versionOf(w.head, len(w.known)) }

// update reads what has changed, at least these paths, and delivers it if that is
// anything.
func (w *watch) update(ctx context.Context, paths map[string]bool, all bool) error {
	asked := map[string]bool{}
	note(asked, paths)
	var now snapshot
	var err error
	if !all {
		var ok bool
		now, ok, err = w.look(ctx, w.head, asked)
		all = !ok
	}
	if err == nil && all {
		now, err = w.readAll(ctx)
		note(asked, w.denied)
		note(asked, now.pairs)
		note(asked, w.known)
		note(asked, now.denied)
	}
	if err != nil {
		return err
	}
	put, deleted, news := w.compare(now, asked)
	w.head = now.head
	w.had = w.had || now.head != "" || len(w.known) > 0
	if !news && len(put) == 0 && len(deleted) == 0 {
		return nil
	}
	return w.deliver(w.ledger.Apply(put, deleted, w.version()))
}

func note[V any](paths map[string]bool, of map[string]V) {
	for path := range of {
		paths[path] = true
	}
}

// compare notes what is held now under the paths that were asked for. news tells that the permission
// to read one has gone. What may be read again is put again.
func (w *watch) compare(now snapshot, asked map[string]bool) (put []configstore.Pair, deleted []string, news bool) {
	for _, path := range slices.Sorted(maps.Keys(asked)) {
		if err, denied := now.denied[path]; denied {
			news = news || !w.denied[path]
			w.denied[path] = true
			w.ledger.Refuse(path, err)
			continue // its last good object stands
		}
		again := w.denied[path]
		delete(w.denied, path)
		h, there := now.pairs[path]
		revision, was := w.known[path]
		switch {
		case there && (again || revision != h.revision()):
			put = append(put, h.pair(path))
			w.known[path] = h.revision()
		case !there && (was || again):
			deleted = append(deleted, path)
			delete(w.known, path)
		}
	}
	return put, deleted, news
}

// checkGone tells a store that has lost everything from one that is empty.
func (w *watch) checkGone(now snapshot) error {
	if w.had && now.head == "" && len(now.pairs) == 0 && len(now.denied) == 0 {
		head := w.store.config.Prefix + headPath
		return fmt.Errorf("everything is gone, also the key %s, as when a server has lost its data; what stands stands: restore the data, or apply everything again; if you deleted all of it yourself, set %s to any text", head, head)
	}
	return nil
}
