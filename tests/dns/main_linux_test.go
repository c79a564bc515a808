package dns

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/faults/network"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// shared are the clusters of all tests that break nothing.
var shared struct {
	sync.Mutex
	*lab
}

func TestMain(m *testing.M) {
	if names := os.Getenv(goClientVariable); names != "" {
		os.Exit(runGoClient(names))
	}
	os.Exit(network.Own(func() int {
		code := m.Run()
		if shared.lab != nil {
			if err := shared.close(); err != nil {
				fmt.Fprintln(os.Stderr, "close the shared clusters:", err)
				code = max(code, 1)
			}
		}
		return meshtest.Leaks(code)
	}))
}

// sharedLab returns the shared clusters.
func sharedLab(t *testing.T) *lab {
	t.Helper()
	needs(t, "isthmus", "dig", "kdig", "drill")
	shared.Lock()
	defer shared.Unlock()
	if shared.lab == nil {
		dir, err := os.MkdirTemp("", "isthmus-dns-")
		if err != nil {
			t.Fatal(err)
		}
		l, err := newLab(t.Context(), dir)
		if err != nil {
			if l != nil {
				t.Log(l.close())
			}
			t.Fatal(err)
		}
		shared.lab = l
	}
	return shared.lab
}

// needs fails a test when what it runs is not there, and leaves it out in a short run.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	network.Need(t)
	programstest.World(t, programs...)
}

var quiet = slog.New(slog.DiscardHandler)
