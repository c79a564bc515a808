package file

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

func TestNothingOfAPersonIsLostByAWrite(t *testing.T) {
	east := &catalog.Cluster{Name: "east", Network: "b", StaleAfter: catalog.DefaultStaleAfter}
	for _, c := range []struct{ name, file, text, want string }{
		{"other objects", "all.yaml", clusterText("east", "a") + "---\n" + clusterText("west", "a"), "all.yaml also has other objects or comments, which would be lost; edit it by hand"},
		{"a comment", "east.yaml", clusterText("east", "a") + "# ask Kim before you change this\n", "other objects or comments"},
		{"something else under its name", "Cluster.east.yaml", "kind: {", "has something else in it; move that file away"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			s := open(t, dir)
			if _, err := s.Write(t.Context(), configstore.Write{Object: east}); !errors.Is(err, configstore.ErrReadOnly) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("write: %v; want ErrReadOnly, %q", err, c.want)
			}
			if text, err := os.ReadFile(filepath.Join(dir, c.file)); err != nil || string(text) != c.text {
				t.Errorf("the file is now %q (%v)", text, err)
			}
			leftOver(t, dir, c.file)
		})
	}
}

func leftOver(t *testing.T, dir string, wanted ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.Name() != lockName {
			names = append(names, e.Name())
		}
	}
	if strings.Join(names, " ") != strings.Join(wanted, " ") {
		t.Errorf("the directory has %q, want %q", names, wanted)
	}
}

// TestOnlyTheOwnerHoldsTheLock: whoever can open the file could keep every writer away.
func TestOnlyTheOwnerHoldsTheLock(t *testing.T) {
	east := configstore.Write{Object: &catalog.Cluster{Name: "east", Network: "b", StaleAfter: catalog.DefaultStaleAfter}}
	for name, before := range map[string]func(path string) error{
		"new":                 func(string) error { return nil },
		"of a former version": func(path string) error { return os.WriteFile(path, nil, 0o644) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			lock := filepath.Join(dir, lockName)
			if err := before(lock); err != nil {
				t.Fatal(err)
			}
			if _, err := open(t, dir).Write(t.Context(), east); err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(lock); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v %v, want 0600", info.Mode(), err)
			}
		})
	}
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "elsewhere")
	if err := os.Symlink(elsewhere, filepath.Join(dir, lockName)); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, dir).Write(t.Context(), east); err == nil {
		t.Error("a lock is taken that is a link")
	}
	if _, err := os.Lstat(elsewhere); err == nil {
		t.Error("a file was made where the link leads")
	}
}

func TestAWriteRewritesTheFileThatHasTheObject(t *testing.T) {
	d := begin(t, "my-east.yaml", clusterText("east", "a"))
	d.must(os.Chmod(d.file("my-east.yaml"), 0o600))
	_, err := d.store.Write(t.Context(),
		configstore.Write{Object: &catalog.Cluster{Name: "east", Network: "b", StaleAfter: catalog.DefaultStaleAfter}},
		configstore.Write{Object: &catalog.Cluster{Name: "west", Network: "b", StaleAfter: catalog.DefaultStaleAfter}})
	d.must(err)
	d.await("east=b west=b")
	leftOver(t, d.path, "Cluster.west.yaml", "my-east.yaml")
	if info, err := os.Stat(d.file("my-east.yaml")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file that was replaced has mode %v (%v), want the one that it had", info.Mode(), err)
	}
	_, err = d.store.Write(t.Context(), configstore.Write{Delete: catalog.Key{Kind: catalog.KindCluster, Name: "east"}})
	d.must(err)
	d.await("west=b")
	leftOver(t, d.path, "Cluster.west.yaml")
}

func TestABatchThatFailsHalfwayIsTakenBack(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	keep := filepath.Join(dir, "a.yaml")
	if err := os.WriteFile(keep, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	lock, err := s.writeLock()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := os.Mkdir(filepath.Join(dir, "c.yaml"), 0o755); err != nil { // no file can take its place
		t.Fatal(err)
	}
	edits := []edit{{path: keep, data: []byte("new")}, {path: filepath.Join(dir, "b.yaml"), data: []byte("new")}, {path: filepath.Join(dir, "c.yaml"), data: []byte("new")}}
	if err := s.make(edits, lock); err == nil {
		t.Error("a file took the place of a directory")
	}
	if text, err := os.ReadFile(keep); err != nil || string(text) != "old" {
		t.Errorf("a.yaml has %q (%v), want what it had", text, err)
	}
	leftOver(t, dir, "a.yaml", "c.yaml")
}

func TestWhatAKilledWriterLeftIsRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a*[b]")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{stagePrefix + "123", stagePrefix + "old-east.yaml"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("kind: {"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, dir)
	if _, err := s.Write(t.Context(), configstore.Write{Object: &catalog.Cluster{Name: "east", Network: "a", StaleAfter: catalog.DefaultStaleAfter}}); err != nil {
		t.Fatal(err)
	}
	leftOver(t, dir, "Cluster.east.yaml")
}
