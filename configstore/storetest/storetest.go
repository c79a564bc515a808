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
	"fmt"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/configstore"
)

// Backend is one empty store under test. What a backend can't do is left nil, and the
// specifications that need it are skipped by name. Every backend of one server may share
// it, each below a prefix of its own: one specification runs at a time.
type Backend struct {
	// Open opens the store. Opened again after Close it has the same objects. The test
	// closes what it opened, by whichever of these functions.
	Open func(t testing.TB) configstore.ReadWriter

	// Shared tells whether it can be open twice at once.
	Shared bool

	// PutRaw puts any value under any key, past the store's own checks; nil deletes. The
	// path has no prefix; the backend adds its own. A store must be open, which is given.
	// What is put reaches the server by a way of its own, also while the link is cut or
	// slow: it is what other clients of the server do.
	PutRaw func(t testing.TB, s configstore.ReadWriter, path string, value []byte)

	// Fail makes the source unreachable for an open store, until mend is called. A store
	// with a server has the link refused.
	Fail func(t testing.TB, s configstore.ReadWriter) (mend func())

	// Restart ends the server, with SIGKILL if kill and otherwise as its operators do,
	// and starts it again with its data, while a store is open. It returns when the
	// server serves again.
	Restart func(t testing.TB, kill bool)

	// Forgets tells that a server that is killed may lose what it has acknowledged.
	Forgets bool

	// Cut makes the link to the server drop every packet silently, until mend is called.
	Cut func(t testing.TB) (mend func())

	// Slow makes the link delay every packet by so much each way, until mend is called.
	Slow func(t testing.TB, by time.Duration) (mend func())

	// Rewind takes a backup of the server now; restore puts the server back to it, as its
	// operators do, and returns when it serves again.
	Rewind func(t testing.TB) (restore func())

	// Compact makes the server forget its history of changes.
	Compact func(t testing.TB)

	// Denied opens the same store with credentials that the server does not accept.
	Denied func(t testing.TB) configstore.ReadWriter

	// Blind opens the same store with credentials that may read everything in it but the
	// one key, whose path has no prefix.
	Blind func(t testing.TB, path string) configstore.ReadWriter

	// Unwritable opens the same store with credentials that may read and not write.
	Unwritable func(t testing.TB) configstore.ReadWriter

	// WrongCA opens the same store by TLS with a CA that has not signed the server's
	// certificate.
	WrongCA func(t testing.TB) configstore.ReadWriter

	// Scoped opens the same store for a scope.
	Scoped func(t testing.TB, s configstore.Scope) configstore.ReadWriter

	// Elsewhere opens a store with objects of its own at another place.
	Elsewhere func(t testing.TB) configstore.ReadWriter

	// Servers is how errors name the server: the host:port of every link to it that the
	// functions above use. One of them stands in every error that the server or a link
	// causes.
	Servers []string

	// Secrets are the passwords and tokens of all credentials above, wrong ones too.
	// They may never stand in an error.
	Secrets []string

	// MaxBatch is how many objects can be written at once; 0 for any number.
	MaxBatch int

	// MaxObject is how many bytes of JSON an object can have.
	MaxObject int

	// Many is how many objects a huge set has; 10,000 where it is 0.
	Many int
	// Resumes tells whether a reader that missed little is told just that, rather
	// than given the full set again.
	Resumes bool
}

// orSkip skips a specification that needs what a backend does not have.
func orSkip(t testing.TB, has bool, why string) {
	t.Helper()
	if !has {
		t.Skip(why)
	}
}

// atOnce skips a specification that needs so many writes to be made at once.
func (b Backend) atOnce(t testing.TB, n int) {
	t.Helper()
	orSkip(t, b.MaxBatch == 0 || b.MaxBatch >= n, fmt.Sprintf("this store makes at most %d writes at once", b.MaxBatch))
}

// Run holds a backend to the specification.
func Run(t *testing.T, open func(t *testing.T) Backend) {
	for _, group := range [][]specification{reading(), resuming(), invalidObjects(), writing(), sizes(), remembering(), lifecycle(), scopes(), outages(), backups(), access(), probing(), identities()} {
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
