package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/configstore"
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
