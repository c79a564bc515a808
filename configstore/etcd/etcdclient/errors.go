package etcdclient

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/internal/settings"
)

// Explain adds to an error of the server what its operator can do. Where the server
// refuses our credentials, the error is also configstore.ErrDenied.
func (c *Client) Explain(err error) error {
	switch rpctypes.Error(err) {
	case rpctypes.ErrPermissionDenied:
		return fmt.Errorf("%w (%w); etcd gives a range of keys whole or not at all: let a role of %s have all of it, with \"etcdctl role grant-permission\"", Plain(err), configstore.ErrDenied, c.who())
	case rpctypes.ErrAuthFailed:
		return fmt.Errorf("%w (%w): look after username and password", Plain(err), configstore.ErrDenied)
	case rpctypes.ErrUserEmpty:
		return fmt.Errorf("%w (%w): the server wants to know who we are; set username and password, or a certificate in tls", Plain(err), configstore.ErrDenied)
	case rpctypes.ErrInvalidAuthToken:
		return fmt.Errorf("%w: it ran out and another is got at the next try", Plain(err))
	case rpctypes.ErrNoSpace:
		return fmt.Errorf("%w: the server refuses writes and can still be read; make room with \"etcdctl compact\" and \"etcdctl defrag\", then \"etcdctl alarm disarm\"", Plain(err))
	case rpctypes.ErrNoLeader:
		return fmt.Errorf("%w: this member can reach no majority of the cluster; see \"etcdctl endpoint status --cluster\"", Plain(err))
	}
	switch code := status.Code(err); {
	case errors.Is(err, context.DeadlineExceeded), code == codes.DeadlineExceeded:
		return fmt.Errorf("no answer within %s; see whether the server has a leader and a fast disk, or give timeout more", c.Config.Timeout)
	case code == codes.Unavailable:
		return fmt.Errorf("can't be reached: %w", tlsAdvice.To(Plain(err)))
	}
	return Plain(err)
}

var tlsAdvice = settings.Advice{
	CA:     "set tls.ca to the certificate of the authority that signed the members'",
	Name:   "set tls.serverName to a name that the members' certificates have",
	Plain:  "if it always hangs up, it speaks no TLS there: write http:// in endpoints, and leave tls out",
	Secure: "if it always hangs up, it wants TLS: write https:// in endpoints",
}

// who is the user that the server takes us for.
func (c *Client) who() string {
	if c.Config.Username != "" {
		return "user " + c.Config.Username
	}
	return "the user that our certificate names"
}

// Plain is an error of the server without gRPC's wrapping. Text of it stays as it is.
func Plain(err error) error {
	if st, ok := status.FromError(err); ok && st.Code() != codes.OK {
		return errors.New(st.Message())
	}
	return err
}
