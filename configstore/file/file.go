// Package file is the config store of a directory of YAML files, as a person or a
// Kubernetes mount keeps them.
//
// Every *.yaml and *.yml of the directory itself is read; directories in it, hidden
// files and what editors leave behind are not. A file may be replaced by a rename, be a
// symbolic link that is swapped, or be written in place. In place, a reader can meet it
// half-written: so a file that got shorter, can't be read as YAML, lost objects or is gone
// is believed only once it has been left alone for a while. Until then, and for as long as
// it is bad, its last good objects stand.
//
// An object that two files have is refused and both are named: the last good one
// stands until one file is left. A directory that vanishes, or is replaced by an empty
// one as when a mount goes, is a failure and not an empty store.
//
// Write makes a file for each new object and replaces a file that holds just the one
// object. It refuses to rewrite a file in which a person would lose something: other
// objects or comments. A batch is one to every reader that uses this package; against
// a crash in the middle of it, only each object by itself is safe.
package file

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/isthmus-mesh/isthmus/configstore"
)

// MaxFileBytes is how long a file may be. Of longer ones than largeFile one is parsed at a time.
const (
	MaxFileBytes = 16 << 20
	largeFile    = 1 << 20
)

// How long things are waited for.
const (
	settle    = 4 * time.Millisecond   // after an event, for those that belong to it
	settleMax = 100 * time.Millisecond // however many events come
	lull      = time.Millisecond       // before an event, for it to be alone
	patience  = 500 * time.Millisecond // with a file that seems half-written, or is gone; see Store.patience
	emptied   = 5 * time.Second        // with a file or directory that had objects and has none
	absence   = patience / 20          // between looks for a directory that is gone
	glance    = patience               // between looks at whether the directory is still the same
	scanShare = 100                    // a look at every file takes one part of so many of the time; see Store.scanShare
	rescan    = 5 * time.Minute        // between those at most, however long one takes
)

// Config is the settings of a store of files.
type Config struct {
	Path string `yaml:"path" json:"path" file:""` // of the directory
}

// Store is a directory. It is a configstore.ReadWriter.
type Store struct {
	dir  string
	log  *slog.Logger
	life *configstore.Life

	patience  time.Duration // patience; more in tests, where the writer may stand still for longer
	scanShare time.Duration // scanShare; more in tests of what events alone tell of

	parsing sync.Mutex // of a large file

	mu     sync.Mutex // guards what follows
	parsed map[string]*parsed
	root   identity // the directory when it last had an object
}

var (
	_ configstore.ReadWriter = (*Store)(nil)
	_ configstore.ManyGetter = (*Store)(nil)
)

// Open makes a Store of a directory, which need not be there yet. It reads nothing.
func Open(dir string, log *slog.Logger) (*Store, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("store file: %s: %w; give the whole path", dir, err)
	}
	return &Store{dir: absolute, log: log, life: configstore.NewLife(), patience: patience, scanShare: scanShare, parsed: map[string]*parsed{}}, nil
}

// Close ends every Watch and waits for it.
func (s *Store) Close() error {
	s.life.Close()
	return nil
}

// wanted tells whether a file of this name is read.
func wanted(name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") {
		return false
	}
	ext := filepath.Ext(name)
	return ext == ".yaml" || ext == ".yml"
}

// list is the files that are wanted, in the order of their names, each with what its
// name leads to; nil where that can't be told.
func (s *Store) list() (names []string, infos map[string]os.FileInfo, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, nil, s.noDirectory(err)
	}
	infos = make(map[string]os.FileInfo, len(entries))
	for _, e := range entries {
		if !wanted(e.Name()) || e.IsDir() {
			continue
		}
		info, err := os.Stat(filepath.Join(s.dir, e.Name()))
		if err == nil && info.IsDir() {
			continue
		}
		names = append(names, e.Name())
		infos[e.Name()] = info
	}
	return names, infos, s.believe(len(names))
}

// noDirectory says what to do about a directory that can't be read. It is looked for
// again and again, so that a mount may come later than the service.
func (s *Store) noDirectory(err error) error {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("store file: the directory: %w; make it (an empty one stands for no objects), mount it, or correct the path", err)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("store file: read the directory: %w; let this user read it", err)
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("store file: %s is not a directory; name the directory that the file is in", s.dir)
	}
	return fmt.Errorf("store file: read the directory: %w", err)
}

// believe refuses an empty directory in the place of another that had objects.
func (s *Store) believe(files int) error {
	root, err := identify(s.dir)
	if err != nil {
		return s.noDirectory(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if files > 0 {
		s.root = root
		return nil
	}
	if s.root.info != nil && !s.root.same(root) {
		return fmt.Errorf("store file: %s had objects and was replaced by an empty directory, as when a mount goes; mount it again, or restart if no object is meant", s.dir)
	}
	return nil
}

// errGone says that a file is not there any more.
var errGone = errors.New("file is gone")

// load reads a file's bytes. It never waits, as for the other end of a named pipe.
func (s *Store) load(name string) ([]byte, os.FileInfo, error) {
	path := filepath.Join(s.dir, name)
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return nil, nil, errGone
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("%w; mend or remove the file", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, info, fmt.Errorf("%s is not a file but %s; only files are read", path, info.Mode().Type())
	case info.Size() > MaxFileBytes:
		return nil, info, fmt.Errorf("%s is %d bytes long; a file has at most %d: split it", path, info.Size(), MaxFileBytes)
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err == nil && len(data) > MaxFileBytes {
		err = fmt.Errorf("%s grows as it is read; a file has at most %d bytes", path, MaxFileBytes)
	}
	return data, info, err
}
