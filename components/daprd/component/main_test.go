package component

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// Dapr starts some goroutines when it is imported; they are not ours.
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent(),
		// Of the library under Dapr's mDNS resolver, which goes on for seconds after its end.
		goleak.IgnoreAnyFunction("github.com/grandcat/zeroconf.(*Server).probe"))
}
