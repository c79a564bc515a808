package dial

import (
	"strings"
	"testing"
	"time"
)

// TestTimesGoByTheMonotonicClock holds that setting a machine's clock moves no time that is counted from
// processStart.
func TestTimesGoByTheMonotonicClock(t *testing.T) {
	if !strings.Contains(processStart.String(), " m=") {
		t.Errorf("%s has no monotonic reading", processStart)
	}
	if time.Since(processStart) < 59*365*24*time.Hour {
		t.Errorf("%s is not long before the start", processStart)
	}
}
