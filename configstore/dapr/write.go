package dapr

import (
	"context"
	"fmt"
	"strconv"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// with calls f with the engine.
func (s *Store) with(ctx context.Context, what string, f func(context.Context, *lease) error) error {
	ctx, leave, err := s.life.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	l, err := s.acquire(ctx)
	if err != nil {
		return s.fail(ctx, what, err)
	}
	err = f(ctx, l)
	s.release(l)
	return s.fail(ctx, what, err)
}

// Get is that of configstore.Reader.
func (s *Store) Get(ctx context.Context, key catalog.Key) (configstore.Stored, error) {
	got, err := s.GetMany(ctx, []catalog.Key{key})
	if err != nil {
		return configstore.Stored{}, err
	}
	return got[0].Stored, got[0].Err
}

// GetMany is that of configstore.ManyGetter.
func (s *Store) GetMany(ctx context.Context, keys []catalog.Key) ([]configstore.Got, error) {
	got := make([]configstore.Got, len(keys))
	paths := make([]string, len(keys))
	for i, key := range keys {
		paths[i] = api.KeyPath(key)
	}
	what := fmt.Sprintf("get %d objects", len(keys))
	if len(keys) == 1 {
		what = "get " + keys[0].String()
	}
	err := s.with(ctx, what, func(ctx context.Context, l *lease) error {
		now, err := l.some(ctx, paths)
		if err != nil {
			return err
		}
		for i, path := range paths {
			if err := now.denied[path]; err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			var found []configstore.Pair
			if h, there := now.pairs[path]; there {
				found = append(found, h.pair(path))
			}
			got[i] = configstore.GotOf("dapr", keys[i], found)
		}
		return nil
	})
	return got, err
}

// List is that of configstore.Reader.
func (s *Store) List(ctx context.Context) ([]configstore.Stored, []configstore.Refusal, error) {
	var objects []configstore.Stored
	var refused []configstore.Refusal
	err := s.with(ctx, "list", func(ctx context.Context, l *lease) error {
		w := &watch{store: s, lease: l, ledger: configstore.Ledger{Prefix: s.config.Prefix}}
		all, err := w.readAll(ctx)
		if err != nil {
			return err
		}
		w.denied = all.denied
		w.deliver = func(c configstore.Change) error {
			objects, refused = c.Objects, c.Refused
			return nil
		}
		return w.hand(w.ledger.Reset(pairsOf(all.pairs), versionOf(all.head, len(all.pairs))))
	})
	return objects, refused, err
}

// Write is that of configstore.Writer. How well what is written survives a crash is for
// the server's settings to say: PostgreSQL's default is to keep it, Redis's is not.
func (s *Store) Write(ctx context.Context, writes ...configstore.Write) ([]string, error) {
	if len(writes) == 0 {
		return nil, ctx.Err()
	}
	if err := configstore.CheckWrites(writes); err != nil {
		return nil, fmt.Errorf("store dapr: write: %w", err)
	}
	values := make([]string, len(writes))
	paths := make([]string, len(writes))
	for i, w := range writes {
		paths[i] = api.KeyPath(w.Key())
		if w.Object == nil {
			continue
		}
		value, err := configstore.Encode(w.Object, api.MaxObjectBytes)
		if err != nil {
			return nil, fmt.Errorf("store dapr: write: %w", err)
		}
		values[i] = string(value)
	}
	var revisions []string
	err := s.with(ctx, "write", func(ctx context.Context, l *lease) error {
		to, ok := l.engine.(writer)
		if !ok {
			return fmt.Errorf("%w: Dapr's store of this kind has no way to; %s", configstore.ErrReadOnly, howToWriteAzure)
		}
		return to.commit(ctx, paths, func(was snapshot) (plan, error) {
			p, made, err := decide(was, writes, paths, values)
			if l.settings.component.kind == kindKubernetes {
				made = p.unversioned()
			}
			revisions = made
			return p, err
		})
	})
	if err != nil {
		return nil, err
	}
	return revisions, nil
}

// unversioned takes the versions out of a plan, for a store that has no place for them,
// and returns the revisions that are left.
func (p plan) unversioned() []string {
	revisions := make([]string, len(p.edits))
	for i := range p.edits {
		if e := &p.edits[i]; !e.delete {
			e.now.version = ""
			revisions[i] = e.now.revision()
		}
	}
	return revisions
}

// decide checks what each write is for, and makes the plan of the batch.
func decide(was snapshot, writes []configstore.Write, paths, values []string) (plan, []string, error) {
	h, _ := parseHead(was.head)
	p := plan{head: h.Next(paths, nil)}
	version := strconv.FormatUint(p.head.Revision(), 10)
	revisions := make([]string, len(writes))
	for i, w := range writes {
		held, there := was.pairs[paths[i]]
		now := configstore.Absent
		if there {
			now = held.revision()
		}
		if err := w.CheckIf(now); err != nil {
			return plan{}, nil, err
		}
		e := edit{path: paths[i], delete: w.Object == nil}
		if !e.delete {
			e.now.value, e.now.version = values[i], version
			revisions[i] = e.now.revision()
		}
		p.edits = append(p.edits, e)
	}
	return p, revisions, nil
}

// Reindex is that of configstore.Indexer. Only Redis has an index; of PostgreSQL and of a
// ConfigMap the objects are counted and, of the first, its readers told.
func (s *Store) Reindex(ctx context.Context) (int, error) {
	var n int
	err := s.with(ctx, "index", func(ctx context.Context, l *lease) error {
		to, ok := l.engine.(writer)
		if !ok {
			return fmt.Errorf("%w: this store needs no index", configstore.ErrReadOnly)
		}
		var err error
		n, err = to.reindex(ctx)
		return err
	})
	return n, err
}
