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
	"github.com/isthmus-mesh/isthmus/settings"
)

// fail is the error of something that was tried: what, where, why, and what to do. The
// context is that of Life.Enter.
func (s *Store) fail(ctx context.Context, what string, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		if errors.Is(cause, configstore.ErrClosed) {
			return configstore.ErrClosed
		}
		return fmt.Errorf("store etcd: %s at %s: %w", what, s.servers(), cause)
	}
	return fmt.Errorf("store etcd: %s at %s: %w", what, s.servers(), s.explain(err))
}

// explain adds to an error of the server what its operator can do.
func (s *Store) explain(err error) error {
	switch rpctypes.Error(err) {
	case rpctypes.ErrPermissionDenied:
		return fmt.Errorf("%w (%w); etcd gives a range of keys whole or not at all: let a role of %s have all of it, with \"etcdctl role grant-permission\"", plain(err), configstore.ErrDenied, s.who())
	case rpctypes.ErrAuthFailed:
		return fmt.Errorf("%w (%w): look after username and password", plain(err), configstore.ErrDenied)
	case rpctypes.ErrUserEmpty:
		return fmt.Errorf("%w (%w): the server wants to know who we are; set username and password, or a certificate in tls", plain(err), configstore.ErrDenied)
	case rpctypes.ErrInvalidAuthToken:
		return fmt.Errorf("%w: it ran out and another is got at the next try", plain(err))
	case rpctypes.ErrNoSpace:
		return fmt.Errorf("%w: the server refuses writes and can still be read; make room with \"etcdctl compact\" and \"etcdctl defrag\", then \"etcdctl alarm disarm\"", plain(err))
	case rpctypes.ErrNoLeader:
		return fmt.Errorf("%w: this member can reach no majority of the cluster; see \"etcdctl endpoint status --cluster\"", plain(err))
	}
	switch code := status.Code(err); {
	case errors.Is(err, context.DeadlineExceeded), code == codes.DeadlineExceeded:
		return fmt.Errorf("no answer within %s; see whether the server has a leader and a fast disk, or give timeout more", s.config.Timeout)
	case code == codes.Unavailable:
		return fmt.Errorf("can't be reached: %w", tlsAdvice.To(plain(err)))
	}
	return plain(err)
}

var tlsAdvice = settings.Advice{
	CA:     "set tls.ca to the certificate of the authority that signed the members'",
	Name:   "set tls.serverName to a name that the members' certificates have",
	Plain:  "if it always hangs up, it speaks no TLS there: write http:// in endpoints, and leave tls out",
	Secure: "if it always hangs up, it wants TLS: write https:// in endpoints",
}

// who is the user that the server takes us for.
func (s *Store) who() string {
	if s.config.Username != "" {
		return "user " + s.config.Username
	}
	return "the user that our certificate names"
}

// plain is an error of the server without gRPC's wrapping. Text of it stays as it is.
func plain(err error) error {
	if st, ok := status.FromError(err); ok && st.Code() != codes.OK {
		return errors.New(st.Message())
	}
	return err
}

// isTooLarge tells whether the server refused a request for its length.
func isTooLarge(err error) bool {
	return rpctypes.Error(err) == rpctypes.ErrRequestTooLarge ||
		status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max")
}
