// Package client connects the command line to a resolver service and says in plain
// words why that failed.
package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
)

// Options say which service to ask, and as whom.
type Options struct {
	Server   string // "host:port" or "unix:///path"
	Identity string // directory with cert.pem, key.pem and ca.pem
	Insecure bool   // plain text
	// Expect is the app that the service must be: "namespace/app-id", where a "*" at
	// the end stands for any.
	Expect string
}

// ErrUse marks errors of how the command line was used.
var ErrUse = errors.New("wrong use")

// Conn is a connection to a service.
type Conn struct {
	*grpc.ClientConn
	options Options
}

// maxMessage bounds an answer; a list of every object fits.
const maxMessage = 256 << 20

// Dial prepares a connection. The first call makes it.
func Dial(ctx context.Context, o Options) (*Conn, error) {
	source, err := o.source(ctx)
	if err != nil {
		return nil, err
	}
	expect, err := expectation(o.Expect)
	if err != nil {
		return nil, err
	}
	target := o.Server
	if !strings.HasPrefix(target, "unix:") {
		target = "passthrough:///" + target
	}
	conn, err := grpc.NewClient(target,
		grpc.WithTransportCredentials(source.ClientCredentials(expect)),
		grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
	)
	if err != nil {
		return nil, fmt.Errorf("%w: --server %q: %w; want host:port or unix:///path", ErrUse, o.Server, err)
	}
	return &Conn{conn, o}, nil
}

// source is who asks.
func (o Options) source(ctx context.Context) (*identity.Source, error) {
	quiet := slog.New(slog.DiscardHandler)
	switch {
	case o.Insecure && o.Identity != "":
		return nil, fmt.Errorf("%w: --insecure and --identity exclude each other; keep one", ErrUse)
	case o.Insecure:
		return identity.New(identity.Config{Insecure: true}, catalog.App{}, quiet)
	case o.Identity == "":
		return nil, fmt.Errorf("%w: nothing says as whom to ask %s; name a directory with cert.pem, key.pem and ca.pem by --identity "+
			"(or ISTHMUS_IDENTITY), or say --insecure for a service that speaks plain text", ErrUse, o.Server)
	}
	if _, err := os.Stat(o.Identity); err != nil {
		return nil, fmt.Errorf("identity: %w; name a directory with cert.pem, key.pem and ca.pem by --identity", err)
	}
	source, err := identity.New(identity.Config{Files: &identity.Files{
		Cert: filepath.Join(o.Identity, "cert.pem"),
		Key:  filepath.Join(o.Identity, "key.pem"),
		CA:   filepath.Join(o.Identity, "ca.pem"),
	}}, catalog.App{}, quiet)
	if err != nil {
		return nil, err
	}
	return source, source.Load(ctx)
}

// expectation tells whether a server is the one that is expected.
func expectation(pattern string) (func(identity.ID) error, error) {
	start, wildcard := strings.CutSuffix(pattern, "*")
	if !strings.Contains(start, "/") {
		return nil, fmt.Errorf("%w: --server-identity %q: want namespace/app-id, or one that ends in *", ErrUse, pattern)
	}
	return func(id identity.ID) error {
		name := id.App.String()
		if name == start || wildcard && strings.HasPrefix(name, start) && id.App.ID != identity.CLIApp("").ID {
			return nil
		}
		return fmt.Errorf("it is app %s; want %s (see --server-identity)", name, pattern)
	}, nil
}

// Explain makes of a failed call's error one that says what was tried and what to do.
func (c *Conn) Explain(err error) error {
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	switch s.Code() {
	case codes.Unavailable:
		return fmt.Errorf("resolver service at %s not reached: %s; %s", c.options.Server, connectionError(s.Message()), c.advice(s.Message()))
	case codes.DeadlineExceeded:
		return fmt.Errorf("resolver service at %s gave no answer in time; is it overloaded or behind a firewall? --timeout gives it longer", c.options.Server)
	case codes.Unimplemented:
		return fmt.Errorf("what answers at %s is no resolver service, or one of another version: %s; check --server", c.options.Server, s.Message())
	case codes.ResourceExhausted:
		return fmt.Errorf("more than fits into one message: %s; name fewer objects at once", s.Message())
	case codes.PermissionDenied:
		return fmt.Errorf("refused: %s", s.Message())
	}
	return errors.New(s.Message())
}

func (c *Conn) advice(message string) string {
	switch {
	case strings.Contains(message, "first record does not look like a TLS handshake"):
		return "it speaks plain text: say --insecure if that is meant"
	case strings.Contains(message, "refused: it is app"):
		return "name the app that it should be by --server-identity"
	case strings.Contains(message, "authentication handshake failed"):
		return "check that --identity has a valid certificate, and that ca.pem is the root of the service's too"
	case c.options.Insecure && (strings.Contains(message, "server preface") || strings.Contains(message, "connection reset") || strings.Contains(message, "EOF")):
		return "it may want mTLS: name your certificate by --identity instead of --insecure"
	default:
		return "is isthmus serve running there? Name another address by --server or ISTHMUS_SERVER"
	}
}

// connectionError is the part of gRPC's message that says what happened.
func connectionError(message string) string {
	for _, wrapping := range []string{"last connection error: ", `connection error: desc = "`, "transport: Error while dialing: ", "transport: "} {
		if i := strings.LastIndex(message, wrapping); i >= 0 {
			message = message[i+len(wrapping):]
		}
	}
	return strings.ReplaceAll(strings.TrimSuffix(message, `"`), `\"`, `"`)
}
