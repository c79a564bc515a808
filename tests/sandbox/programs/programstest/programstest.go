// Package programstest is the one rule by which tests have the programs that they run: what is not
// there leaves a test out of a short run, and fails it in any other.
package programstest

import (
	"errors"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs"
)

// OrSkip ends a test that could not start something.
func OrSkip(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, programs.ErrNone) && testing.Short() {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Path is where a program is.
func Path(t testing.TB, name string) string {
	t.Helper()
	path, err := programs.Find(name)
	OrSkip(t, err)
	return path
}

// Runs tells whether a test that needs a program is run, if only to fail.
func Runs(name string) bool {
	_, err := programs.Find(name)
	return err == nil || !testing.Short()
}

// Need has programs be there.
func Need(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		Path(t, name)
	}
}

// World is Need for a test that runs whole clusters, which no short run does.
func World(t testing.TB, names ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs whole clusters: make test-all")
	}
	Need(t, names...)
}
