package faults

import (
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/faults/network"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// Where ISTHMUS_FAULTS_DIR names a directory, the logs of all processes stay there, by
// cluster; it must be a new one for each run.
func TestMain(m *testing.M) {
	os.Exit(network.Own(func() int {
		code := m.Run()
		fmt.Print(measured.table())
		return meshtest.Leaks(code)
	}))
}

var quiet = slog.New(slog.DiscardHandler)
