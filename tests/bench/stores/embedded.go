package main

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/isthmus-mesh/isthmus/catalog"
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
