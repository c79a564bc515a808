package faults

import (
	"fmt"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/tests/faults/network"
)

// Where ISTHMUS_FAULTS_DIR names a directory, the logs of all processes stay there, by
// cluster; it must be a new one for each run.
func TestMain(m *testing.M) {
	os.Exit(network.Own(func() int {
		code := m.Run()
		fmt.Print(measured.table())
		if code == 0 {
			if err := goleak.Find(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}
		return code
	}))
}

var quiet = slog.New(slog.DiscardHandler)
