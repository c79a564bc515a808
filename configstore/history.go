package configstore

import (
	"context"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Historian is a store that keeps what objects were.
type Historian interface {
	// History returns what the store still knows an object to have been, newest first
	// and at most so many; ErrNotFound where it knows nothing.
	History(ctx context.Context, key catalog.Key, most int) ([]Past, error)
}

// Past is what an object was from one write to the next.
type Past struct {
	Object   catalog.Object // nil where it was deleted, or could not be used
	Revision string
	Deleted  bool
	At       time.Time // of the write; zero where the store does not keep it
	Err      error     // why it could not be used
}
