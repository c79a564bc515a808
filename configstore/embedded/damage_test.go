package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

func fill(t testing.TB, s *Store, n int) {
	t.Helper()
	var writes []configstore.Write
	for i := range n {
		writes = append(writes, configstore.Write{Object: &catalog.AppExport{App: catalog.App{Namespace: "shop", ID: fmt.Sprintf("app-%d", i)}}})
	}
	if _, err := s.Write(t.Context(), writes...); err != nil {
		t.Fatal(err)
	}
}

func TestFilesThatCanNotBeOpened(t *testing.T) {
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole.db")
	s := open(t, whole)
	fill(t, s, 2000)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"text", []byte(strings.Repeat("not a database\n", 1000)), "put back a backup of it"},
		{"a few bytes", []byte("x"), "it is no store or is damaged"},
		{"its head overwritten", append(bytes.Repeat([]byte{0xff}, 8192), good[8192:]...), "it is no store or is damaged"},
		{"cut off behind its head", good[:8192], "damaged"},
		{"cut off", good[:len(good)/2], "damaged"},
		{"its middle overwritten", overwritten(good), "damaged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "isthmus.db")
			if err := os.WriteFile(path, c.data, 0o600); err != nil {
				t.Fatal(err)
			}
			err := readAll(t, path)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v; want %q and the file's name", err, c.want)
			}
		})
	}
}

// overwritten leaves the two pages of the head alone.
func overwritten(good []byte) []byte {
	data := bytes.Clone(good)
	for i := 8192; i < len(data); i++ {
		data[i] = byte(i * 7)
	}
	return data
}

// readAll opens a file and reads it all, as a service does when it starts.
func readAll(t *testing.T, path string) error {
	s, err := Open(path)
	if err != nil {
		return err
	}
	defer s.Close()
	stop := errors.New("the set is in")
	err = s.Watch(t.Context(), "", func(configstore.Change) error { return stop })
	if errors.Is(err, stop) {
		return nil
	}
	return err
}

func TestAFileFromAnotherVersionIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "isthmus.db")
	s := open(t, path)
	if err := s.update(func(tx *bbolt.Tx) error { return tx.Bucket(metaBucket).Put(formatKey, []byte("2")) }); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), `its format is "2", and this program knows "1"`) {
		t.Errorf("open: %v", err)
	}
}

func TestNoPermission(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "isthmus.db")
	if err := os.WriteFile(file, nil, 0o000); err != nil {
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

func TestAFullFileSystem(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root mounts a small file system; TestAFullDiskIsAnErrorAndNothingIsLost needs no root")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=512k"); err != nil {
		t.Skip("no file system can be mounted here: ", err)
	}
	defer func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	path := filepath.Join(dir, "isthmus.db")
	s := open(t, path)
	defer s.Close()
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

func TestAReaderThatMissedTooMuchGetsTheFullSet(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "isthmus.db"))
	defer s.Close()
	fill(t, s, 1)
	at, _ := s.head.Load()
	s.db.NoSync = true // many writes, and no crash to survive
	for i := range HistoryLength + 1 {
		if _, err := s.Write(t.Context(), configstore.Write{Object: &catalog.Cluster{Name: "east", Network: fmt.Sprint(i), StaleAfter: catalog.DefaultStaleAfter}}); err != nil {
			t.Fatal(err)
		}
		if i == 0 || i == HistoryLength {
			if first := firstChange(t, s, at.version()); first.Full != (i == HistoryLength) {
				t.Errorf("after %d more writes: Full is %t", i+1, first.Full)
			}
		}
	}
	var entries int
	if err := s.view(func(tx *bbolt.Tx) error { entries = tx.Bucket(historyBucket).Stats().KeyN; return nil }); err != nil || entries > HistoryLength {
		t.Errorf("%d entries of history are kept (%v), want at most %d", entries, err, HistoryLength)
	}
}

func firstChange(t *testing.T, s *Store, from configstore.Version) (first configstore.Change) {
	t.Helper()
	stop := errors.New("enough")
	if err := s.Watch(t.Context(), from, func(c configstore.Change) error { first = c; return stop }); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	return first
}

func TestAFileFromABackupIsNotTakenForTheOneThatWasKnown(t *testing.T) {
	dir := t.TempDir()
	path, backup := filepath.Join(dir, "isthmus.db"), filepath.Join(dir, "backup.db")
	s := open(t, path)
	fill(t, s, 1)
	if err := s.view(func(tx *bbolt.Tx) error { return tx.CopyFile(backup, 0o600) }); err != nil {
		t.Fatal(err)
	}
	lost := &catalog.Cluster{Name: "lost", Network: "a", StaleAfter: catalog.DefaultStaleAfter}
	if _, err := s.Write(t.Context(), configstore.Write{Object: lost}); err != nil {
		t.Fatal(err)
	}
	known, _ := s.head.Load()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, backup)
	defer s.Close()
	for i := range 3 { // the same revision as the reader knows, and beyond
		first := firstChange(t, s, known.version())
		if !first.Full || len(first.Objects) != 1+min(i, 1) {
			t.Errorf("after %d writes to the backup: first change %+v; want its full set", i, first)
		}
		if _, err := s.Write(t.Context(), configstore.Write{Object: &catalog.Cluster{Name: "new", Network: fmt.Sprint(i), StaleAfter: catalog.DefaultStaleAfter}}); err != nil {
			t.Fatal(err)
		}
	}
}

func BenchmarkStartWith10000(b *testing.B) {
	path := filepath.Join(b.TempDir(), "isthmus.db")
	s := open(b, path)
	for i := range 10 {
		var writes []configstore.Write
		for j := range 1000 {
			o := &catalog.AppEndpoints{App: catalog.App{Namespace: "shop", ID: fmt.Sprintf("app-%d", 1000*i+j)}}
			for k := range 20 {
				o.Endpoints = append(o.Endpoints, catalog.Endpoint{App: catalog.App{Namespace: "shop", ID: fmt.Sprintf("app-%d", 10_001+(i+j*37+k)%10_000)}})
			}
			writes = append(writes, configstore.Write{Object: o})
		}
		if _, err := s.Write(b.Context(), writes...); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	stop := errors.New("enough")
	for b.Loop() {
		s := open(b, path)
		err := s.Watch(b.Context(), "", func(c configstore.Change) error {
			if len(c.Objects) != 10_000 {
				b.Fatalf("%d objects", len(c.Objects))
			}
			return stop
		})
		if !errors.Is(err, stop) {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWriteToDeliver(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "isthmus.db"))
	defer s.Close()
	fill(b, s, 10_000)
	storeBench(b, s)
}

func storeBench(b *testing.B, s *Store) {
	got := make(chan string, 1)
	stop := errors.New("enough")
	done := make(chan error, 1)
	go func() {
		done <- s.Watch(b.Context(), "", func(c configstore.Change) error {
			if c.Full {
				got <- ""
				return nil
			}
			network := c.Objects[0].Object.(*catalog.Cluster).Network
			got <- network
			if network == "end" {
				return stop
			}
			return nil
		})
	}()
	<-got
	write := func(network string) {
		if _, err := s.Write(b.Context(), configstore.Write{Object: &catalog.Cluster{Name: "east", Network: network, StaleAfter: catalog.DefaultStaleAfter}}); err != nil {
			b.Fatal(err)
		}
		if seen := <-got; seen != network {
			b.Fatalf("delivered %s, want %s", seen, network)
		}
	}
	i := 0
	for b.Loop() {
		write(fmt.Sprint(i))
		i++
	}
	write("end")
	if err := <-done; !errors.Is(err, stop) {
		b.Fatal(err)
	}
}
