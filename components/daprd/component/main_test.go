package component

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// Dapr starts these goroutines on import.
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent(),
		// The library under Dapr's mDNS resolver runs for seconds after Close.
		goleak.IgnoreAnyFunction("github.com/grandcat/zeroconf.(*Server).probe"))
}
