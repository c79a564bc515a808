package resolverservice

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/file"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(replicaVariable); path != "" {
		os.Exit(runReplica(path))
	}
	goleak.VerifyTestMain(m)
}

// running is a service of a test.
type running struct {
	*Service
	t  *testing.T
	ca *identitytest.CA // nil: plain text
	// domain is the trust domain of its apps and operators; empty: identitytest.TrustDomain.
	domain string
	stop   func() error // ends it in an orderly way
}

// configOf is a configuration of a cluster with its own directory and free ports.
func configOf(t *testing.T, cluster string, ca *identitytest.CA) *Config {
	t.Helper()
	dir := t.TempDir()
	text := fmt.Sprintf("cluster: %s\ndataDir: %s/data\nidentity: {insecure: true}\ngateway: {plaintext: true, drainTimeout: 100ms}\ndevelopment: {loopback: true}\n"+
		"listen: {resolver: '127.0.0.1:0', gateway: '127.0.0.1:0', admin: '127.0.0.1:0', debug: '127.0.0.1:0'}\n", cluster, dir)
	if ca != nil {
		f := ca.Config(identity.ServiceApp("", cluster)).Files
		text = strings.Replace(text, "{insecure: true}", fmt.Sprintf("{files: {cert: %s, key: %s, ca: %s}}", f.Cert, f.Key, f.CA), 1)
	}
	cfg, err := Parse("isthmus.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// start runs a service until the test ends, or stop, and waits until it is ready.
func start(t *testing.T, cfg *Config, ca *identitytest.CA) *running {
	t.Helper()
	r := launch(t, cfg, ca)
	r.within("ready", func() bool { code, _ := r.get("/readyz"); return code == http.StatusOK })
	return r
}

// launch is start without waiting.
func launch(t *testing.T, cfg *Config, ca *identitytest.CA) *running {
	t.Helper()
	return launchWith(t, cfg, ca, slog.New(slog.NewTextHandler(t.Output(), nil)).With("cluster", cfg.Cluster))
}

func launchWith(t *testing.T, cfg *Config, ca *identitytest.CA, log *slog.Logger) *running {
	t.Helper()
	cfg.elsewhere()
	r := &running{Service: New(cfg, log), t: t, ca: ca}
	if err := r.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	ended := false
	r.stop = func() error {
		if ended {
			return nil
		}
		ended = true
		cancel()
		return <-done
	}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// patience is how long a test waits for what should happen: so long that a machine which
// is slow and busy does not miss it.
const patience = 2 * time.Minute

// within waits until something holds.
func (r *running) within(what string, holds func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("%s: not within %s: %s", r.cfg.Cluster, patience, what)
		}
	}
}

func (r *running) get(path string) (code int, body string) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	listener := "admin"
	if strings.HasPrefix(path, "/debug") {
		listener = "debug"
	}
	resp, err := client.Get("http://" + r.Addr(listener).String() + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

// connect connects as an app.
func (r *running) connect(app catalog.App) *grpc.ClientConn {
	r.t.Helper()
	cfg := identity.Config{Insecure: true}
	if r.ca != nil {
		cfg = r.ca.Config(app, identitytest.In(r.t, cmp.Or(r.domain, identitytest.TrustDomain), app))
	}
	source, err := identity.New(cfg, app, r.log)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := source.Load(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	target := "passthrough:///" + r.Addr("resolver").String()
	if r.Addr("resolver").Network() == "unix" {
		target = "unix://" + r.Addr("resolver").String()
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(source.ClientCredentials(identity.Anyone)))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	return conn
}

func (r *running) apply(yaml string) {
	r.t.Helper()
	r.applyOr(yaml, false)
}

// applyOr applies objects, or only tries to.
func (r *running) applyOr(yaml string, dryRun bool) *v1alpha1.ApplyResponse {
	r.t.Helper()
	objects, mistakes := api.DecodeYAML("test.yaml", []byte(yaml))
	if err := mistakes.Err(); err != nil {
		r.t.Fatal(err)
	}
	req := &v1alpha1.ApplyRequest{DryRun: dryRun}
	for _, o := range objects {
		req.Objects = append(req.Objects, &v1alpha1.ApplyObject{Json: api.EncodeJSON(o)})
	}
	answer, err := v1alpha1.NewObjectsClient(r.connect(identity.CLIApp(""))).Apply(r.t.Context(), req)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer
}

// sidecar registers an instance of an app until the test ends or the service does.
func (r *running) sidecar(app catalog.App, address string) {
	r.t.Helper()
	stream, err := v1alpha1.NewResolverClient(r.connect(app)).Watch(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	hello := &v1alpha1.Hello{App: wireApp(app), Instance: &v1alpha1.Instance{Id: address, Address: address}}
	if err := stream.Send(&v1alpha1.WatchRequest{Request: &v1alpha1.WatchRequest_Hello{Hello: hello}}); err != nil {
		r.t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		r.t.Fatal(err)
	}
}

func wireApp(a catalog.App) *v1alpha1.App { return &v1alpha1.App{Namespace: a.Namespace, Id: a.ID} }

func (r *running) resolve(caller, app catalog.App) string {
	d, err := v1alpha1.NewResolverClient(r.connect(caller)).Resolve(r.t.Context(), &v1alpha1.ResolveRequest{Caller: wireApp(caller), App: wireApp(app)})
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(d.GetOutcome() + " " + d.GetAddress())
}

var (
	checkout = catalog.App{Namespace: "shop", ID: "checkout"}
	orders   = catalog.App{Namespace: "shop", ID: "orders"}
)

func TestTwoClustersMeetThroughTheirGateways(t *testing.T) {
	ca := identitytest.NewCA(t)
	eastConfig := configOf(t, "east", ca)
	eastConfig.Listen.Gateway = freeAddress(t) // which it finds free when it comes back
	east := start(t, eastConfig, ca)
	west := start(t, configOf(t, "west", ca), ca)
	east.apply(export("west") + "---\n" + clusterOnly("west"))
	there, err := net.Listen("tcp", "127.0.0.1:0") // what refuses connections does not stand after a restart
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	east.sidecar(orders, there.Addr().String())
	west.apply(clusterAt("east", east.Addr("gateway"), "2s") + "---\n" + selectsOrders)
	ordersInEast := "ok orders.shop.east.isthmus.internal:" + fmt.Sprint(east.Addr("gateway").(*net.TCPAddr).Port)
	west.within("orders answered from east", func() bool { return west.resolve(checkout, orders) == ordersInEast })
	west.within("it is heard", func() bool { p := west.peer("east"); return p.GetState() == "connected" && p.GetExports() == 1 })
	going := time.Now()
	if err := east.stop(); err != nil {
		t.Fatal(err)
	}
	if got := west.resolve(checkout, orders); got != ordersInEast && time.Since(going) < time.Second {
		t.Errorf("withdrawn as soon as the peer went: %s", got)
	}
	west.within("the lease out", func() bool { return west.resolve(checkout, orders) == "stale" })
	start(t, eastConfig, ca)
	west.within("orders answered again, from an instance of before the restart", func() bool {
		return west.resolve(checkout, orders) == ordersInEast
	})
}

func export(to string) string {
	return "apiVersion: isthmus.dev/v1alpha1\nkind: AppExport\nmetadata: {namespace: shop, name: orders}\nspec: {allow: [{cluster: " + to + "}]}\n"
}

func clusterAt(name string, gateway net.Addr, staleAfter string) string {
	return fmt.Sprintf("apiVersion: isthmus.dev/v1alpha1\nkind: Cluster\nmetadata: {name: %s}\nspec: {gateways: [{address: '%s'}], staleAfter: %s}\n", name, gateway, staleAfter)
}

// clusterOnly is a Cluster object of a cluster that may ask, and is not called.
func clusterOnly(name string) string {
	return "apiVersion: isthmus.dev/v1alpha1\nkind: Cluster\nmetadata: {name: " + name + "}\nspec: {}\n"
}

const selectsOrders = "apiVersion: isthmus.dev/v1alpha1\nkind: AppEndpoints\nmetadata: {namespace: shop, name: checkout}\nspec: {endpoints: [{app: orders}]}\n"

func TestLookupsAreCountedByOutcome(t *testing.T) {
	west := start(t, configOf(t, "west", nil), nil)
	west.apply(selectsOrders)
	west.sidecar(orders, "10.0.0.1:50002")
	west.resolve(checkout, orders)
	west.resolve(checkout, orders)
	west.resolve(checkout, catalog.App{Namespace: "shop", ID: "secret"})
	_, body := west.get("/metrics")
	for _, want := range []string{`isthmus_lookups_total{outcome="ok"} 2`, `isthmus_lookups_total{outcome="denied"} 1`, `isthmus_instances{state="ready"} 1`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s", want)
		}
	}
	if s := west.status(); s.GetStreams() != 1 || s.GetInstances() != 1 || s.GetObjects() != 1 || s.GetIdentity() != "insecure" {
		t.Errorf("status %v", s)
	}
}

func TestAServiceListensOnASocketOfTheFileSystem(t *testing.T) {
	cfg := configOf(t, "west", nil)
	path := filepath.Join(t.TempDir(), "s.sock")
	cfg.Listen.Resolver = "unix://" + path
	leaveDeadSocket(t, path)
	west := start(t, cfg, nil)
	west.apply(selectsOrders)
	if got := west.resolve(checkout, orders); got != "unavailable" {
		t.Errorf("got %s", got)
	}
	if err := New(cfg, west.log).Listen(); err == nil || !strings.Contains(err.Error(), "listen.resolver: unix://"+path+": address already in use") {
		t.Errorf("a socket that is served was taken over: %v", err)
	}
}

// leaveDeadSocket makes a socket that nobody listens on, as a crash leaves it.
func leaveDeadSocket(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
}

func TestAnAddressInUseIsNamedWithItsListener(t *testing.T) {
	west := start(t, configOf(t, "west", nil), nil)
	cfg := configOf(t, "east", nil)
	cfg.Listen.Gateway = west.Addr("gateway").String()
	s := New(cfg, west.log)
	err := s.Run(t.Context())
	want := "listen.gateway: " + cfg.Listen.Gateway + ": address already in use; stop what listens there, or write another address in isthmus.yaml"
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestAServiceThatCantOpenItsStoreSaysSo(t *testing.T) {
	west := start(t, configOf(t, "west", nil), nil)
	cfg := configOf(t, "west", nil)
	cfg.Store = west.cfg.Store
	err := Run(t.Context(), cfg, west.log)
	if err == nil || !strings.Contains(err.Error(), "another process has held it") {
		t.Errorf("two services on one store: %v", err)
	}
}

func TestAStoreOfFilesIsFollowed(t *testing.T) {
	cfg := configOf(t, "west", nil)
	dir := t.TempDir()
	cfg.Store = Store{File: &file.Config{Path: dir}}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, ".new"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, ".new"), filepath.Join(dir, "shop.yaml")); err != nil {
			t.Fatal(err)
		}
	}
	write(selectsOrders)
	west := start(t, cfg, nil)
	if got := west.resolve(checkout, orders); got != "unavailable" {
		t.Errorf("as the file has it: %s", got)
	}
	d := west.topology.Resolve(checkout, orders)
	if want := "AppEndpoints shop/checkout, spec.endpoints[0] (" + filepath.Join(dir, "shop.yaml") + ":4)"; d.Rule != want {
		t.Errorf("rule %q, want %q", d.Rule, want)
	}
	write(strings.ReplaceAll(selectsOrders, "orders", "ledger"))
	west.within("the file's new content", func() bool { return west.resolve(checkout, orders) == "denied" })
	write(strings.ReplaceAll(selectsOrders, "endpoints", "endpoint"))
	west.within("a note of the mistake", func() bool {
		code, body := west.get("/readyz")
		return code == http.StatusOK && strings.Contains(body, "note: object refused: ") && strings.Contains(body, `did you mean "endpoints"?`)
	})
	if got := west.resolve(checkout, orders); got != "denied" {
		t.Errorf("the last good object does not stand: %s", got)
	}
}

// tlsEcho is an app's sidecar as far as a gateway can tell: it ends TLS and echoes.
func tlsEcho(t *testing.T, ca *identitytest.CA) (address string) {
	t.Helper()
	pair := ca.Issue(orders)
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			done.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		done.Wait()
	})
	return l.Addr().String()
}

func TestAServiceThatEndsLetsConnectionsFinish(t *testing.T) {
	ca := identitytest.NewCA(t)
	cfg := configOf(t, "east", ca)
	cfg.Gateway.DrainTimeout = time.Hour
	east := start(t, cfg, ca)
	east.apply(export("west"))
	east.sidecar(orders, tlsEcho(t, ca))
	conn, err := tls.Dial("tcp", east.Addr("gateway").String(), &tls.Config{ServerName: "orders.shop.east.isthmus.internal", InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	echo := func() error {
		if _, err := conn.Write([]byte("x")); err != nil {
			return err
		}
		_, err := conn.Read(make([]byte, 1))
		return err
	}
	if err := echo(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- east.stop() }()
	east.within("not ready", func() bool {
		code, body := east.get("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "shutting down")
	})
	late, err := tls.Dial("tcp", east.Addr("gateway").String(), &tls.Config{ServerName: "orders.shop.east.isthmus.internal", InsecureSkipVerify: true})
	if err != nil {
		t.Fatalf("refused a connection, though no successor has the port: %v", err)
	}
	late.Close()
	if err := echo(); err != nil {
		t.Errorf("a connection that runs was cut: %v", err)
	}
	if got := east.resolve(checkout, orders); !strings.HasPrefix(got, "ok ") {
		t.Errorf("lookups ended before the gateway: %s", got)
	}
	conn.Close()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("the service waits although every connection has ended")
	}
}

// Whoever tries two clusters in one directory gives each a store of its own, and no more.
func TestTwoClustersInOneDirectoryKeepTheirInstancesApart(t *testing.T) {
	west, east := configOf(t, "west", nil), configOf(t, "east", nil)
	east.DataDir = west.DataDir
	first := start(t, west, nil)
	first.sidecar(orders, "10.0.0.1:50002")
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	if got := start(t, east, nil).resolve(checkout, orders); !strings.Contains(got, "not found") {
		t.Errorf("orders, which ran in west, is found in east: %s", got)
	}
}
