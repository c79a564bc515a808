package configstore

import "context"

// Indexer is a store whose server can't list keys at all, or not for everybody, so that an
// index of them is kept beside the objects. Who writes objects by hand, with no means of
// Isthmus, leaves it as it was.
type Indexer interface {
	// Reindex has the index hold just the objects that are there, and every reader read
	// everything again. It returns how many objects there are.
	Reindex(ctx context.Context) (int, error)
}
