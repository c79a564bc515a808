package hostile

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

const mebi = 1 << 20

// usage is what a process holds.
type usage struct {
	resident, peak int64 // bytes; the peak since forgetPeak
	descriptors    int
}

// String is the usage for people.
func (u usage) String() string {
	return fmt.Sprintf("%d MiB, %d MiB at most, %d descriptors", u.resident/mebi, u.peak/mebi, u.descriptors)
}

func usageOf(t testing.TB, p *sandbox.Process) (u usage) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d", p.PID())
	text, err := os.ReadFile(dir + "/status")
	if err != nil {
		t.Fatalf("%s has ended: %v\n%s", p.Name(), err, p.Tail(30))
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		var kib int64
		switch _, err := fmt.Sscan(value, &kib); {
		case err != nil:
		case name == "VmRSS":
			u.resident = kib << 10
		case name == "VmHWM":
			u.peak = kib << 10
		}
	}
	open, err := os.ReadDir(dir + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	u.descriptors = len(open)
	return u
}

// forgetPeak has the kernel measure the peak anew.
func forgetPeak(t testing.TB, p *sandbox.Process) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.PID()), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}

// returns waits until a process holds about as many descriptors as before an attack.
func returns(t *testing.T, p *sandbox.Process, before usage) {
	t.Helper()
	if t.Failed() {
		return // and it is known why
	}
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if now := usageOf(t, p); now.descriptors > before.descriptors+50 {
			return fmt.Errorf("%s: after the attack it holds %s, and before %s", p.Name(), now, before)
		}
		return nil
	})
}

// logged is what a process has logged.
func logged(t testing.TB, p *sandbox.Process) string {
	t.Helper()
	text, err := os.ReadFile(p.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// lines is how many lines a process has logged.
func lines(t testing.TB, p *sandbox.Process) int { return strings.Count(logged(t, p), "\n") }
