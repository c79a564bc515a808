package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/internal/atomicfile"
)

// Get is that of configstore.Reader.
func (s *Store) Get(ctx context.Context, key catalog.Key) (configstore.Stored, error) {
	got, err := s.GetMany(ctx, []catalog.Key{key})
	if err != nil {
		return configstore.Stored{}, err
	}
	return got[0].Stored, got[0].Err
}

// GetMany is that of configstore.ManyGetter. Every file is looked at, however many keys
// there are: which of them has an object, nobody else can know.
func (s *Store) GetMany(ctx context.Context, keys []catalog.Key) ([]configstore.Got, error) {
	x, err := s.readAll(ctx)
	if err != nil {
		return nil, err
	}
	got := make([]configstore.Got, len(keys))
	for i, key := range keys {
		refused := x.resolve(key, &configstore.Change{})
		stored, there := x.stands[key]
		switch {
		case refused != nil:
			got[i].Revision = refusedRevision
			got[i].Err = fmt.Errorf("store file: get %s: %w: %w", key, configstore.ErrInvalid, refused)
		case there:
			got[i].Stored = stored
		default:
			got[i].Err = fmt.Errorf("store file: get %s: %w", key, configstore.ErrNotFound)
		}
	}
	return got, nil
}

// List is that of configstore.Reader.
func (s *Store) List(ctx context.Context) ([]configstore.Stored, []configstore.Refusal, error) {
	x, err := s.readAll(ctx)
	if err != nil {
		return nil, nil, err
	}
	c, _ := x.change(true)
	return c.Objects, c.Refused, nil
}

// readAll reads every file as it is now.
func (s *Store) readAll(ctx context.Context) (x *index, err error) {
	err = s.life.Do(ctx, func(context.Context) error {
		unlock, _ := s.readLock()
		defer unlock()
		x, err = s.index(ctx)
		return err
	})
	return x, err
}

// index is every file as it is now: read, where it was written since it last was. The
// caller holds the lock.
func (s *Store) index(ctx context.Context) (*index, error) {
	names, infos, err := s.list()
	if err != nil {
		return nil, err
	}
	x := newIndex(s.dir)
	var unknown []string
	for _, name := range names {
		if p := s.unchanged(name, infos[name]); p != nil {
			x.update(name, p)
		} else {
			unknown = append(unknown, name)
		}
	}
	for name, p := range s.readMany(unknown) {
		if p != nil {
			x.update(name, p)
		}
	}
	return x, ctx.Err()
}

// Write is that of configstore.Writer.
func (s *Store) Write(ctx context.Context, writes ...configstore.Write) (revisions []string, err error) {
	if len(writes) == 0 {
		return nil, nil
	}
	err = s.life.Do(ctx, func(context.Context) error {
		if revisions, err = s.write(ctx, writes); err != nil {
			return fmt.Errorf("store file: write: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return revisions, nil
}

func (s *Store) write(ctx context.Context, writes []configstore.Write) ([]string, error) {
	if _, err := configstore.Edits(writes, api.MaxObjectBytes); err != nil {
		return nil, err
	}
	lock, err := s.writeLock()
	if err != nil {
		return nil, readOnly(err)
	}
	defer lock.Close() // lets go of it
	x, err := s.index(ctx)
	if err != nil {
		return nil, err
	}
	edits, revisions, err := x.plan(writes)
	if err != nil {
		return nil, err
	}
	err = readOnly(s.make(edits, lock))
	if !errors.Is(err, configstore.ErrReadOnly) {
		atomicfile.Note(filepath.Join(s.dir, lockName), err)
	}
	return revisions, err
}

func readOnly(err error) error {
	if errors.Is(err, os.ErrPermission) || errors.Is(err, errReadOnlyFS) {
		return fmt.Errorf("%w: %w; change the files where they come from", configstore.ErrReadOnly, err)
	}
	return err
}

// plan decides which file each write is made in.
func (x *index) plan(writes []configstore.Write) ([]edit, []string, error) {
	edits, revisions := make([]edit, len(writes)), make([]string, len(writes))
	for i, w := range writes {
		name, held, err := x.place(w.Key())
		if err != nil {
			return nil, nil, err
		}
		if err := w.CheckIf(held); err != nil {
			return nil, nil, err
		}
		if err := x.replaceable(w.Key(), name, held); err != nil {
			return nil, nil, err
		}
		edits[i].path = filepath.Join(x.dir, name)
		if w.Object != nil {
			edits[i].data, revisions[i] = api.EncodeYAML(w.Object), revision(w.Object)
		}
	}
	return edits, revisions, nil
}

// refusedRevision is the revision of every object that can't be used.
const refusedRevision = "refused"

// place is the file that holds an object, or would, and the revision that it holds.
func (x *index) place(key catalog.Key) (name, held string, err error) {
	names := x.claims[key]
	switch len(names) {
	case 0:
		return fileName(key), configstore.Absent, nil
	case 1:
		p := x.files[names[0]]
		if stored, good := p.objects[key]; good {
			return names[0], stored.Revision, nil
		}
		return names[0], refusedRevision, nil
	}
	return "", "", fmt.Errorf("%w: %w", configstore.ErrReadOnly, x.doubled(key))
}

// fileName is the file of a new object. No name in a key has a dot.
func fileName(key catalog.Key) string {
	if key.Namespace == "" {
		return fmt.Sprintf("%s.%s.yaml", key.Kind, key.Name)
	}
	return fmt.Sprintf("%s.%s.%s.yaml", key.Kind, key.Namespace, key.Name)
}

// replaceable tells whether a person would lose nothing by the file's replacement.
func (x *index) replaceable(key catalog.Key, name, held string) error {
	path := filepath.Join(x.dir, name)
	info, err := os.Lstat(path)
	switch p := x.files[name]; {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case held == configstore.Absent:
		return fmt.Errorf("%s: %w: %s is where it would go, and has something else in it; move that file away", key, configstore.ErrReadOnly, path)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: %w: %s is a link, as of a mount; change it where it comes from", key, configstore.ErrReadOnly, path)
	case !p.single:
		return fmt.Errorf("%s: %w: %s also has other objects or comments, which would be lost; edit it by hand", key, configstore.ErrReadOnly, path)
	}
	return nil
}
