//go:build race

package peering

import "runtime"

// The race detector has one context for the timers of a bubble of testing/synctest, which
// two threads must not use at a time (https://go.dev/issue/78156). It finds races on one
// thread as well.
var _ = runtime.GOMAXPROCS(1)
