package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/configstore"
)

// fail is the error of something that was tried: what, where, why, and what to do. The
// context is that of Life.Do.
func (s *Store) fail(ctx context.Context, what string, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		if errors.Is(cause, configstore.ErrClosed) {
			return configstore.ErrClosed
		}
		return fmt.Errorf("store etcd: %s at %s: %w", what, s.client.Servers(), cause)
	}
	return fmt.Errorf("store etcd: %s at %s: %w", what, s.client.Servers(), s.client.Explain(err))
}

// isTooLarge tells whether the server refused a request for its length.
func isTooLarge(err error) bool {
	return rpctypes.Error(err) == rpctypes.ErrRequestTooLarge ||
		status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max")
}
