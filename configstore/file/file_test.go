package file

import (
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
			Open:      func(t testing.TB) configstore.ReadWriter { return open(t, dir) },
			Shared:    true,
			PutRaw:    putRaw,
			Fail:      moveAway,
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
	var err error
	if value == nil {
		err = os.Remove(filepath.Join(dir, name))
	} else {
		err = os.WriteFile(filepath.Join(dir, name), value, 0o644)
	}
	if err != nil {
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
