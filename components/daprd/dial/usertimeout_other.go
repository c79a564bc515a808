//go:build !linux

package dial

import "net"

// patient is Linux' alone: elsewhere gRPC sets no such limit.
func patient(net.Conn) {}
