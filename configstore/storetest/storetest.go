// Package storetest is the specification of a config store, as tests that every backend
// must pass against its real server. A backend's test is
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) storetest.Backend { … })
//	}
//
// Each test gets a Backend of its own, with nothing in it.
package storetest

import (
	"testing"

	"github.com/isthmus-mesh/isthmus/configstore"
)

// Backend is one empty store under test. What a backend can't do is left nil, and the
// tests that need it are skipped by name.
type Backend struct {
	// Open opens the store. Opened again after Close it has the same objects. The test
	// closes what it opened.
	Open func(t testing.TB) configstore.ReadWriter

	// Shared tells whether it can be open twice at once.
	Shared bool

	// PutRaw puts any value under any key, past the store's own checks; nil deletes. A
	// store must be open, which is given.
	PutRaw func(t testing.TB, s configstore.ReadWriter, path string, value []byte)

	// Fail makes the source unreachable for an open store, until mend is called.
	Fail func(t testing.TB, s configstore.ReadWriter) (mend func())

	// Restart ends the server with no warning and starts it again, while a store is
	// open. Nil for a store with no server.
	Restart func(t testing.TB)

	// Cut makes the link to the server drop packets, until mend is called. Nil for a
	// store with no link.
	Cut func(t testing.TB) (mend func())

	// MaxBatch is how many objects can be written at once; 0 for any number.
	MaxBatch int

	// MaxObject is how many bytes of JSON an object can have.
	MaxObject int

	// Resumes tells whether a reader that missed little is told just that, rather
	// than given the full set again.
	Resumes bool
}

// Run holds a backend to the specification.
func Run(t *testing.T, open func(t *testing.T) Backend) {
	for _, group := range [][]specification{reading(), resuming(), mistakes(), writing(), living()} {
		for _, s := range group {
			t.Run(s.says, func(t *testing.T) {
				s.test(t, open(t))
			})
		}
	}
}

// specification is one thing that every store does.
type specification struct {
	says string
	test func(t *testing.T, b Backend)
}
