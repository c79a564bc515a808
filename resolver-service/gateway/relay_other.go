//go:build !linux

package gateway

func newRelay(cfg relayConfig) (relay, error) { return newCopyRelay(cfg) }

// Loops is how many processors of Go's runtime a gateway keeps from other goroutines
// while it waits: none here.
func Loops() int { return 0 }
