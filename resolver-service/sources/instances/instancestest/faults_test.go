package instancestest

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// faultVariable names the fault that a child process runs the suite with.
const faultVariable = "ISTHMUS_TEST_FAULT"

// TestFaulty is run by a child process of the next test, and is to fail there.
func TestFaulty(t *testing.T) {
	what := os.Getenv(faultVariable)
	if what == "" {
		t.Skip("runs with a fault only")
	}
	f := fault{}
	all := faults()
	if i := slices.IndexFunc(all, func(f fault) bool { return f.what == what }); i >= 0 {
		f, patience = all[i], 2*time.Second
	}
	Run(t, func(*testing.T) Backend { return backend(f) })
}

// A suite is worth what it catches, if it lets a good source pass.
func TestTheSuiteCatchesASourceThat(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pattern := func(specification string) string {
		return strings.NewReplacer(" ", "_", "-", "[-]").Replace(specification)
	}
	run := func(t *testing.T, what, specification string) string {
		args := []string{"-test.v", "-test.run", "^TestFaulty$"}
		if specification != "" {
			args[2] += "/^" + pattern(specification) + "$"
		}
		cmd := exec.CommandContext(t.Context(), self, args...)
		cmd.Env = append(os.Environ(), faultVariable+"="+what)
		out, _ := cmd.CombinedOutput() // how it ended is in there
		return string(out)
	}
	for _, f := range faults() {
		t.Run(f.what, func(t *testing.T) {
			t.Parallel()
			if out := run(t, f.what, f.caught); !strings.Contains(out, "--- FAIL: TestFaulty/"+strings.ReplaceAll(f.caught, " ", "_")) {
				t.Errorf("%q did not fail:\n%s", f.caught, out)
			}
		})
	}
	t.Run("does nothing wrong", func(t *testing.T) {
		if out := run(t, "none", ""); strings.Contains(out, "--- FAIL") || strings.Contains(out, "--- SKIP") || !strings.Contains(out, "--- PASS: TestFaulty/") {
			t.Errorf("a good source does not pass, or not everything is tried:\n%s", out)
		}
	})
}
