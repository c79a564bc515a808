package embedded

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

func TestNoPermission(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "isthmus.db")
	if err := os.WriteFile(file, []byte("x"), 0o000); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "closed"), 0o555); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	asNobody(t)
	if _, err := Open(file); !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "let this user read and write it") {
		t.Errorf("open what may not be read: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "closed", "isthmus.db")); !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "let this user") {
		t.Errorf("open in a directory that may not be written: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "closed", "deeper", "isthmus.db")); !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "make the directory of") {
		t.Errorf("open in a directory that can't be made: %v", err)
	}
}

// asNobody takes root's rights over files from the test's thread, until the test ends.
func asNobody(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		return
	}
	runtime.LockOSThread()
	if err := syscall.Setfsuid(65534); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Setfsuid(0); err != nil {
			t.Error(err)
		}
		runtime.UnlockOSThread()
	})
}

// smallDisk is a file system of its own of 512 KiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=512k"); err != nil {
		t.Skip("no file system can be mounted here: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestANewStoreOnAFullDisk begins once there is room.
func TestANewStoreOnAFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root mounts a small file system; tests/simulation has such a disk for other users")
	}
	dir := smallDisk(t)
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	path := filepath.Join(dir, "isthmus.db")
	if s, err := Open(path); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("open on a full disk: %v, %v", s, err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left (%v)", left, err)
	}
	s := open(t, path)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestAFullFileSystem(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root mounts a small file system; TestAFullDiskIsAnErrorAndNothingIsLost needs no root")
	}
	path := filepath.Join(smallDisk(t), "isthmus.db")
	s := open(t, path)
	t.Cleanup(func() { s.Close() }) // before the file system goes
	n := 0
	var err error
	for ; err == nil; n++ {
		_, err = s.Write(t.Context(), batch(n)...)
	}
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "make room or mend the disk, then write again") {
		t.Fatalf("write %d: %v; want that there is no room", n, err)
	}
	if _, err := s.Get(t.Context(), batch(0)[0].Key()); err != nil {
		t.Errorf("get from the full file system: %v", err)
	}
	if objects, _, err := s.List(t.Context()); err != nil || len(objects) != n-1+3 {
		t.Errorf("%d objects (%v), want the %d that were acknowledged", len(objects), err, n-1+3)
	}
}
