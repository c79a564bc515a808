package clusters

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// before is a directory with the release that an upgrade begins at: its charts, and binaries in bin.
var before = flag.String("before", "", "directory of a worktree with the release to upgrade from, built")

func TestMain(m *testing.M) { os.Exit(meshtest.Leaks(m.Run())) }

// patience is how long a cluster, or what is installed in it, may take to be there.
const patience = 5 * time.Minute

// need leaves tests out but where "make test-install" runs them: they take many minutes.
func need(t *testing.T) {
	t.Helper()
	if os.Getenv("ISTHMUS_TEST_INSTALL") == "" {
		t.Skip("whole clusters: run make test-install")
	}
	if os.Geteuid() != 0 {
		t.Fatal("containerd and the kubelet need root: sudo make test-install")
	}
}

// ends has something end with the test.
func ends(t *testing.T, end func() error) {
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}
