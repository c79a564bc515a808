// Package embedded is the config store that needs no server: one file, kept by go.etcd.io/bbolt. An
// acknowledged Write survives kill -9 and a power cut.
//
// The file has three buckets. "objects" has each object under its key (api.KeyPath) as the revision
// of its last write and its JSON. "history" has, for the last HistoryLength writes, which keys each
// touched, and a nonce. "meta" has the revision and its nonce. A Version is a revision with its
// nonce, so that a file that was put back from a backup and written since is not taken for the one
// that a reader knew.
//
// One process has the file open at a time. Watchers are told of a write after its commit, and read
// the changes since they last read; no read transaction is open while a reader is busy, so a slow
// one holds up nothing.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/internal/atomicfile"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// HistoryLength is how many writes a reader may have missed and still be told the changes alone.
// After more it gets the full set.
const HistoryLength = 4096

// lockWait is how long Open waits for another process to let go of the file: long
// enough for a predecessor that is shutting down.
const lockWait = 2 * time.Second

const formatVersion = "1"

var (
	objectsBucket = []byte("objects")
	historyBucket = []byte("history")
	metaBucket    = []byte("meta")
	formatKey     = []byte("format")
	headKey       = []byte("head")
	identityKey   = []byte("identity")
)

// Config is the settings of an embedded store.
type Config struct {
	Path string `yaml:"path" json:"path" file:""` // of its one file
}

// Store is an open file. It is a configstore.ReadWriter.
type Store struct {
	configstore.KV
	db      *bbolt.DB
	path    string
	writing sync.Mutex       // held from before a commit until the head is published
	head    live.Value[head] // the last committed write
	corrupt atomic.Bool      // the file can't be trusted any more

	life *configstore.Life

	historyBytes uint64 // HistoryBytes; less in tests
}

var (
	_ configstore.ReadWriter = (*Store)(nil)
	_ configstore.Historian  = (*Store)(nil)
	_ configstore.ManyGetter = (*Store)(nil)
	_ configstore.Identifier = (*Store)(nil)
)

// Open opens the file, and makes it and its directory where there are none.
func Open(path string) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("store embedded: make the directory of %s: %w; make it yourself, or choose another path", path, err)
	}
	// A crash or a full disk can leave a file without a byte, where objects were.
	if info, err := os.Stat(path); err == nil && info.Size() == 0 {
		return nil, fmt.Errorf("store embedded: open %s: the file is empty, and no store is: put back a backup of it, or delete it to begin anew", path)
	}
	s := &Store{path: path, life: configstore.NewLife(), historyBytes: HistoryBytes}
	s.KV = configstore.NewKV(configstore.KVServer{
		Name: "embedded", Life: s.life, MaxObject: api.MaxObjectBytes, Some: s.some, All: s.all, Fail: s.failed,
		Commit: func(_ context.Context, edits []configstore.Edit) ([]string, error) { return s.commit(edits) },
	})
	err := s.guard(func() (err error) {
		if err = makeFile(path); err != nil {
			return err
		}
		s.db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockWait, FreelistType: bbolt.FreelistMapType})
		return err
	})
	if err != nil {
		return nil, s.openError(err)
	}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(s.openError(err), s.db.Close())
	}
	return s, nil
}

// makeFile makes a file that is not there, whole or not at all. Otherwise a full disk or a crash would
// leave one without a byte, which looks as if objects had been in it.
func makeFile(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil // where it can't be read, opening it says why
	}
	made, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(made.Name())
	if err := made.Close(); err != nil {
		return err
	}
	db, err := bbolt.Open(made.Name(), 0o600, nil)
	if err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	err = os.Link(made.Name(), path)
	if errors.Is(err, fs.ErrExist) || // another process was faster
		errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrPermission) { // no links here: it is made in place
		return nil
	}
	return err
}

func (s *Store) openError(err error) error {
	what := "look after the file, or put back a backup of it"
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("store embedded: open %s: another process has held it for %s; stop that one, or let this one use another path", s.path, lockWait)
	case errors.Is(err, os.ErrPermission):
		what = "let this user read and write it"
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch), s.corrupt.Load():
		what = "it is no store or is damaged: put back a backup of it, or move it away to begin anew"
	}
	return fmt.Errorf("store embedded: open %s: %w; %s", s.path, bare(err), what)
}

func (s *Store) failed(_ context.Context, what string, err error) error {
	return fmt.Errorf("store embedded: %s in %s: %w", what, s.path, bare(err))
}

// bare is an error without the name of the file, which ours have.
func bare(err error) error {
	if file := (*fs.PathError)(nil); errors.As(err, &file) {
		return file.Err
	}
	return err
}

// prepare makes the buckets and reads the head.
func (s *Store) prepare() error {
	var at head
	err := s.view(func(tx *bbolt.Tx) error {
		meta := tx.Bucket(metaBucket)
		if meta == nil {
			return nil
		}
		if format := string(meta.Get(formatKey)); format != formatVersion {
			return fmt.Errorf("its format is %q, and this program knows %q; use the program that wrote it", format, formatVersion)
		}
		at = parseHead(meta.Get(headKey))
		return nil
	})
	if err != nil {
		return err
	}
	if at == (head{}) {
		at = head{nonce: newNonce()}
		if err := s.update(func(tx *bbolt.Tx) error { return create(tx, at) }); err != nil {
			return err
		}
	}
	s.head.Store(at)
	return atomicfile.SyncDirectory(filepath.Dir(s.path))
}

func create(tx *bbolt.Tx, at head) error {
	for _, name := range [][]byte{objectsBucket, historyBucket, metaBucket} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	meta := tx.Bucket(metaBucket)
	return errors.Join(meta.Put(formatKey, []byte(formatVersion)), meta.Put(headKey, at.bytes()))
}

// Identity is that of configstore.Identifier: it is in the file, and in its copies.
func (s *Store) Identity(ctx context.Context, anew string) (id string, err error) {
	read := func(tx *bbolt.Tx) error {
		id = string(tx.Bucket(metaBucket).Get(identityKey))
		return nil
	}
	err = s.Do(ctx, "read or write the identity", func(context.Context) error {
		if err := s.view(read); err != nil || id != "" || anew == "" {
			return err
		}
		s.writing.Lock()
		defer s.writing.Unlock()
		return s.update(func(tx *bbolt.Tx) error {
			if _ = read(tx); id != "" {
				return nil
			}
			id = anew
			return tx.Bucket(metaBucket).Put(identityKey, []byte(anew))
		})
	})
	if err != nil {
		return "", err
	}
	return id, nil
}

// Close ends every Watch, waits for it and for writes, and lets go of the file.
func (s *Store) Close() error {
	if !s.life.Close() {
		return nil
	}
	if s.corrupt.Load() {
		return nil // a damaged file can leave bbolt's own lock held, and Close waiting for it
	}
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("store embedded: close %s: %w", s.path, err)
	}
	return nil
}

func (s *Store) view(f func(*bbolt.Tx) error) error {
	return s.guard(func() error { return s.db.View(f) })
}

func (s *Store) update(f func(*bbolt.Tx) error) error {
	return s.guard(func() error { return s.db.Update(f) })
}

var errDamaged = errors.New("the file is damaged")

// guard turns the panics and memory faults that bbolt answers a damaged file with into
// errors, and lets nothing touch the file after one.
func (s *Store) guard(f func() error) (err error) {
	if s.corrupt.Load() {
		return fmt.Errorf("%w: put back a backup of %s and restart", errDamaged, s.path)
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			s.corrupt.Store(true)
			err = fmt.Errorf("%w (%v): put back a backup of %s and restart", errDamaged, p, s.path)
		}
	}()
	return f()
}
