// Package atomicfile replaces files as a whole. A reader sees the old content or the new, also
// after a crash.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// suffix ends the names of files that are not finished.
const suffix = ".tmp"

// Write makes the file of what write writes, readable by its owner only. Its directory
// must be there. After an error the old file stands. A crash can leave a file that is
// not finished beside it: see Sweep.
func Write(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*"+suffix) // 0600
	if err != nil {
		Note(path, err)
		return err
	}
	err = errors.Join(write(f), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	Note(path, err)
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Read returns the content of a file that Write made, of at most so many bytes. A file that another
// user may have made or changed is an error.
func Read(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe is not waited for
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	switch mode := info.Mode(); {
	case !mode.IsRegular():
		return nil, fmt.Errorf("it is not a file but %s; remove it", mode.Type())
	case info.Size() > most:
		return nil, fmt.Errorf("it is %d bytes long, more than was ever written there; remove it", info.Size())
	}
	if err := CheckOwner(info, os.Geteuid(), 0o022); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, most))
}

// Sweep removes the unfinished files that a killed writer has left beside the file, if
// they are older than a while, which keeps it from those of another writer at work. A
// directory that is not there has none.
func Sweep(path string, older time.Duration) error {
	entries, err := os.ReadDir(filepath.Dir(path))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		middle, ours := strings.CutPrefix(e.Name(), filepath.Base(path)+".")
		middle, unfinished := strings.CutSuffix(middle, suffix)
		if !ours || !unfinished || strings.Trim(middle, "0123456789") != "" {
			continue
		}
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < older {
			continue // gone meanwhile, or at work
		}
		if err := os.Remove(filepath.Join(filepath.Dir(path), e.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// SyncDirectory makes the names of files in a directory survive a power cut.
func SyncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
