//go:build !linux

package peering

import (
	"syscall"
	"time"
)

// userTimeout is Linux' alone; elsewhere the link notices silence.
func userTimeout(time.Duration) func(network, address string, c syscall.RawConn) error { return nil }
