package file

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

func clusterText(name, network string) string {
	return fmt.Sprintf("apiVersion: isthmus.dev/v1alpha1\nkind: Cluster\nmetadata: {name: %s}\nspec: {network: %s}\n", name, network)
}

// directory is a directory and a Follower of it.
type directory struct {
	t      *testing.T
	path   string
	store  *Store
	follow *configstore.Follower

	mu   sync.Mutex
	has  map[string]string // name to network of each Cluster
	seen []string          // everything that east has been, in order
}

// begin makes a directory with these files in it and follows it.
func begin(t *testing.T, files ...string) *directory {
	t.Helper()
	d := &directory{t: t, path: filepath.Join(t.TempDir(), "config"), has: map[string]string{}}
	if err := os.Mkdir(d.path, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(files); i += 2 {
		d.write(files[i], files[i+1])
	}
	d.store = open(t, d.path)
	d.start()
	return d
}

func (d *directory) start() {
	d.follow = configstore.NewFollower(d.store, d.apply, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() { _ = d.follow.Run(ctx) })
	d.t.Cleanup(func() {
		cancel()
		wait.Wait()
	})
}

func (d *directory) apply(c configstore.Change) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, key := range c.Deleted {
		delete(d.has, key.Name)
		if key.Name == "east" {
			d.seen = append(d.seen, "gone")
		}
	}
	for _, o := range c.Objects {
		if o, ok := o.Object.(*catalog.Cluster); ok {
			d.has[o.Name] = o.Network
			if o.Name == "east" {
				d.seen = append(d.seen, o.Network)
			}
		}
	}
	return nil
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
	clusters := map[string]string{}
	for word := range strings.FieldsSeq(want) {
		name, network, _ := strings.Cut(word, "=")
		clusters[name] = network
	}
	deadline := time.After(20 * time.Second)
	for {
		status, _, changed := d.follow.Status().Follow()
		d.mu.Lock()
		has := maps.Clone(d.has)
		d.mu.Unlock()
		if status.Synced && maps.Equal(has, clusters) && refusedAs(status, refused) {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			d.t.Fatalf("has %v, refused %v, err %v; want %v, refused %q", has, status.Refused, status.Err, clusters, refused)
		}
	}
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
	deadline := time.After(20 * time.Second)
	for {
		status, _, changed := d.follow.Status().Follow()
		if status.Err != nil && strings.Contains(status.Err.Error(), words) {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			d.t.Fatalf("status %+v; want the error %q", status, words)
		}
	}
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
	d := begin(t, "all.yaml", text)
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
	d.mu.Lock()
	defer d.mu.Unlock()
	if got := strings.Join(d.seen, " "); got != "a b" {
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
	d := &directory{t: t, path: filepath.Join(parent, "current"), has: map[string]string{}}
	for _, version := range []string{"v1", "v2"} {
		d.must(os.Mkdir(filepath.Join(parent, version), 0o755))
		d.must(os.WriteFile(filepath.Join(parent, version, "east.yaml"), []byte(clusterText("east", version)), 0o644))
	}
	d.must(os.Symlink("v1", d.path))
	d.store = open(t, d.path)
	d.start()
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
	d.await("east=a west=a", "pipe.yaml is not a file", "dangling.yaml", "no such file", "huge.yaml is 67108865 bytes long; a file has at most 67108864")
	d.write("east.yaml", clusterText("east", "b"))
	d.await("east=b west=a", "pipe.yaml")
}

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
	w := &watch{store: s, index: newIndex(s.dir), dirty: map[string]bool{}, everything: true}
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

// TestAChangeReadsOnlyWhatChanged counts the files that are read for one change.
func TestAChangeReadsOnlyWhatChanged(t *testing.T) {
	s := open(t, t.TempDir())
	for i := range 500 {
		if err := os.WriteFile(filepath.Join(s.dir, fmt.Sprintf("c%d.yaml", i)), []byte(clusterText(fmt.Sprintf("c%d", i), "a")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w := &watch{store: s, index: newIndex(s.dir), dirty: map[string]bool{}, everything: true}
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

func BenchmarkStartWith10000(b *testing.B) {
	dir := b.TempDir()
	for i := range 10_000 {
		var text strings.Builder
		fmt.Fprintf(&text, "apiVersion: isthmus.dev/v1alpha1\nkind: AppEndpoints\nmetadata: {namespace: shop, name: app-%d}\nspec:\n  endpoints:\n", i)
		for k := range 20 {
			fmt.Fprintf(&text, "  - app: callee-%d\n", k)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("app-%d.yaml", i)), []byte(text.String()), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	stop := errors.New("enough")
	for b.Loop() {
		s := open(b, dir)
		err := s.Watch(b.Context(), "", func(c configstore.Change) error {
			if len(c.Objects) != 10_000 {
				b.Fatalf("%d objects", len(c.Objects))
			}
			return stop
		})
		if !errors.Is(err, stop) {
			b.Fatal(err)
		}
	}
}

// BenchmarkRenameToDeliver is from the rename of a file, beside 10,000 others, to the
// reader's hearing of it.
func BenchmarkRenameToDeliver(b *testing.B) {
	dir := b.TempDir()
	for i := range 10_000 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("c%d.yaml", i)), []byte(clusterText(fmt.Sprintf("c%d", i), "a")), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	s := open(b, dir)
	got := make(chan struct{}, 16)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- s.Watch(ctx, "", func(configstore.Change) error { got <- struct{}{}; return nil })
	}()
	<-got
	i := 0
	for b.Loop() {
		i++
		next := filepath.Join(dir, ".next")
		if err := os.WriteFile(next, []byte(clusterText("c7", fmt.Sprintf("n%d", i))), 0o644); err != nil {
			b.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(dir, "c7.yaml")); err != nil {
			b.Fatal(err)
		}
		<-got
	}
	cancel()
	<-done
}
