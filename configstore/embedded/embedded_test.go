package embedded

import (
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
)

func TestMain(m *testing.M) {
	if child() {
		return
	}
	goleak.VerifyTestMain(m)
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Backend {
		path := filepath.Join(t.TempDir(), "data", "isthmus.db")
		var latest *Store // one process has the file, and has it once
		return storetest.Backend{
			Open: func(t testing.TB) configstore.ReadWriter {
				latest = open(t, path)
				return latest
			},
			Elsewhere: func(t testing.TB) configstore.ReadWriter { return open(t, filepath.Join(t.TempDir(), "isthmus.db")) },
			PutRaw:    putRaw,
			Scoped:    func(_ testing.TB, s configstore.Scope) configstore.ReadWriter { return configstore.Narrow(latest, s) },
			MaxObject: api.MaxObjectBytes,
			Resumes:   true,
		}
	})
}

func open(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// putRaw writes past the checks, as another version of this program might.
func putRaw(t testing.TB, s configstore.ReadWriter, path string, value []byte) {
	t.Helper()
	unchecked := configstore.Write{Object: &catalog.Cluster{}}
	_, err := s.(*Store).commit([]configstore.Edit{{Write: unchecked, Path: path, Value: value}})
	if err != nil {
		t.Fatal(err)
	}
}
