package file

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/live"
)

// lockName is a file in the directory that writers hold locked while they rename files,
// and readers while they read them. It says which batch was written last.
const lockName = ".isthmus.lock"

// lockWait is how long the lock is waited for. Who holds it holds it for milliseconds;
// it goes with the process that has it.
const lockWait = 5 * time.Second

// readLock keeps writers away until unlock is called. Where nobody has ever written,
// there is no lock and no need of one; a reader that can't get it reads nevertheless.
func (s *Store) readLock() (unlock func(), batch string) {
	f, err := os.Open(filepath.Join(s.dir, lockName))
	if err != nil {
		return func() {}, ""
	}
	if err := flock(f, syscall.LOCK_SH); err != nil {
		s.log.Warn("the lock of the config directory can't be had; a batch may be seen in parts", "file", f.Name(), "err", err)
	}
	text, _ := io.ReadAll(io.LimitReader(f, 64))
	return func() { _ = f.Close() }, string(text) // closing lets go of the lock
}

// writeLock keeps other writers and readers away until unlock is called.
func (s *Store) writeLock() (f *os.File, err error) {
	f, err = os.OpenFile(filepath.Join(s.dir, lockName), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make the writers' lock: %w", err)
	}
	// Whoever can read the file can hold its lock and keep writers away. A former version let
	// everyone; the owner alone can mend that.
	if info, err := f.Stat(); err == nil && info.Mode().Perm() != 0o600 {
		_ = f.Chmod(0o600)
	}
	if err := flock(f, syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w; another writer has held it for %s", f.Name(), err, lockWait), f.Close())
	}
	return f, nil
}

// flock looks for the lock often at first: a reader that was told of a change comes while
// its writer is just about to let go.
func flock(f *os.File, how int) error {
	end := time.Now().Add(lockWait)
	for try := 0; ; try++ {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if err == nil || time.Now().After(end) || !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return err
		}
		time.Sleep(live.Backoff(100*time.Microsecond, time.Millisecond, try))
	}
}

// markBatch names the batch that is about to be written, so that a reader looks at
// every file and not only at those that it was told of so far.
func markBatch(lock *os.File) error {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails, by its documentation
	_, err := lock.WriteAt([]byte(hex.EncodeToString(id[:])), 0)
	return err
}
