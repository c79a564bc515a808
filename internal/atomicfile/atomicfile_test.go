package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func content(text string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestAReaderSeesOneContentOrTheOther(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "view")
	old, changed := strings.Repeat("old", 100_000), strings.Repeat("new", 200_000)
	if err := Write(path, content(old)); err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for i := range 20 {
		wait.Go(func() {
			if err := Write(path, content([]string{old, changed}[i%2])); err != nil {
				t.Error(err)
			}
		})
		got, err := os.ReadFile(path)
		if err != nil || string(got) != old && string(got) != changed {
			t.Fatalf("read %d bytes, %v", len(got), err)
		}
	}
	wait.Wait()
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || !slices.Equal(names(t, dir), []string{"view"}) {
		t.Errorf("mode %v, %v; files %v", info.Mode(), err, names(t, dir))
	}
}

func TestAWriteThatFailsLeavesTheOldFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "view")
	if err := Write(path, content("old")); err != nil {
		t.Fatal(err)
	}
	full := errors.New("the disk is full")
	err := Write(path, func(w io.Writer) error {
		_, _ = io.WriteString(w, "half of it")
		return full
	})
	got, _ := os.ReadFile(path)
	if !errors.Is(err, full) || string(got) != "old" || len(names(t, dir)) != 1 {
		t.Errorf("%v; the file has %q, beside %v", err, got, names(t, dir))
	}
	if err := Write(filepath.Join(dir, "nowhere", "view"), content("x")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in a directory that is not there: %v", err)
	}
	if err := Write(dir, content("x")); err == nil {
		t.Error("a directory was replaced by a file")
	}
}

// TestAFileOfOthersIsNotRead: who can write a file beside a process must not decide for it.
func TestAFileOfOthersIsNotRead(t *testing.T) {
	for _, c := range []struct {
		name, want string
		change     func(path string) error
	}{
		{"as it was written", "", func(string) error { return nil }},
		{"readable by others", "", func(path string) error { return os.Chmod(path, 0o644) }},
		{"writable by its group", "other users may write to it (mode 0660)", func(path string) error { return os.Chmod(path, 0o660) }},
		{"writable by all", "other users may write to it (mode 0602)", func(path string) error { return os.Chmod(path, 0o602) }},
		{"of another user", "it belongs to user 65534", func(path string) error { return os.Chown(path, 65534, -1) }},
		{"too long", "it is 9 bytes long", func(path string) error { return os.Truncate(path, 9) }},
		{"a pipe", "it is not a file", func(path string) error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) }},
		{"a directory", "it is not a file", func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "view")
			if err := Write(path, content("old")); err != nil {
				t.Fatal(err)
			}
			if err := c.change(path); errors.Is(err, os.ErrPermission) {
				t.Skip("only root can give a file away")
			} else if err != nil {
				t.Fatal(err)
			}
			text, err := Read(path, 8)
			switch {
			case c.want == "" && (err != nil || string(text) != "old"):
				t.Errorf("%q, %v", text, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%q, %v; want %q", text, err, c.want)
			}
		})
	}
}

func TestWhatAKilledWriterHasLeftIsRemoved(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "view")
	for _, name := range []string{"view", "view.123.tmp", "view.456.tmp", "view.bak.tmp", "view.bak", "other.1.tmp"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "view.123.tmp"), long, long); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		older time.Duration
		want  string
	}{
		{time.Minute, "[other.1.tmp view view.456.tmp view.bak view.bak.tmp]"},
		{0, "[other.1.tmp view view.bak view.bak.tmp]"},
	} {
		if err := Sweep(path, c.older); err != nil || fmt.Sprint(names(t, dir)) != c.want {
			t.Errorf("older than %s: %v are left (%v), want %s", c.older, names(t, dir), err, c.want)
		}
	}
	if err := Sweep(filepath.Join(dir, "nowhere", "view"), 0); err != nil {
		t.Errorf("where nothing is: %v", err)
	}
}

func TestADirectoryIsSynced(t *testing.T) {
	if err := SyncDirectory(t.TempDir()); err != nil {
		t.Error(err)
	}
	if err := SyncDirectory("/nowhere"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("one that is not there: %v", err)
	}
}
