package component

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// Dapr starts some goroutines when it is imported; they are not ours.
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}
