package file

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Backend {
		dir := filepath.Join(t.TempDir(), "config")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		return storetest.Backend{
			Open:   func(t testing.TB) configstore.ReadWriter { return open(t, dir) },
			Shared: true,
			PutRaw: putRaw,
			Fail:   moveAway,
			Rewind: func(t testing.TB) (restore func()) { return backup(t, dir) },
			Scoped: func(t testing.TB, s configstore.Scope) configstore.ReadWriter {
				return configstore.Narrow(open(t, dir), s)
			},
			MaxObject: api.MaxObjectBytes,
		}
	})
}

func open(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// putRaw writes a file in place, as a careless editor does.
func putRaw(t testing.TB, s configstore.ReadWriter, path string, value []byte) {
	t.Helper()
	dir := s.(*Store).dir
	name := "foreign.txt"
	if key, err := api.ParseKeyPath(path); err == nil {
		name = fileName(key)
	}
	if value == nil {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		return
	}
	// At once: a file that is still empty would be one without objects.
	written := filepath.Join(t.TempDir(), "written")
	if err := os.WriteFile(written, value, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(written, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// moveAway makes the directory vanish.
func moveAway(t testing.TB, s configstore.ReadWriter) (mend func()) {
	t.Helper()
	dir := s.(*Store).dir
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Rename(dir+".away", dir); err != nil {
			t.Fatal(err)
		}
	}
}

// backup copies the directory; restore puts back every file of it by a rename, and
// removes what has come since.
func backup(t testing.TB, dir string) (restore func()) {
	t.Helper()
	kept := t.TempDir()
	if err := os.CopyFS(kept, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		for _, path := range list(t, dir) {
			if _, err := os.Stat(filepath.Join(kept, filepath.Base(path))); errors.Is(err, os.ErrNotExist) {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, path := range list(t, kept) {
			if err := os.Rename(path, filepath.Join(dir, filepath.Base(path))); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func list(t testing.TB, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}
