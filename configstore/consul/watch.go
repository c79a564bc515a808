package consul

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/consul/agent"
)

// Watch is that of configstore.Store. It begins with the full set, from whatever version:
// Consul keeps no history.
func (s *Store) Watch(ctx context.Context, _ configstore.Version, deliver func(configstore.Change) error) error {
	return s.life.Watch(ctx, deliver, func(ctx context.Context, deliver func(configstore.Change) error) error {
		defer s.transport.CloseIdleConnections() // to a server that may be gone without a word
		return agent.WithHeartbeat(ctx, s.client, func(ctx context.Context) error {
			return s.failed(ctx, "watch "+s.watched(), s.follow(ctx, deliver))
		})
	})
}

// watched is what is watched, for errors.
func (s *Store) watched() string {
	if s.scope.All() {
		return s.base()
	}
	return s.selection() + " and " + s.clusters()
}

// follow begins and ends what a Watch consists of.
func (s *Store) follow(ctx context.Context, deliver func(configstore.Change) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	w := watch{
		store: s, deliver: deliver, asking: &asking, answers: make(chan answer),
		known: map[string]string{}, ledger: configstore.Ledger{Prefix: s.config.Prefix},
	}
	if s.scope.All() {
		return w.followAll(ctx)
	}
	return w.followScope(ctx)
}

// watch is how far one Watch has come. It is for one goroutine.
type watch struct {
	store   *Store
	deliver func(configstore.Change) error
	asking  *sync.WaitGroup
	answers chan answer // of all places

	known     map[string]string // the revision of each path, of what is refused too
	sorted    []string          // the paths of known; nil when it is to be made again
	ledger    configstore.Ledger
	synced    bool
	head      head   // the last one that is in known
	read      uint64 // the index of the prefix when everything was last read
	newest    uint64 // the index that was heard last, which is the Version
	unchecked unchecked
}

// followScope follows what one app has.
func (w *watch) followScope(ctx context.Context) error {
	places := []place{{key: w.store.selection()}, {key: w.store.clusters(), tree: true}}
	for i := range places {
		w.ask(ctx, places[i])
	}
	for heard := 1; ; heard++ {
		a, err := w.answer(ctx)
		if err != nil {
			return err
		}
		w.newest = a.index
		if heard < len(places) {
			continue // read once every place is waited for, so that no change falls in between
		}
		if err := w.take(ctx, w.store.readScope); err != nil {
			return err
		}
	}
}

func (w *watch) answer(ctx context.Context) (answer, error) {
	select {
	case a := <-w.answers:
		return a, a.err
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}
}

// take reads all that is watched, and delivers what is different.
func (w *watch) take(ctx context.Context, read func(context.Context) (snapshot, error)) error {
	for {
		now, err := read(ctx)
		if err != nil {
			return err
		}
		now.missing = w.gone(now.pairs)
		still, err := w.store.exist(ctx, now.missing)
		if err != nil {
			return err
		}
		if still { // they came back meanwhile
			continue
		}
		w.head, w.read = now.head, now.index
		w.unchecked.settle()
		return w.learn(now)
	}
}

// gone is the paths that were known and are not among the pairs.
func (w *watch) gone(pairs []configstore.Pair) []string {
	there := make(map[string]bool, len(pairs))
	for _, p := range pairs {
		there[p.Path] = true
	}
	var gone []string
	for path := range w.known {
		if !there[path] {
			gone = append(gone, path)
		}
	}
	slices.Sort(gone)
	return gone
}

// exist asks for what a list does not have, by name: a list leaves out in silence
// what the token may not read, and that is not gone.
func (s *Store) exist(ctx context.Context, paths []string) (bool, error) {
	for few := range slices.Chunk(paths, maxOps) {
		found, err := s.named(ctx, few, &api.QueryOptions{RequireConsistent: true})
		if err != nil {
			return false, err
		}
		if len(found.pairs) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// learn takes what was read into what is known, and delivers what is different.
func (w *watch) learn(now snapshot) error {
	put := slices.DeleteFunc(now.pairs, func(p configstore.Pair) bool { return w.known[p.Path] == p.Revision })
	deleted := slices.DeleteFunc(now.missing, func(path string) bool { return w.known[path] == "" })
	before := len(w.known)
	for _, p := range put {
		w.known[p.Path] = p.Revision
	}
	for _, path := range deleted {
		delete(w.known, path)
	}
	if len(w.known) != before || len(deleted) > 0 {
		w.sorted = nil
	}
	if at := max(now.index, now.head.index); at > 0 {
		w.newest = at
	}
	version := configstore.Version(strconv.FormatUint(w.newest, 10))
	if !w.synced {
		w.synced = true
		return w.deliver(w.ledger.Reset(put, version))
	}
	if len(put) == 0 && len(deleted) == 0 {
		return nil
	}
	return w.deliver(w.ledger.Apply(put, deleted, version))
}

// unchecked is when changes were believed without reading everything.
type unchecked struct {
	since, last time.Time // zero for none
}

func (u *unchecked) note() {
	u.last = time.Now()
	if u.since.IsZero() {
		u.since = u.last
	}
}

func (u *unchecked) settle() { *u = unchecked{} }

// due is when to read everything to be sure: a nil channel, and so never, without such a change.
func (u *unchecked) due() <-chan time.Time {
	if u.since.IsZero() {
		return nil
	}
	return time.After(min(time.Until(u.last.Add(recheckAfter)), time.Until(u.since.Add(recheckWithin))))
}
