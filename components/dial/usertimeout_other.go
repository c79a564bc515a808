//go:build !linux

package dial

import "net"

// extendUserTimeout does nothing here: gRPC sets TCP_USER_TIMEOUT on Linux only.
func extendUserTimeout(net.Conn) {}
