package serverstest

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"
)

// DaprChart is the directory of Dapr's own chart, which is in the module that the sidecar is built
// from. root is the directory of the repository.
func DaprChart(t testing.TB, root string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "github.com/dapr/dapr")
	cmd.Dir = filepath.Join(root, "components/daprd")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("find Dapr's chart: %v", err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(module.Dir, "charts/dapr")
}

// DaprDefinitions are the files with the custom resources of Dapr.
func DaprDefinitions(t testing.TB, root string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(DaprChart(t, root), "crds/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d definitions in Dapr's chart, %v", len(files), err)
	}
	return files
}
