package main

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/catalog"
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
