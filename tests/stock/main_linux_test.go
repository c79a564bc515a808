package stock

import (
	"fmt"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/tests/faults/network"
)

func TestMain(m *testing.M) {
	os.Exit(network.Own(func() int {
		code := m.Run()
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
