package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
)

func clusterText(name, network string) string {
	return fmt.Sprintf("apiVersion: isthmus.dev/v1alpha1\nkind: Cluster\nmetadata: {name: %s}\nspec: {network: %s}\n", name, network)
}

// directory is a directory and a Follower of it.
type directory struct {
	*storetest.Follower
	t     *testing.T
	path  string
	store *Store
}

// begin makes a directory with these files in it and follows it.
func begin(t *testing.T, files ...string) *directory {
	t.Helper()
	return beginWith(t, patience, files...)
}

// beginWith has patience with what seems half-written.
func beginWith(t *testing.T, patience time.Duration, files ...string) *directory {
	t.Helper()
	d := &directory{t: t, path: filepath.Join(t.TempDir(), "config")}
	if err := os.Mkdir(d.path, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(files); i += 2 {
		d.write(files[i], files[i+1])
	}
	d.store = open(t, d.path)
	d.store.patience = patience
	d.Follower = storetest.Follow(t, d.store)
	return d
}

// told is all networks of east that the reader was told of, in order.
func (d *directory) told() string {
	var all []string
	for _, c := range d.All() {
		for _, key := range c.Deleted {
			if key.Name == "east" {
				all = append(all, "deleted")
			}
		}
		for _, s := range c.Objects {
			if s.Object.Key().Name == "east" {
				all = append(all, s.Object.(*catalog.Cluster).Network)
			}
		}
	}
	return strings.Join(all, " ")
}

func (d *directory) file(name string) string { return filepath.Join(d.path, name) }

// write writes a file in place.
func (d *directory) write(name, text string) {
	d.t.Helper()
	if err := os.WriteFile(d.file(name), []byte(text), 0o644); err != nil {
		d.t.Fatal(err)
	}
}

func (d *directory) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// await waits for clusters, "name=network", and for words in what is refused.
func (d *directory) await(want string, refused ...string) {
	d.t.Helper()
	d.AwaitStatus(fmt.Sprintf("%q, refused %q", want, refused), func(s configstore.Status) bool {
		return s.Synced && d.Clusters() == want && refusedAs(s, refused)
	})
}

func refusedAs(s configstore.Status, words []string) bool {
	var text strings.Builder
	for _, r := range s.Refused {
		fmt.Fprintln(&text, r.Where, r.Key, r.Err)
	}
	for _, word := range words {
		if !strings.Contains(text.String(), word) {
			return false
		}
	}
	return (len(words) == 0) == (len(s.Refused) == 0)
}

func (d *directory) awaitFailure(words string) {
	d.t.Helper()
	d.AwaitStatus("the error "+words, func(s configstore.Status) bool {
		return s.Err != nil && strings.Contains(s.Err.Error(), words)
	})
}

func TestAFileThatIsReplacedByARename(t *testing.T) {
	d := begin(t, "east.yaml", clusterText("east", "a"))
	d.await("east=a")
	for i := range 20 {
		network := fmt.Sprintf("n%d", i)
		d.write(".east.yaml.tmp", clusterText("east", network))
		d.must(os.Rename(d.file(".east.yaml.tmp"), d.file("east.yaml")))
		d.await("east=" + network)
	}
}

func TestAFileThatIsWrittenInPiecesIsBelievedWhenItIsWhole(t *testing.T) {
	text := clusterText("west", "a") + "---\n" + clusterText("east", "a")
	d := beginWith(t, time.Minute, "all.yaml", text) // what is whole waits for none of it
	d.await("east=a west=a")
	f, err := os.OpenFile(d.file("all.yaml"), os.O_WRONLY|os.O_TRUNC, 0)
	d.must(err)
	defer f.Close()
	next := strings.ReplaceAll(text, "network: a", "network: b")
	for i := 0; i < len(next); i += 25 { // every piece ends elsewhere: between documents, within a word
		_, err := f.WriteString(next[i:min(i+25, len(next))])
		d.must(err)
		time.Sleep(settle * 2) // long enough to be seen
	}
	d.await("east=b west=b")
	if got := d.told(); got != "a b" {
		t.Errorf("east was %q, want nothing between a and b", got)
	}
}

func TestAFileThatIsLeftBrokenKeepsItsLastGoodObjects(t *testing.T) {
	d := begin(t, "all.yaml", clusterText("east", "a")+"---\n"+clusterText("west", "a"), "north.yaml", clusterText("north", "a"))
	d.await("east=a north=a west=a")
	d.write("all.yaml", clusterText("east", "b")+"---\nkind: {")
	d.await("east=a north=a west=a", d.file("all.yaml"), "not YAML")
	d.write("north.yaml", clusterText("north", "b"))
	d.await("east=a north=b west=a", "all.yaml")
	d.write("all.yaml", clusterText("east", "c"))
	d.await("east=c north=b")
	d.write("all.yaml", "kind: {")
	d.await("east=c north=b", "all.yaml")
	d.must(os.Remove(d.file("all.yaml")))
	d.await("north=b")
}

func TestADocumentWithNoNameKeepsTheRestOfItsFile(t *testing.T) {
	d := begin(t, "all.yaml", clusterText("east", "a")+"---\n"+clusterText("west", "a"))
	d.await("east=a west=a")
	d.write("all.yaml", clusterText("east", "b")+"---\n"+clusterText("WEST", "a"))
	d.await("east=b west=a", "all.yaml", `cluster name "WEST"`)
}

func TestAKubernetesMount(t *testing.T) {
	d := begin(t)
	mount := func(version string, files map[string]string) {
		t.Helper()
		d.must(os.Mkdir(d.file(version), 0o755))
		for name, text := range files {
			d.must(os.WriteFile(filepath.Join(d.file(version), name), []byte(text), 0o644))
		}
		d.must(os.Symlink(version, d.file("..data_tmp")))
		d.must(os.Rename(d.file("..data_tmp"), d.file("..data")))
	}
	mount("..2024_1", map[string]string{"east.yaml": clusterText("east", "a"), "west.yaml": clusterText("west", "a")})
	for _, name := range []string{"east.yaml", "west.yaml"} {
		d.must(os.Symlink(filepath.Join("..data", name), d.file(name)))
	}
	d.await("east=a west=a")
	mount("..2024_2", map[string]string{"east.yaml": clusterText("east", "b"), "west.yaml": clusterText("west", "b")})
	d.must(os.RemoveAll(d.file("..2024_1")))
	d.await("east=b west=b")
	mount("..2024_3", map[string]string{"east.yaml": clusterText("east", "c")})
	d.must(os.Remove(d.file("west.yaml"))) // as the kubelet does, after the swap
	d.await("east=c")
	if _, err := d.store.Write(t.Context(), configstore.Write{Object: &catalog.Cluster{Name: "east", Network: "z", StaleAfter: catalog.DefaultStaleAfter}}); !errors.Is(err, configstore.ErrReadOnly) || !strings.Contains(err.Error(), "change it where it comes from") {
		t.Errorf("write to a mount: %v; want ErrReadOnly", err)
	}
}

func TestTheDirectoryIsALinkThatIsSwapped(t *testing.T) {
	parent := t.TempDir()
	d := &directory{t: t, path: filepath.Join(parent, "current")}
	for _, version := range []string{"v1", "v2"} {
		d.must(os.Mkdir(filepath.Join(parent, version), 0o755))
		d.must(os.WriteFile(filepath.Join(parent, version, "east.yaml"), []byte(clusterText("east", version)), 0o644))
	}
	d.must(os.Symlink("v1", d.path))
	d.store = open(t, d.path)
	d.Follower = storetest.Follow(t, d.store)
	d.await("east=v1")
	d.must(os.Symlink("v2", filepath.Join(parent, "next")))
	d.must(os.Rename(filepath.Join(parent, "next"), d.path))
	d.await("east=v2")
	d.write("west.yaml", clusterText("west", "a"))
	d.await("east=v2 west=a")
}

func TestADirectoryThatVanishesIsAFailure(t *testing.T) {
	d := begin(t, "east.yaml", clusterText("east", "a"))
	d.await("east=a")
	d.must(os.Rename(d.path, d.path+".away"))
	d.awaitFailure("no such file or directory")
	d.await("east=a")
	d.must(os.Mkdir(d.path, 0o755)) // as a mount point is, when nothing is mounted
	d.awaitFailure("was replaced by an empty directory")
	d.await("east=a")
	d.write("west.yaml", clusterText("west", "a"))
	d.await("west=a")
}

func TestAnObjectInTwoFilesIsRefusedNamingBoth(t *testing.T) {
	d := begin(t, "one.yaml", clusterText("east", "a"), "other.yaml", clusterText("west", "a"))
	d.await("east=a west=a")
	d.write("two.yaml", clusterText("east", "b"))
	d.await("east=a west=a", "Cluster east is in several files", "one.yaml, two.yaml")
	d.must(os.Remove(d.file("one.yaml")))
	d.await("east=b west=a")
}

func TestWhatIsNotRead(t *testing.T) {
	d := begin(t, "east.yaml", clusterText("east", "a"), ".hidden.yaml", clusterText("a", "a"), "west.yaml~", clusterText("b", "a"), ".west.yaml.swp", "x",
		"#west.yaml#", clusterText("c", "a"), "west.yaml.bak", clusterText("d", "a"), "README.md", "kind: {", "4913", "")
	d.must(os.Mkdir(d.file("deeper.yaml"), 0o755))
	d.must(os.WriteFile(d.file("deeper.yaml/a.yaml"), []byte(clusterText("e", "a")), 0o644))
	d.await("east=a")
	d.write("west.yml", clusterText("west", "a"))
	d.await("east=a west=a")
}

func TestFilesThatCanNotBeRead(t *testing.T) {
	d := begin(t, "east.yaml", clusterText("east", "a"), "secret.yaml", clusterText("west", "a"))
	d.must(syscall.Mkfifo(d.file("pipe.yaml"), 0o644))
	d.must(os.Symlink("nowhere", d.file("dangling.yaml")))
	d.must(os.WriteFile(d.file("huge.yaml"), nil, 0o644))
	d.must(os.Truncate(d.file("huge.yaml"), MaxFileBytes+1))
	d.await("east=a west=a", "pipe.yaml is not a file", "dangling.yaml", "no such file", "huge.yaml is 16777217 bytes long; a file has at most 16777216")
	d.write("east.yaml", clusterText("east", "b"))
	d.await("east=b west=a", "pipe.yaml")
}

func TestADirectoryThatIsNotThere(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "nowhere"))
	err := s.Watch(t.Context(), "", func(configstore.Change) error { return nil })
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("watch: %v, want that the directory is not there", err)
	}
	if _, err := s.Write(t.Context(), configstore.Write{Object: &catalog.Cluster{Name: "east", Network: "a", StaleAfter: catalog.DefaultStaleAfter}}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("write: %v, want that the directory is not there", err)
	}
}

func TestWithoutEventsTheDirectoryIsLookedAt(t *testing.T) {
	s := open(t, t.TempDir())
	w := newWatch(s)
	changes := make(chan configstore.Change)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- w.run(ctx, "", func(c configstore.Change) error { changes <- c; return nil })
	}()
	if first := <-changes; !first.Full || len(first.Objects) != 0 {
		t.Errorf("first change %+v, want the empty full set", first)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "east.yaml"), []byte(clusterText("east", "a")), 0o644); err != nil {
		t.Fatal(err)
	}
	if second := <-changes; len(second.Objects) != 1 {
		t.Errorf("second change %+v, want Cluster east", second)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

// TestAChangeReadsOnlyWhatChanged counts the files that are read for one change.
func TestAChangeReadsOnlyWhatChanged(t *testing.T) {
	s := open(t, t.TempDir())
	for i := range 500 {
		if err := os.WriteFile(filepath.Join(s.dir, fmt.Sprintf("c%d.yaml", i)), []byte(clusterText(fmt.Sprintf("c%d", i), "a")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w := newWatch(s)
	if err := w.look(); err != nil {
		t.Fatal(err)
	}
	w.everything = true // as for the rescan: nothing has changed, so nothing is read
	if err := w.scan(); err != nil || len(w.dirty) != 0 {
		t.Errorf("%d files would be read again (%v), want none", len(w.dirty), err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "c7.yaml"), []byte(clusterText("c7", "bb")), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := w.scan(); err != nil || len(w.dirty) != 1 || !w.dirty["c7.yaml"] {
		t.Errorf("%v would be read again (%v), want c7.yaml", w.dirty, err)
	}
}
