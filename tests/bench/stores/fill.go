package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	resolverservice "github.com/isthmus-mesh/isthmus/resolver-service"
)

// each calls do with parts of the objects, so many at a time and so many times at once.
func each(ctx context.Context, objects []catalog.Object, batch, atOnce int, do func(context.Context, []catalog.Object) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for part := range slices.Chunk(objects, batch) {
		group.Go(func() error { return do(ctx, part) })
	}
	return group.Wait()
}

// write fills a store by Isthmus' own code: so many objects at a time, so many times at
// once.
func write(ctx context.Context, store configstore.Writer, objects []catalog.Object, batch, atOnce int) error {
	return each(ctx, objects, batch, atOnce, func(ctx context.Context, objects []catalog.Object) error {
		writes := make([]configstore.Write, len(objects))
		for i := range objects {
			writes[i].Object = objects[i]
		}
		_, err := store.Write(ctx, writes...)
		return err
	})
}

// filler fills a store that is opened as the service opens it.
func filler(dir string, settings map[string]any, batch, atOnce int) func(context.Context, []catalog.Object) error {
	return func(ctx context.Context, objects []catalog.Object) (err error) {
		text, err := yaml.Marshal(map[string]any{"store": settings})
		if err != nil {
			return err
		}
		path := filepath.Join(dir, "fill.yaml")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return err
		}
		cfg, err := resolverservice.LoadStore(path)
		if err != nil {
			return err
		}
		store, err := cfg.Open(configstore.Scope{}, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, store.Close()) }()
		return write(ctx, store, objects, batch, atOnce)
	}
}
