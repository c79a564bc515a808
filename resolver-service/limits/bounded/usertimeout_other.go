//go:build !linux

package bounded

import (
	"net"
	"time"
)

// setUserTimeout does nothing where there is no such option.
func setUserTimeout(net.Conn, time.Duration) {}
