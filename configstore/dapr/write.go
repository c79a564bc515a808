package dapr

import (
	"context"
	"fmt"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// with is a call with the engine.
func (s *Store) with(ctx context.Context, what string, f func(context.Context, *lease) error) error {
	return s.Do(ctx, what, func(ctx context.Context) error { return s.leased(ctx, f) })
}

func (s *Store) leased(ctx context.Context, f func(context.Context, *lease) error) error {
	l, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer s.release(l)
	return f(ctx, l)
}

// some reads these paths. One that may not be read fails them all.
func (s *Store) some(ctx context.Context, paths []string) (pairs []configstore.Pair, err error) {
	err = s.leased(ctx, func(ctx context.Context, l *lease) error {
		now, err := l.some(ctx, paths)
		if err != nil {
			return err
		}
		for path, err := range now.denied {
			return fmt.Errorf("%s: %w", path, err)
		}
		pairs = pairsOf(now.pairs)
		return nil
	})
	return pairs, err
}

// List is that of configstore.Reader.
func (s *Store) List(ctx context.Context) ([]configstore.Stored, []configstore.Refusal, error) {
	var all configstore.Change
	w := s.newWatch(func(c configstore.Change) error {
		all = c
		return nil
	})
	err := s.with(ctx, "list", func(ctx context.Context, l *lease) error {
		w.lease = l
		return w.begin(ctx)
	})
	return all.Objects, all.Refused, err
}

// commit makes edits. How well what is written survives a crash is for the server's settings to
// say: PostgreSQL's default is to keep it, Redis's is not.
func (s *Store) commit(ctx context.Context, edits []configstore.Edit) (revisions []string, err error) {
	err = s.leased(ctx, func(ctx context.Context, l *lease) error {
		to, err := l.writer()
		if err != nil {
			return err
		}
		var made rewrite
		err = to.commit(ctx, configstore.Paths(edits), func(was snapshot) (rewrite, error) {
			made = rewrite{edits: edits, head: nextHead(was, configstore.Paths(edits))}
			return made, check(was, edits)
		})
		version := made.version()
		if l.settings.component.kind == kindKubernetes {
			version = "" // a ConfigMap has no place for it
		}
		revisions = make([]string, len(edits))
		for i, e := range edits {
			if e.Value != nil {
				revisions[i] = held{string(e.Value), version}.revision()
			}
		}
		return err
	})
	return revisions, err
}

// writer is the engine of a lease, if it is one that can be written.
func (l *lease) writer() (writer, error) {
	if to, ok := l.engine.(writer); ok {
		return to, nil
	}
	return nil, fmt.Errorf("%w: Dapr's store of this kind has no way to; %s", configstore.ErrReadOnly, howToWriteAzure)
}

// check checks what each edit is for.
func check(was snapshot, edits []configstore.Edit) error {
	for _, e := range edits {
		now := configstore.Absent
		if held, there := was.pairs[e.Path]; there {
			now = held.revision()
		}
		if err := e.CheckIf(now); err != nil {
			return err
		}
	}
	return nil
}

// nextHead is the head after a batch of these paths; of everything where there are none.
func nextHead(was snapshot, paths []string) configstore.Head {
	h, _ := parseHead(was.head)
	return h.Next(paths, nil)
}

// Reindex is that of configstore.Indexer. Only Redis has an index. Of PostgreSQL and of a ConfigMap
// the objects are counted.
func (s *Store) Reindex(ctx context.Context) (n int, err error) {
	err = s.with(ctx, "index", func(ctx context.Context, l *lease) error {
		to, ok := l.engine.(writer)
		if !ok {
			return fmt.Errorf("%w: this store needs no index", configstore.ErrReadOnly)
		}
		if n, err = l.reindex(ctx); err != nil {
			return err
		}
		return to.commit(ctx, nil, func(was snapshot) (rewrite, error) { return rewrite{head: nextHead(was, nil)}, nil })
	})
	return n, err
}

// reindex counts the objects, and has an engine with an index make that anew.
func (l *lease) reindex(ctx context.Context) (n int, err error) {
	if own, ok := l.engine.(interface {
		reindex(context.Context) (int, error)
	}); ok {
		return own.reindex(ctx)
	}
	all, err := l.list(ctx)
	for path := range all.pairs {
		if _, err := api.ParseKeyPath(path); err == nil {
			n++
		}
	}
	return n, err
}
