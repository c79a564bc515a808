//go:build !linux

package gateway

import (
	"context"
	"net"
)

// acceptFrom takes connections from a listener until ctx ends.
func (s *serving) acceptFrom(ctx context.Context, l net.Listener) error { return s.accept(ctx, l) }
