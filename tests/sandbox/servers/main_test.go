package servers

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startLimit is how long the servers of a test may take to start, all in all.
const startLimit = 5 * time.Minute
