package dapr

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// watch is one Watch, and what its reader has. It is for one goroutine.
type watch struct {
	store   *Store
	lease   *lease
	deliver func(configstore.Change) error

	ledger configstore.Ledger
	known  map[string]string // revisions, by path
	denied map[string]error  // by path
	head   string            // its text
	had    bool              // there was something once

	readerFailed bool // deliver did
}

// Watch is that of configstore.Store. It always begins with the full set.
func (s *Store) Watch(ctx context.Context, from configstore.Version, deliver func(configstore.Change) error) error {
	return s.life.Watch(ctx, deliver, func(ctx context.Context, deliver func(configstore.Change) error) error {
		l, err := s.acquire(ctx)
		if err != nil {
			return s.fail(ctx, "connect", err)
		}
		defer s.release(l)
		w := &watch{
			store: s, lease: l, deliver: deliver, known: map[string]string{}, denied: map[string]error{},
			ledger: configstore.Ledger{Prefix: s.config.Prefix}, had: from != "" && from != emptyVersion,
		}
		if err = w.run(ctx); !w.readerFailed && ctx.Err() == nil {
			s.renew(l, err)
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
	subscription := newSubscription(w)
	defer subscription.end()
	subscription.begin(ctx)
	heartbeat, rescan := time.NewTimer(w.store.config.Heartbeat), time.NewTimer(w.store.config.Rescan)
	subscribe := time.NewTimer(longestPause) // set once it has failed
	defer heartbeat.Stop()
	defer rescan.Stop()
	defer subscribe.Stop()
	for looks := len(settling); ; looks++ {
		all, looked := false, false
		var paths map[string]bool
		select {
		case <-ctx.Done():
			return ctx.Err()
		case stop := <-subscription.ready:
			if !subscription.begun(stop) {
				subscribe.Reset(subscription.again())
				continue
			}
			looks = 0
			heartbeat.Reset(w.nextLook(looks))
			rescan.Reset(min(w.lease.settles(), w.store.config.Rescan))
			continue
		case <-subscription.hints.news:
			var failed string
			if paths, all, failed = subscription.hints.take(); failed != "" {
				subscribe.Reset(subscription.failed(failed))
			}
			subscription.told()
		case <-subscribe.C:
			subscription.begin(ctx)
			continue
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
			subscription.missed()
		}
		heartbeat.Reset(w.nextLook(looks))
	}
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
	w.head, w.denied, w.had = all.head, all.denied, w.had || all.head != "" || len(all.pairs) > 0
	change := w.ledger.Reset(pairsOf(all.pairs), w.version())
	return w.hand(change)
}

func (w *watch) version() configstore.Version { return versionOf(w.head, len(w.known)) }

// hand delivers a change, with what may not be read among what is refused.
func (w *watch) hand(change configstore.Change) error {
	for _, path := range slices.Sorted(maps.Keys(w.denied)) {
		key, err := api.ParseKeyPath(path)
		if err != nil {
			key = catalog.Key{}
		}
		change.Refused = append(change.Refused, configstore.Refusal{Key: key, Where: w.store.config.Prefix + path, Err: w.denied[path]})
	}
	slices.SortStableFunc(change.Refused, func(a, b configstore.Refusal) int { return strings.Compare(a.Where, b.Where) })
	err := w.deliver(change)
	w.readerFailed = err != nil
	return err
}

// update reads what has changed, at least these paths, and delivers it if that is
// anything.
func (w *watch) update(ctx context.Context, paths map[string]bool, all bool) error {
	now, asked, err := w.read(ctx, paths, all)
	if err != nil {
		return err
	}
	if asked == nil {
		asked = make(map[string]bool, len(now.pairs))
		for path := range now.pairs {
			asked[path] = true
		}
		for path := range w.known {
			asked[path] = true
		}
		for path := range w.denied {
			asked[path] = true
		}
		for path := range now.denied {
			asked[path] = true
		}
	}
	put, deleted, news := w.compare(now, asked)
	w.head = now.head
	w.had = w.had || now.head != "" || len(w.known) > 0
	if !news && len(put) == 0 && len(deleted) == 0 {
		return nil
	}
	return w.hand(w.ledger.Apply(put, deleted, w.version()))
}

// compare notes what is held now under the paths that were asked for. news tells that
// the permission to read one has come or gone.
func (w *watch) compare(now snapshot, asked map[string]bool) (put []configstore.Pair, deleted []string, news bool) {
	for _, path := range slices.Sorted(maps.Keys(asked)) {
		if err, denied := now.denied[path]; denied {
			_, was := w.denied[path]
			news = news || !was
			w.denied[path] = err
			continue // its last good object stands
		}
		if _, was := w.denied[path]; was {
			delete(w.denied, path)
			news = true
		}
		h, there := now.pairs[path]
		revision, was := w.known[path]
		switch {
		case there && (!was || revision != h.revision()):
			put = append(put, h.pair(path))
			w.known[path] = h.revision()
		case !there && was:
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
