// Package system tests Isthmus as a whole: clusters on loopback with real daprd, real
// Sentry and the isthmus binary. Each test reads as a rule.
package system

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// shared is the pair of clusters of all tests that break nothing: each keeps to a
// namespace of its own.
var shared struct {
	sync.Mutex
	*mesh
}

func TestMain(m *testing.M) {
	meshtest.Together(4) // most wait for what has to happen
	code := m.Run()
	if shared.mesh != nil {
		if err := shared.close(); err != nil {
			fmt.Fprintln(os.Stderr, "close the shared clusters:", err)
			code = max(code, 1)
		}
	}
	os.Exit(meshtest.Leaks(code))
}

// sharedMesh returns the shared clusters and a namespace of the test's own.
func sharedMesh(t *testing.T) *mesh {
	t.Helper()
	needsBinaries(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.mesh == nil {
		dir, err := os.MkdirTemp("", "isthmus-system-")
		if err != nil {
			t.Fatal(err)
		}
		m, err := startMesh(t.Context(), dir, meshOptions{})
		if err != nil {
			t.Fatal(err)
		}
		m.removes = true
		shared.mesh = m
		if err := m.meet(t); err != nil {
			t.Fatal(err)
		}
	}
	return shared.mesh
}

// ownMesh returns two clusters that the test alone has, to break them.
func ownMesh(t *testing.T, o meshOptions) *mesh {
	t.Helper()
	needsBinaries(t)
	m, err := startMesh(t.Context(), t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.close(); err != nil {
			t.Error(err)
		}
	})
	if err := m.meet(t); err != nil {
		t.Fatal(err)
	}
	return m
}

// needsBinaries fails a test when what it runs is not built, and leaves it out in a
// short run.
func needsBinaries(t *testing.T) {
	t.Helper()
	programstest.World(t, "daprd", "sentry", "isthmus")
}

var quiet = slog.New(slog.DiscardHandler)
