package main

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/embedded"
)

// startEmbedded: one process has the file, so all goes through the service.
func startEmbedded(_ context.Context, dir string) (*subject, error) {
	path := filepath.Join(dir, "isthmus.db")
	return &subject{
		settings: map[string]any{"embedded": map[string]any{"path": path}},
		fill: func(ctx context.Context, objects []catalog.Object) (err error) {
			store, err := embedded.Open(path)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, store.Close()) }()
			return write(ctx, store, objects, len(objects), 1)
		},
		close: func() error { return nil },
	}, nil
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
