package stock

import (
	"log/slog"
	"os"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/faults/network"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

func TestMain(m *testing.M) {
	os.Exit(network.Own(func() int {
		return meshtest.Leaks(m.Run())
	}))
}

var quiet = slog.New(slog.DiscardHandler)
