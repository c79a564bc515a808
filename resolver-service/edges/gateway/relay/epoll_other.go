//go:build !linux

package relay

// New starts a relay.
func New(cfg Config) (Relay, error) { return NewCopy(cfg) }

// Loops is how many processors of Go's runtime a relay keeps from other goroutines while it
// waits: none here.
func Loops() int { return 0 }
