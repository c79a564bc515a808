package file

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// What has been read is not read again while it is left alone; but no write is missed,
// even one that leaves the file's length and time as they were.
func TestAFileIsReadAgainOnceItWasWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "east.yaml")
	s := open(t, filepath.Dir(path))
	write := func(network string, at time.Time) {
		t.Helper()
		if err := os.WriteFile(path, []byte(clusterText("east", network)), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	holds := func(want string) {
		t.Helper()
		stored, err := s.Get(t.Context(), catalog.Key{Kind: catalog.KindCluster, Name: "east"})
		if err != nil {
			t.Fatal(err)
		}
		if got := stored.Object.(*catalog.Cluster).Network; got != want {
			t.Errorf("the file says %s, and Get %s", want, got)
		}
	}
	now := time.Now()
	tick := now.Add(time.Hour) // of which nobody can say that it is long ago, however busy this machine is
	write("a", tick)
	holds("a")
	write("b", tick) // in the same tick of the file system's clock
	holds("b")
	long := now.Add(-time.Hour)
	write("c", long)
	holds("c")
	holds("c")
	if s.unchanged("east.yaml", stat(t, path)) == nil {
		t.Error("a file that was left alone for an hour would be read again")
	}
	write("d", long.Add(time.Millisecond))
	holds("d")
}

func stat(t *testing.T, path string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info
}
