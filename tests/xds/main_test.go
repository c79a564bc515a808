// Package xds tests clients of xDS as apps have them, without a sidecar, in two clusters of the
// isthmus binary with real Sentrys.
package xds

import (
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
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// sendNames has gRPC send server names (gRFC A101). gRPC reads it as the process begins.
const sendNames = "GRPC_EXPERIMENTAL_XDS_SNI"

func TestMain(m *testing.M) {
	if target := os.Getenv(callerVariable); target != "" {
		if err := call(target); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
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

	ordersAlone string // where east's gateway leads to orders, whatever the server name is
	dir         string
}

var (
	orders   = catalog.App{Namespace: "shop", ID: "orders"}
	ledger   = catalog.App{Namespace: "shop", ID: "ledger"}
	checkout = catalog.App{Namespace: "shop", ID: "checkout"}
)

func start(t *testing.T) *mesh {
	t.Helper()
	authority, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	return startBelow(t, authority)
}

// startBelow is start with a root of its own.
func startBelow(t *testing.T, authority *sandbox.Authority) *mesh {
	t.Helper()
	programstest.World(t, "isthmus", "sentry")
	m := &mesh{t: t, authority: authority, dir: t.TempDir()}
	var err error
	if m.Sandbox, err = sandbox.New(t.TempDir(), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, address := range []*string{&m.xds, &m.ordersAlone} {
		port, err := sandbox.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		*address = fmt.Sprintf("127.0.0.1:%d", port)
	}
	cert, key, err := m.authority.Server("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]any{"xds": map[string]any{
		"tls":     map[string]any{"cert": m.file("xds.crt", cert), "key": m.file("xds.key", key)},
		"gateway": map[string]any{"apps": ingress.String(), "peering": "127.0.0.1:15443"},
	}}
	ctx := meshtest.Within(t, meshtest.Patience)
	for _, c := range []struct {
		into **sandbox.Cluster
		o    sandbox.ClusterOptions
	}{
		{&m.west, sandbox.ClusterOptions{Name: "west", Listen: map[string]any{"xds": m.xds}, Settings: settings}},
		{&m.east, sandbox.ClusterOptions{Name: "east", Listen: map[string]any{"apps": []any{map[string]any{"address": m.ordersAlone, "app": "shop/orders"}}}}},
	} {
		c.o.Authority = m.authority
		if *c.into, err = m.Cluster(ctx, c.o); err != nil {
			t.Fatal(err)
		}
	}
	m.apply(m.west, m.clusterEast())
	m.apply(m.east, meshtest.Cluster("west", m.west.Gateway))
	return m
}

// clusterEast is the Cluster object that west has of east: a gateway for all apps, and one for orders.
func (m *mesh) clusterEast() string {
	return strings.Replace(meshtest.Cluster("east", m.east.Gateway), "}]\n", fmt.Sprintf("}, {address: %q, app: orders, namespace: shop}]\n", m.ordersAlone), 1)
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

// selection is what checkout may call.
func (m *mesh) selection(endpoints ...string) string {
	return meshtest.Selection(checkout.Namespace, checkout.ID, endpoints...)
}

func (m *mesh) apply(c *sandbox.Cluster, objects ...string) {
	m.t.Helper()
	m.isthmus(c, strings.Join(objects, "---\n"), "apply", "-f", "-")
}

// remove deletes AppInstances.
func (m *mesh) remove(c *sandbox.Cluster, app catalog.App, ids ...string) {
	m.t.Helper()
	for _, id := range ids {
		m.isthmus(c, "", "delete", "AppInstance", app.Namespace+"/"+id)
	}
}

// isthmus runs the command line as an operator of a cluster.
func (m *mesh) isthmus(c *sandbox.Cluster, input string, args ...string) (output string) {
	m.t.Helper()
	binary := programstest.Path(m.t, "isthmus")
	cmd := exec.CommandContext(m.t.Context(), binary, args...)
	cmd.Env = append(os.Environ(), c.CommandLine()...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		m.t.Fatalf("isthmus %s: %v\n%s", args[0], err, out)
	}
	return string(out)
}

// certificate writes one of an app into a directory, as Sentry would sign it.
func (m *mesh) certificate(app catalog.App) (dir string) {
	return m.certificateBy(m.authority, "", app)
}

// certificateBy is certificate with one that another authority signs, in a directory of that name.
func (m *mesh) certificateBy(by *sandbox.Authority, dir string, app catalog.App) string {
	m.t.Helper()
	cert, key, err := by.Leaf(sandbox.AppTrustDomain, app)
	if err != nil {
		m.t.Fatal(err)
	}
	dir = filepath.Join(dir, app.ID)
	m.file(dir+"/tls.key", key)
	m.file(dir+"/ca.crt", m.authority.Anchors())
	return filepath.Dir(m.file(dir+"/tls.crt", cert))
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

// page is what these tests do as a user would.
const page = "../../docs/how-to/xds.md"

// bootstrap is the first of the page, for an app.
func (m *mesh) bootstrap(app catalog.App) []byte {
	m.t.Helper()
	return example(m.t, page, "json", "xds_servers", "isthmus.mesh.example:7410", m.xds, "/certs/", m.certificate(app)+"/", "shop/checkout", app.String())
}

// example is the first example in a language on a page that has some words, with texts replaced by
// others.
func example(t *testing.T, page, language, words string, replace ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(text), "```"+language+"\n")[1:] {
		example, _, _ := strings.Cut(part, "```")
		if !strings.Contains(example, words) {
			continue
		}
		for i := 0; i < len(replace); i += 2 {
			if !strings.Contains(example, replace[i]) {
				t.Fatalf("%s: no %q in the example in %s with %q", page, replace[i], language, words)
			}
		}
		return []byte(strings.NewReplacer(replace...).Replace(example))
	}
	t.Fatalf("%s has no example in %s with %q", page, language, words)
	return nil
}

// nameless is the bootstrap of an app whose gRPC sends no server name.
func (m *mesh) nameless(bootstrap []byte) []byte {
	return m.changed(bootstrap, func(b map[string]any) {
		b["node"].(map[string]any)["metadata"] = map[string]any{"isthmus.dev/no-server-name": true}
	})
}

func (m *mesh) changed(bootstrap []byte, change func(map[string]any)) []byte {
	m.t.Helper()
	var b map[string]any
	if err := json.Unmarshal(bootstrap, &b); err != nil {
		m.t.Fatal(err)
	}
	change(b)
	bootstrap, err := json.Marshal(b)
	if err != nil {
		m.t.Fatal(err)
	}
	return bootstrap
}
