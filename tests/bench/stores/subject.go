package main

import (
	"context"
	"errors"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// errMissing says that a store's server is not on this machine, and how to get it.
var errMissing = errors.New("no server")

// kind is a sort of store that can be measured.
type kind struct {
	name  string
	start func(ctx context.Context, dir string) (*subject, error)
}

// kinds are all, in the order of the table. What is busiest at rest comes last, since
// every server stays up to the end.
var kinds = []kind{
	{"embedded", startEmbedded},
	{"file", startFile},
}

// subject is one store on its running server.
type subject struct {
	settings map[string]any // the store's part of isthmus.yaml

	// fill puts objects into the empty store, before any service runs.
	fill func(ctx context.Context, objects []catalog.Object) error

	// put writes an object past the service, with the store's own client, as somebody
	// would by hand. It is nil where only the service can write.
	put func(ctx context.Context, object catalog.Object) error

	// watch is the smallest program that watches an object with the store's own client.
	// It calls seen with the object's bytes when it begins, and then when they change.
	// It is nil where nobody but the service can watch.
	watch func(ctx context.Context, key catalog.Key, seen func([]byte)) error

	// requests is how many requests of the service the server has counted so far. It is
	// nil where there is no server, or it does not count.
	requests func(ctx context.Context) (int, error)

	port  int // where the server listens; 0 without one
	close func() error
}
