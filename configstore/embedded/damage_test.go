package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
		{"no byte", nil, "the file is empty, and no store is: put back a backup of it, or delete it to begin anew"},
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
