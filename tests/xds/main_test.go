// Package xds tests clients of xDS as apps have them, without a sidecar, in two clusters of the
// isthmus binary with real Sentrys.
package xds

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/sandbox"
	"github.com/isthmus-mesh/isthmus/sandbox/servers/serverstest"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// sendNames has gRPC send server names (gRFC A101). gRPC reads it as the process begins.
const sendNames = "GRPC_EXPERIMENTAL_XDS_SNI"

func TestMain(m *testing.M) {
	if os.Getenv(sendNames) == "" {
		self, err := os.Executable()
		if err == nil {
			err = syscall.Exec(self, os.Args, append(os.Environ(), sendNames+"=true"))
		}
		fmt.Fprintln(os.Stderr, "run this again with "+sendNames+":", err)
		os.Exit(1)
	}
	os.Exit(m.Run()) // gRPC's watchers of certificates never end, so leaks are not looked for
}

// mesh is two clusters below one root.
type mesh struct {
	*sandbox.Sandbox
	t          *testing.T
	authority  *sandbox.Authority
	west, east *sandbox.Cluster
	xds        string // where west serves xDS
	dir        string
}

var (
	orders   = catalog.App{Namespace: "shop", ID: "orders"}
	checkout = catalog.App{Namespace: "shop", ID: "checkout"}
)

func start(t *testing.T) *mesh {
	t.Helper()
	for _, name := range []string{"isthmus", "sentry"} {
		_, err := sandbox.Binary(name)
		serverstest.OrSkip(t, err)
	}
	m := &mesh{t: t, dir: t.TempDir()}
	var err error
	if m.Sandbox, err = sandbox.New(t.TempDir(), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	if m.authority, err = sandbox.NewAuthority(); err != nil {
		t.Fatal(err)
	}
	port, err := sandbox.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	m.xds = fmt.Sprintf("127.0.0.1:%d", port)
	cert, key, err := m.authority.Server("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]any{"xds": map[string]any{"tls": map[string]any{"cert": m.file("xds.crt", cert), "key": m.file("xds.key", key)}}}
	ctx := meshtest.Within(t, meshtest.Patience)
	for _, c := range []struct {
		into **sandbox.Cluster
		o    sandbox.ClusterOptions
	}{
		{&m.west, sandbox.ClusterOptions{Name: "west", Listen: map[string]any{"xds": m.xds}, Settings: settings}},
		{&m.east, sandbox.ClusterOptions{Name: "east"}},
	} {
		c.o.Authority = m.authority
		if *c.into, err = m.Cluster(ctx, c.o); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// file writes a file, and returns its path.
func (m *mesh) file(name string, text []byte) string {
	m.t.Helper()
	path := filepath.Join(m.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		m.t.Fatal(err)
	}
	return path
}

func (m *mesh) apply(c *sandbox.Cluster, objects ...string) {
	m.t.Helper()
	binary, err := sandbox.Binary("isthmus")
	if err != nil {
		m.t.Fatal(err)
	}
	cmd := exec.CommandContext(m.t.Context(), binary, "apply", "-f", "-")
	cmd.Env = append(os.Environ(), c.CommandLine()...)
	cmd.Stdin = strings.NewReader(strings.Join(objects, "---\n"))
	if out, err := cmd.CombinedOutput(); err != nil {
		m.t.Fatalf("isthmus apply: %v\n%s", err, out)
	}
}

// certificate writes one of an app into a directory, as Sentry would sign it.
func (m *mesh) certificate(app catalog.App) (dir string) {
	m.t.Helper()
	cert, key, err := m.authority.Leaf(sandbox.AppTrustDomain, app)
	if err != nil {
		m.t.Fatal(err)
	}
	m.file(app.ID+"/tls.key", key)
	m.file(app.ID+"/ca.crt", m.authority.Anchors())
	return filepath.Dir(m.file(app.ID+"/tls.crt", cert))
}

// server is an app without a sidecar: gRPC's own health service, by mTLS.
func (m *mesh) server(app catalog.App) (address string) {
	m.t.Helper()
	dir := m.certificate(app)
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		m.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(m.authority.Anchors())
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots, MinVersion: tls.VersionTLS12,
	})))
	healthpb.RegisterHealthServer(server, health.NewServer())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		m.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	m.t.Cleanup(func() { server.Stop(); <-done })
	return l.Addr().String()
}

// instance is an AppInstance of an app at an address.
func instance(app catalog.App, id, address string) string {
	return fmt.Sprintf("apiVersion: isthmus.dev/v1alpha1\nkind: AppInstance\nmetadata: {namespace: %s, name: %s}\nspec: {app: %s, address: %q}\n", app.Namespace, id, app.ID, address)
}

// bootstrap is that of docs/how-to/xds.md, for an app.
func (m *mesh) bootstrap(app catalog.App) []byte {
	m.t.Helper()
	page, err := os.ReadFile("../../docs/how-to/xds.md")
	if err != nil {
		m.t.Fatal(err)
	}
	_, text, found := strings.Cut(string(page), "```json\n")
	text, _, ended := strings.Cut(text, "```")
	if !found || !ended || !json.Valid([]byte(text)) {
		m.t.Fatalf("the page has no bootstrap:\n%s", text)
	}
	return []byte(strings.NewReplacer("isthmus.mesh.example:7410", m.xds, "/certs/", m.certificate(app)+"/", "shop/checkout", app.String()).Replace(text))
}

func within(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, meshtest.Attempt)
	defer cancel()
	return try(ctx)
}
