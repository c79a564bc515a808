package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheUnitIsTaken by systemd, and leaves the service little to do harm with.
func TestTheUnitIsTaken(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("this machine has no systemd: ", err)
	}
	text, err := os.ReadFile("../../deploy/systemd/isthmus.service")
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(t.TempDir(), "isthmus.service")
	here := strings.ReplaceAll(string(text), "/usr/local/bin/isthmus", binary(t, "isthmus"))
	const handsOver = "# LoadCredential="
	if !strings.Contains(here, handsOver) {
		t.Error("the unit does not say how to hand a key over")
	}
	here = strings.ReplaceAll(here, handsOver, handsOver[2:]) // as somebody with such a key would
	if err := os.WriteFile(unit, []byte(here), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), analyze, "verify", unit).CombinedOutput(); err != nil || strings.Contains(string(out), "isthmus.service:") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), analyze, "security", "--offline=true", "--threshold=20", unit).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
