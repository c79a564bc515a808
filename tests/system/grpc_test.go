package system

import (
	"testing"

	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// dial connects to a sidecar's gRPC API.
func dial(t *testing.T, s *sandbox.Sidecar) *grpc.ClientConn {
	t.Helper()
	conn, err := s.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// operator connects to west's service as its command line does.
func (m *mesh) operator(t *testing.T) *grpc.ClientConn {
	t.Helper()
	return m.connect(t, m.authority, identity.CLIApp(""))
}

// connect connects to west's service with a certificate of an app by some authority.
// It checks the service by the mesh's own.
func (m *mesh) connect(t *testing.T, by *sandbox.Authority, app catalog.App) *grpc.ClientConn {
	t.Helper()
	source, err := identity.New(identity.Config{Files: m.certificate(t, by, app)}, app, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if err := source.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(m.west.Resolver, grpc.WithNoProxy(),
		grpc.WithTransportCredentials(source.ClientCredentials(identity.OneOf(identity.ServiceApp("", "west")))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
