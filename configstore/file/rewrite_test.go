package file

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// BenchmarkChangeAfterARewrite is how long a change takes to its reader while 10,000 objects beside
// it have just been written anew: in one file, or each in its own. It reports the median of the
// same change in a quiet store, and the ratio.
func BenchmarkChangeAfterARewrite(b *testing.B) {
	const objects = 10_000
	for _, c := range []struct {
		name  string
		write func(dir string, round int) error
	}{
		{"OneFile", func(dir string, round int) error { return replace(dir, "all.yaml", selections(0, objects, round)) }},
		{"OneFileInPlace", func(dir string, round int) error {
			return os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(selections(0, objects, round)), 0o644)
		}},
		{"ManyFiles", func(dir string, round int) (err error) {
			for i := range objects {
				err = errors.Join(err, replace(dir, fmt.Sprintf("app-%d.yaml", i), selections(i, i+1, round)))
			}
			return err
		}},
		{"ManyFilesInPlace", func(dir string, round int) (err error) {
			for i := range objects {
				err = errors.Join(err, os.WriteFile(filepath.Join(dir, fmt.Sprintf("app-%d.yaml", i)), []byte(selections(i, i+1, round)), 0o644))
			}
			return err
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			dir := b.TempDir()
			must := func(err error) {
				if err != nil {
					b.Fatal(err)
				}
			}
			must(c.write(dir, 0))
			must(replace(dir, "east.yaml", clusterText("east", "n0")))
			networks, rewritten := make(chan string, 100), make(chan string, 100) // of east; of the last selection
			s := open(b, dir)
			go s.Watch(b.Context(), "", func(c configstore.Change) error {
				for _, o := range c.Objects {
					switch o := o.Object.(type) {
					case *catalog.Cluster:
						networks <- o.Network
					case *catalog.AppEndpoints:
						if o.App.ID == fmt.Sprintf("app-%d", objects-1) {
							rewritten <- o.Endpoints[0].App.ID
						}
					}
				}
				return nil
			})
			await := func(from chan string, want string) {
				for <-from != want {
				}
			}
			n := 0
			change := func() time.Duration {
				n++
				began, network := time.Now(), fmt.Sprint("n", n)
				must(replace(dir, "east.yaml", clusterText("east", network)))
				await(networks, network)
				return time.Since(began)
			}
			await(rewritten, "callee-0")
			var quiet, after time.Duration
			for round := 1; b.Loop(); round++ {
				for range 20 {
					quiet += change() / 20
				}
				must(c.write(dir, round))
				after += change()
				await(rewritten, fmt.Sprint("callee-", round))
			}
			b.ReportMetric(float64(quiet.Microseconds())/1000/float64(b.N), "quiet-ms")
			b.ReportMetric(float64(after.Microseconds())/1000/float64(b.N), "after-ms")
			b.ReportMetric(float64(after)/float64(quiet), "ratio")
		})
	}
}

// TestNoChangeWaitsForALongFile holds the reading of a long file up. Changes of other files come
// through, but no object is doubled or lost that moves to or from the long file.
func TestNoChangeWaitsForALongFile(t *testing.T) {
	const objects = 2_200 // of 500 bytes: more than largeFile
	d := begin(t, "all.yaml", selections(0, objects, 0), "east.yaml", clusterText("east", "a"), "moved.yaml", selections(objects, objects+1, 0))
	d.await("east=a")
	d.store.parsing.Lock()
	unlock := sync.OnceFunc(d.store.parsing.Unlock)
	t.Cleanup(unlock)
	d.write("moved.yaml", "") // its object moves to the long file, and the first one of that moves out
	d.must(replace(d.path, "all.yaml", selections(1, objects+1, 1)))
	d.must(replace(d.path, "first.yaml", selections(0, 1, 1)))
	d.must(replace(d.path, "east.yaml", clusterText("east", "b")))
	d.await("east=b")
	d.must(os.Remove(d.file("moved.yaml")))
	d.must(replace(d.path, "east.yaml", clusterText("east", "c")))
	d.await("east=c")
	unlock()
	d.AwaitStatus("every selection of round 1", func(configstore.Status) bool {
		rounds := map[string]string{}
		for _, c := range d.All() {
			for _, o := range c.Objects {
				if o, is := o.Object.(*catalog.AppEndpoints); is {
					rounds[o.App.ID] = o.Endpoints[0].App.ID
				}
			}
		}
		for i := range objects + 1 {
			if rounds[fmt.Sprint("app-", i)] != "callee-1" && i < objects {
				return false
			}
		}
		return true
	})
	for _, c := range d.All() {
		if len(c.Deleted)+len(c.Refused) > 0 {
			t.Errorf("deleted %v, refused %v; want neither", c.Deleted, c.Refused)
		}
	}
}

// TestAfterARewriteAChangeCostsItself counts the files that are read and the objects that are
// delivered for the change after a rewrite of all.
func TestAfterARewriteAChangeCostsItself(t *testing.T) {
	s := open(t, t.TempDir())
	w := newWatch(s)
	look := func(files int, network string) configstore.Change {
		for i := range files {
			if err := replace(s.dir, fmt.Sprintf("app-%d.yaml", i), selections(i, i+1, len(network))); err != nil {
				t.Fatal(err)
			}
		}
		if err := replace(s.dir, "east.yaml", clusterText("east", network)); err != nil {
			t.Fatal(err)
		}
		w.everything, w.whole = true, true
		if err := w.look(); err != nil {
			t.Fatal(err)
		}
		change, _ := w.index.change(false)
		return change
	}
	look(500, "a")
	look(500, "bb")
	before := maps.Clone(s.parsed)
	if change := look(0, "ccc"); len(change.Objects) != 1 {
		t.Errorf("a change of %d objects, want 1", len(change.Objects))
	}
	for name, p := range s.parsed {
		if name != "east.yaml" && p != before[name] {
			t.Errorf("%s was read again", name)
		}
	}
}

// selections are objects of three endpoints each; a round is unlike the one before in each.
func selections(from, to, round int) string {
	var text strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&text, "---\napiVersion: isthmus.dev/v1alpha1\nkind: AppEndpoints\nmetadata: {namespace: shop, name: app-%d}\nspec:\n  endpoints:\n", i)
		for k := range 20 {
			fmt.Fprintf(&text, "  - app: callee-%d\n", round+k)
		}
	}
	return text.String()
}

// replace puts a file into place by a rename.
func replace(dir, name, text string) error {
	next := filepath.Join(dir, ".next")
	if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(dir, name))
}
