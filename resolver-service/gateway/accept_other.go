//go:build !linux

package gateway

import "net"

// takerFrom returns how to take a connection from a listener, and how to end that.
func (s *serving) takerFrom(l net.Listener) (take func() error, closeListener func()) {
	return func() error { return s.takeFrom(l) }, func() { l.Close() }
}
