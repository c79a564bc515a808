package file

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
)

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
	storetest.BenchmarkStart(b, 10_000, func() configstore.ReadWriter { return open(b, dir) })
}

// BenchmarkRenameToDeliver has a file renamed into place, beside 10,000 others, and beside it the
// smallest program with fsnotify, which reads that file.
func BenchmarkRenameToDeliver(b *testing.B) {
	dir := b.TempDir()
	for i := range 10_000 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("c%d.yaml", i)), []byte(clusterText(fmt.Sprintf("c%d", i), "a")), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	s := storetest.Closing(b, open(b, dir))
	storetest.BenchmarkDeliver(b, s, func(o *catalog.Cluster) {
		next := filepath.Join(dir, ".next")
		err := os.WriteFile(next, []byte(clusterText(o.Name, o.Network)), 0o644)
		if err == nil {
			err = os.Rename(next, filepath.Join(dir, "east.yaml"))
		}
		if err != nil {
			b.Fatal(err)
		}
	}, func(ctx context.Context, seen chan<- time.Time) { bareWatch(ctx, b, dir, seen) })
}

func bareWatch(ctx context.Context, b *testing.B, dir string, seen chan<- time.Time) {
	b.Helper()
	events, err := fsnotify.NewWatcher()
	if err == nil {
		err = events.Add(dir)
	}
	if err != nil {
		b.Fatal(err)
	}
	path := filepath.Join(dir, "east.yaml")
	go func() {
		defer events.Close()
		for {
			select {
			case e := <-events.Events:
				if _, err := os.ReadFile(path); e.Name == path && err == nil {
					seen <- time.Now()
				}
			case <-ctx.Done():
				return
			}
		}
	}()
}

// BenchmarkWriteBeside10000 is one object written where each of 10,000 others has a file.
func BenchmarkWriteBeside10000(b *testing.B) {
	s := open(b, b.TempDir())
	writes := make([]configstore.Write, 10_000)
	for i := range writes {
		writes[i].Object = &catalog.Cluster{Name: fmt.Sprintf("c%d", i), Network: "a", StaleAfter: catalog.DefaultStaleAfter}
	}
	if _, err := s.Write(b.Context(), writes...); err != nil {
		b.Fatal(err)
	}
	long := time.Now().Add(-time.Hour)
	for i := range writes {
		if err := os.Chtimes(filepath.Join(s.dir, fmt.Sprintf("Cluster.c%d.yaml", i)), long, long); err != nil {
			b.Fatal(err)
		}
	}
	if _, _, err := s.List(b.Context()); err != nil { // so that they are known
		b.Fatal(err)
	}
	i := 0
	for b.Loop() {
		i++
		_, err := s.Write(b.Context(), configstore.Write{Object: &catalog.Cluster{Name: "c7", Network: fmt.Sprintf("n%d", i), StaleAfter: catalog.DefaultStaleAfter}})
		if err != nil {
			b.Fatal(err)
		}
	}
}
