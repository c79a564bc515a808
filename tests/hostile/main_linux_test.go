package hostile

import (
	"log/slog"
	"os"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/faults/network"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

func TestMain(m *testing.M) {
	meshtest.Together(16) // the battery attacks all listeners at once, and waits most of the time
	os.Exit(network.Own(func() int { return meshtest.Leaks(m.Run()) }))
}

var quiet = slog.New(slog.DiscardHandler)

// needs fails a test if a program that it runs is not built. A short run skips the test.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	programstest.World(t, programs...)
}
