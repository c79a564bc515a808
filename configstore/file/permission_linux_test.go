package file

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/isthmus-mesh/isthmus/configstore"
)

func TestAFileWithoutPermissionKeepsItsObjects(t *testing.T) {
	if os.Getuid() == 0 {
		asNobody(t)
	}
	dir := t.TempDir()
	s := open(t, dir)
	if err := os.WriteFile(filepath.Join(dir, "east.yaml"), []byte(clusterText("east", "a")), 0o000); err != nil {
		t.Fatal(err)
	}
	objects, refused, err := s.List(t.Context())
	if err != nil || len(objects) != 0 || len(refused) != 1 || !errors.Is(refused[0].Err, os.ErrPermission) || refused[0].Where != filepath.Join(dir, "east.yaml") {
		t.Errorf("list: %v, refused %v, %v; want the file refused for want of permission", objects, refused, err)
	}
}

// asNobody takes root's rights over files from the thread of the test's goroutine, until
// the test ends.
func asNobody(t *testing.T) {
	t.Helper()
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("isthmus-nobody-%d", os.Getpid()))
	if err := errors.Join(os.Mkdir(dir, 0o777), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir)
	runtime.LockOSThread()
	if err := syscall.Setfsuid(65534); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Setfsuid(0); err != nil {
			t.Error(err)
		}
		runtime.UnlockOSThread()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
}

func TestADirectoryWithoutPermissionIsCalledThat(t *testing.T) {
	if os.Getuid() == 0 {
		asNobody(t)
	}
	dir := t.TempDir()
	s := open(t, dir)
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(dir, 0o700) })
	err := s.Watch(t.Context(), "", func(configstore.Change) error { return nil })
	if !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "let this user read it") || strings.Contains(err.Error(), "inotify") {
		t.Errorf("watch: %v; want what to do about the directory", err)
	}
}
