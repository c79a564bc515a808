package file

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/isthmus-mesh/isthmus/internal/atomicfile"
)

var errReadOnlyFS = syscall.EROFS

// edit is a file put into place, or removed.
type edit struct {
	path   string
	data   []byte // nil to remove
	staged string // the new file before it is in place
	backup string // the old one, until the whole batch is in place
}

// stagePrefix begins the names of files that are not in place yet. No reader looks at
// hidden files.
const stagePrefix = ".isthmus-"

// make puts every edit into place, or none. Everything that can fail for want of room
// is done before the first file changes. Once all are in place it lets go of the lock:
// readers need not wait until the disk has them, and what was there has been removed.
func (s *Store) make(edits []edit, lock *os.File) (err error) {
	defer func() {
		for i := range edits {
			edits[i].clean()
		}
	}()
	if err := s.sweep(); err != nil {
		return err
	}
	if err := s.stage(edits); err != nil {
		return err
	}
	if len(edits) > 1 || edits[0].data == nil { // one that is gone has not to be waited for
		if err := markBatch(lock); err != nil {
			return err
		}
	}
	for i := range edits {
		if err := edits[i].place(); err != nil {
			for j := i; j >= 0; j-- {
				err = errors.Join(err, edits[j].undo(j < i))
			}
			return err
		}
	}
	_ = lock.Close()
	if err := atomicfile.SyncDirectory(s.dir); err != nil {
		return fmt.Errorf("it is written, but may be lost if the power goes: %w", err)
	}
	return nil
}

// sweep removes what a writer that was killed has left. There is no other writer, since the
// caller holds the lock, but one may still be about to remove what it replaced.
func (s *Store) sweep() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), stagePrefix) {
			continue
		}
		if err := os.Remove(filepath.Join(s.dir, e.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove what an earlier writer left: %w", err)
		}
	}
	return nil
}

// stage writes the new files, a few at a time so that the disk can gather them.
func (s *Store) stage(edits []edit) error {
	errs := make([]error, len(edits))
	slots := make(chan struct{}, 16)
	var wait sync.WaitGroup
	for i := range edits {
		slots <- struct{}{}
		wait.Go(func() {
			errs[i] = edits[i].stage(s.dir)
			<-slots
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

func (e *edit) stage(dir string) error {
	if e.data == nil {
		return nil
	}
	f, err := os.CreateTemp(dir, stagePrefix+"*")
	if err != nil {
		return err
	}
	e.staged = f.Name()
	mode := os.FileMode(0o644)
	if old, err := os.Stat(e.path); err == nil {
		mode = old.Mode().Perm()
	}
	_, err = f.Write(e.data)
	return errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
}

// place makes the change, and keeps what was there.
func (e *edit) place() error {
	backup := filepath.Join(filepath.Dir(e.path), stagePrefix+"old-"+rand.Text()) // removed without the lock, so nobody else's
	if err := os.Link(e.path, backup); err == nil {
		e.backup = backup
	} else if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("keep the old %s: %w", e.path, err)
	}
	if e.data == nil {
		return os.Remove(e.path)
	}
	if err := os.Rename(e.staged, e.path); err != nil {
		return err
	}
	e.staged = ""
	return nil
}

// undo puts back what was there, if the change was made.
func (e *edit) undo(made bool) error {
	switch {
	case e.backup != "":
		return os.Rename(e.backup, e.path)
	case made:
		return os.Remove(e.path)
	}
	return nil
}

// clean removes what is left over.
func (e *edit) clean() {
	for _, path := range []string{e.staged, e.backup} {
		if path != "" {
			_ = os.Remove(path)
		}
	}
}
