// Package configstore is the contract of the stores that hold a cluster's objects: how they are
// watched and how they are written. It has no backend: each has a folder of its own, and package
// configstore/open knows them all.
//
// # Promises of a store to its watchers
//
//   - The full set comes first: the first [Change] of a Watch is Full, unless the Watch goes on
//     from a version that the store still knows.
//   - Then changes, in the order of the store, none lost and none twice. A batch arrives together.
//   - A Watch that goes on from a version delivers the changes since at once, even none. So its
//     reader knows that the store is there.
//   - Failing is not empty. A store that can't be read ends the Watch with an error. Only a
//     deletion that the store reports is one.
//   - A bad object is refused by name, and the rest stand. Its last good object stays with its
//     readers.
//   - Objects derived from documents of other standards come by a Watch too, unless one of the same
//     name is written; see package derived. A [Reader] has the written objects only.
//   - A slow reader holds nobody up, nothing queues for it, and it gets the newest state next.
//
// Package configstore/storetest holds every backend to this.
package configstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Version is a place in a store's sequence of changes. It means something only to the
// backend that made it. The empty Version is before everything.
type Version string

// Stored is an object and the revision of it that the store holds.
type Stored struct {
	Object   catalog.Object
	Revision string // changes when the object does; never empty
}

// Change is the news from a store. It is the reader's once delivered, but the objects in it are
// shared and immutable.
type Change struct {
	// Full says that Objects is the complete set: what it does not hold is gone, but
	// for what Refused names.
	Full    bool
	Objects []Stored
	Deleted []catalog.Key

	// Refused is everything in the store that can't be used, complete in every Change.
	// The last good object of such a key stands.
	Refused []Refusal

	// Version is where a later Watch can go on from.
	Version Version
}

// Refusal is something in a store that can't be used.
type Refusal struct {
	Key   catalog.Key // zero where it could not be told
	Where string      // the file, or the key in the store
	Err   error
}

// name is the object where it could be told, and otherwise its place.
func (r Refusal) name() string {
	if r.Key == (catalog.Key{}) {
		return r.Where
	}
	return r.Key.String()
}

// Store is the side of a store that is read. Its methods may be called by many at once.
type Store interface {
	// Watch calls deliver with the state of the store and then with its changes, on
	// its own goroutine and one at a time, until the context ends, the store is
	// closed, the source fails or deliver returns an error; it returns the reason,
	// which is never nil. deliver may block: it then holds up this Watch only.
	Watch(ctx context.Context, from Version, deliver func(Change) error) error

	// Close ends every Watch and waits for it.
	Close() error
}

// Reader looks at a store once, without a Watch. A copy, or a check, takes no more.
type Reader interface {
	// Get returns an object, ErrNotFound, or ErrInvalid and why the one that is there
	// can't be used. It then has the revision alone, where the store can tell it, so
	// that who replaces it can say what.
	Get(ctx context.Context, key catalog.Key) (Stored, error)

	// List returns every object, ordered by key, and what can't be used.
	List(ctx context.Context) ([]Stored, []Refusal, error)
}

// Writer is the side of a store that is written, and read before a write.
type Writer interface {
	Reader

	// Write makes all the writes, or none of them and returns an error. It returns the
	// new revision of each, empty for what was deleted, once they will survive a
	// crash of the store. More writes than the store can make at once are ErrTooLarge.
	Write(ctx context.Context, writes ...Write) ([]string, error)
}

// ReadWriter is a store with both sides. Whoever opens a store has one, and hands on the smaller
// interface that is needed: a Store, a Reader or a Writer.
type ReadWriter interface {
	Store
	Writer
}

// Write is one object put into place, or one deleted.
type Write struct {
	Object catalog.Object // to be put; nil to delete
	Delete catalog.Key    // to be deleted, when Object is nil

	// If is the revision that the object must have for the write to be made: Absent
	// for none, empty for any.
	If string
}

// Absent is the Write.If of an object that must not be there yet.
const Absent = "absent"

// Key is the key of the object that is written.
func (w Write) Key() catalog.Key {
	if w.Object != nil {
		return w.Object.Key()
	}
	return w.Delete
}

// Errors that a caller decides on. They come wrapped in a description of the attempt.
var (
	// ErrNotFound says that there is no such object.
	ErrNotFound = errors.New("no such object")
	// ErrConflict says that the object has another revision than Write.If: somebody
	// else has changed it. Read it again, then decide.
	ErrConflict = errors.New("changed by somebody else in the meantime; get it again, then write")
	// ErrTooLarge says that an object, or a batch of writes, is larger than the store
	// can hold.
	ErrTooLarge = errors.New("too large for the store")
	// ErrReadOnly says that the store can't be written, or not this part of it.
	ErrReadOnly = errors.New("can't be written here")
	// ErrInvalid says that what should be written is not an object that can be used.
	ErrInvalid = errors.New("not valid")
	// ErrDenied says that the store's server refuses our credentials, or that they do
	// not suffice. A [Follower] asks such a server more seldom than one that is away.
	ErrDenied = errors.New("the store refuses our credentials")
	// ErrClosed says that the store has been closed.
	ErrClosed = errors.New("store is closed")
)

// CheckIf tells whether a write may be made, given the revision that the store holds:
// Absent for none.
func (w Write) CheckIf(held string) error {
	switch {
	case w.If != "" && w.If != held:
		return fmt.Errorf("%s: %w (%s)", w.Key(), ErrConflict, w.instead(held))
	case w.Object == nil && held == Absent:
		return fmt.Errorf("%s: %w", w.Key(), ErrNotFound)
	}
	return nil
}

// instead says what there is instead of what the write is for.
func (w Write) instead(held string) string {
	switch {
	case held == Absent:
		return fmt.Sprintf("it is deleted, and was at revision %s", w.If)
	case w.If == Absent:
		return fmt.Sprintf("it is there already, at revision %s", held)
	}
	return fmt.Sprintf("it is at revision %s, not %s", held, w.If)
}

// CheckWrites refuses writes that contradict each other or name no object.
func CheckWrites(writes []Write) error {
	seen := make(map[catalog.Key]bool, len(writes))
	for _, w := range writes {
		key := w.Key()
		if key == (catalog.Key{}) {
			return fmt.Errorf("a write has neither an object nor a key to delete: %w", ErrInvalid)
		}
		if seen[key] {
			return fmt.Errorf("%s is written twice at once: %w", key, ErrInvalid)
		}
		seen[key] = true
	}
	return nil
}
