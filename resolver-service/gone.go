package resolverservice

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
)

// gone is how to find out whether an instance of before a restart is gone. Who has no gateway
// need not have a way to instances, and can't tell.
func (s *Service) gone() func(context.Context, netip.AddrPort) bool {
	if s.listeners["gateway"] == nil {
		return nil
	}
	return refuses
}

// refuses tells whether a sidecar is gone for certain: its machine says that nobody listens
// there. No answer is no proof.
func refuses(ctx context.Context, address netip.AddrPort) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address.String())
	if err != nil {
		return errors.Is(err, syscall.ECONNREFUSED)
	}
	conn.Close()
	return false
}
