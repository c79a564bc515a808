package atomicfile

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
)

// Fault is a path whose last write by this process failed for want of room, or for a broken disk.
type Fault struct {
	Path string
	Err  error
}

// faults are of the whole process, as disks are.
var faults = struct {
	sync.Mutex
	of map[string]error
}{of: map[string]error{}}

// Note notes how a write to a path has ended, for [Faults]. [Write] does so itself.
func Note(path string, err error) {
	faults.Lock()
	defer faults.Unlock()
	if ofDisk(err) {
		faults.of[path] = err
	} else if err == nil {
		delete(faults.of, path)
	}
}

func ofDisk(err error) bool {
	for _, of := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EIO, syscall.EROFS} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}

// Room is how much room a probe takes: less is none.
const Room = 64 << 10

// Faults returns the paths whose last write failed, in order. It first tries each of their
// directories again, since who failed may have nothing to write for long: those that take a write
// are no fault.
func Faults() (all []Fault) {
	faults.Lock()
	was := maps.Clone(faults.of)
	faults.Unlock()
	for _, path := range slices.Sorted(maps.Keys(was)) {
		if err := probe(filepath.Dir(path)); err == nil {
			Note(path, nil)
			continue
		}
		all = append(all, Fault{path, was[path]})
	}
	return all
}

// probe writes so much into a directory, and removes it.
func probe(dir string) error {
	f, err := os.CreateTemp(dir, ".isthmus-room-*"+suffix)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, Room))
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
}

// Free is how many bytes the file system of a directory has left for this user.
func Free(dir string) (bytes uint64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return uint64(s.Bavail) * uint64(s.Bsize), nil
}
