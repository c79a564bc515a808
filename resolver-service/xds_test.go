package resolverservice

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	xdscreds "google.golang.org/grpc/credentials/xds"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	grpcpeer "google.golang.org/grpc/peer"
	grpcresolver "google.golang.org/grpc/resolver"
	grpcxds "google.golang.org/grpc/xds"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/resolver-service/xds"
)

// serveGRPCApp is an app that speaks gRPC without a sidecar, with a certificate of its own.
func serveGRPCApp(t *testing.T, ca *identitytest.CA, app catalog.App) string {
	t.Helper()
	pair := ca.Issue(app)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM())
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{tlsPair(t, pair)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots, MinVersion: tls.VersionTLS12,
	})))
	healthpb.RegisterHealthServer(server, health.NewServer())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); <-done })
	return l.Addr().String()
}

func tlsPair(t *testing.T, p identitytest.Pair) tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// proxyless is a client of gRPC as an app has it, with the bootstrap that docs/how-to/xds.md
// shows.
func (r *running) proxyless(app catalog.App, target string) *grpc.ClientConn {
	r.t.Helper()
	dir, pair := r.t.TempDir(), r.ca.Issue(app)
	path := func(name string, text []byte) string {
		identitytest.Write(r.t, filepath.Join(dir, name), text)
		return filepath.Join(dir, name)
	}
	files := identity.Files{Cert: path("tls.crt", pair.Cert), Key: path("tls.key", pair.Key), CA: path("ca.crt", r.ca.PEM())}
	provider := map[string]any{"plugin_name": "file_watcher", "config": map[string]any{
		"certificate_file": files.Cert, "private_key_file": files.Key, "ca_certificate_file": files.CA, "refresh_interval": "60s",
	}}
	bootstrap, err := json.Marshal(map[string]any{
		"xds_servers": []any{map[string]any{
			"server_uri":      "dns:///" + r.Addr("xds").String(),
			"channel_creds":   []any{map[string]any{"type": "tls", "config": map[string]any{"certificate_file": files.Cert, "private_key_file": files.Key, "ca_certificate_file": files.CA}}},
			"server_features": []string{"xds_v3"},
		}},
		"node":                  map[string]any{"id": app.String()},
		"certificate_providers": map[string]any{"default": provider},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	builder, err := grpcxds.NewXDSResolverWithConfigForTesting(bootstrap)
	if err != nil {
		r.t.Fatal(err)
	}
	creds, err := xdscreds.NewClientCredentials(xdscreds.ClientOptions{FallbackCreds: insecure.NewCredentials()})
	if err != nil {
		r.t.Fatal(err)
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds), grpc.WithResolvers(builder.(grpcresolver.Builder)))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	return conn
}

// answeredBy calls an app, and returns which address answered.
func answeredBy(ctx context.Context, conn *grpc.ClientConn) (string, error) {
	var from grpcpeer.Peer
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Peer(&from), grpc.WaitForReady(true))
	if err != nil {
		return "", err
	}
	return from.Addr.String(), nil
}

func xdsConfig(t *testing.T, cluster string, ca *identitytest.CA) *Config {
	t.Helper()
	cfg := configOf(t, cluster, ca)
	cfg.Listen.XDS = "127.0.0.1:0"
	server := ca.Issue(checkout, func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} })
	dir := t.TempDir()
	cfg.XDS.TLS = &xds.TLS{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}
	identitytest.Write(t, cfg.XDS.TLS.Cert, server.Cert)
	identitytest.Write(t, cfg.XDS.TLS.Key, server.Key)
	return cfg
}

func TestGRPCWithoutASidecarCallsBothClusters(t *testing.T) {
	if os.Getenv("GRPC_EXPERIMENTAL_XDS_SNI") == "" {
		t.Skip("run with GRPC_EXPERIMENTAL_XDS_SNI=true")
	}
	ca := identitytest.NewCA(t)
	east, west := start(t, configOf(t, "east", ca), ca), start(t, xdsConfig(t, "west", ca), ca)
	east.apply(export("west") + "---\n" + clusterOnly("west"))
	west.apply(clusterAt("east", east.Addr("gateway"), "2s") + "---\n" + selectsOrders)
	east.sidecar(orders, serveGRPCApp(t, ca, orders))
	conn := west.proxyless(checkout, "xds:///orders.shop")
	from, err := answeredBy(t.Context(), conn)
	if err != nil || from != east.Addr("gateway").String() {
		t.Fatalf("answered by %q, %v; want east's gateway", from, err)
	}
	local := []string{serveGRPCApp(t, ca, orders), serveGRPCApp(t, ca, orders)}
	for _, address := range local {
		west.sidecar(orders, address)
	}
	answered := map[string]bool{}
	west.within("both local instances take calls", func() bool {
		from, err := answeredBy(t.Context(), conn)
		if err != nil {
			t.Fatal(err)
		}
		answered[from] = slices.Contains(local, from)
		return answered[local[0]] && answered[local[1]]
	})
	if from, err := answeredBy(t.Context(), west.proxyless(checkout, "xds:///orders.shop.east")); err != nil || from != east.Addr("gateway").String() {
		t.Errorf("in east alone: answered by %q, %v", from, err)
	}
}
