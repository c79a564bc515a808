package gateway

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/gateway/relay"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/logged"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ordersHost = "orders.shop.east.isthmus.internal"
	ledgerHost = "ledger.shop.east.isthmus.internal"
	idleHost   = "idle.shop.east.isthmus.internal"
	peerHost   = "_resolver.east.isthmus.internal"
)

// patience is how long a test waits for what has to happen at all.
const patience = 2 * time.Minute

// eachRelay runs a test over every relay that works on this machine.
func eachRelay(t *testing.T, test func(t *testing.T, with option)) {
	for name, make := range map[string]func(relay.Config) (relay.Relay, error){"copy": relay.NewCopy, "native": relay.New} {
		t.Run(name, func(t *testing.T) {
			test(t, func(g *Gateway) { g.newRelay = make })
		})
	}
}

type option func(*Gateway)

// running is a gateway that serves.
type running struct {
	*Gateway
	addr     string
	table    *live.Value[*catalog.GatewayTable]
	registry *prometheus.Registry
	log      *logBuffer
	stop     func() // ends Serve and waits for it
}

// serve starts a gateway on loopback, with patience where nothing else is said; it ends
// with the test.
func serve(t *testing.T, cfg Config, table *catalog.GatewayTable, options ...option) *running {
	t.Helper()
	r := &running{table: cfg.Table, registry: prometheus.NewRegistry(), log: &logBuffer{}}
	if r.table == nil {
		r.table = new(live.Value[*catalog.GatewayTable])
	}
	if table != nil {
		r.table.Store(table)
	}
	cfg.Table, cfg.Metrics = r.table, r.registry
	cfg.Logger = slog.New(slog.NewTextHandler(r.log, nil))
	cfg.DrainTimeout = cmp.Or(cfg.DrainTimeout, 50*time.Millisecond)
	cfg.HelloTimeout, cfg.DialTimeout = cmp.Or(cfg.HelloTimeout, patience), cmp.Or(cfg.DialTimeout, patience)
	cfg.AnswerTimeout = cmp.Or(cfg.AnswerTimeout, patience)
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range options {
		o(g)
	}
	r.Gateway = g
	l := listen(t)
	r.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- g.Serve(ctx, l) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

// refused is the number of refusals with a reason.
func (r *running) refused(x reason) int {
	return int(r.metric("isthmus_gateway_refusals_total", "reason", string(x)))
}

// metric is a metric's value; 0 when it is not there.
func (r *running) metric(name string, label ...string) float64 {
	families, err := r.registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if len(label) == 2 && (len(m.GetLabel()) != 1 || m.GetLabel()[0].GetValue() != label[1]) {
				continue
			}
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return 0
}

// logBuffer is what was logged.
type logBuffer struct{ logged.Buffer }

func (b *logBuffer) lines() int { return strings.Count(b.String(), "\n") }

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// deadAddress is one that refuses connections until the test ends: nobody listens there, and
// nobody else can.
func deadAddress(t testing.TB) string {
	_, address := bound(t)
	return address
}

// bound is a socket with an address of loopback.
func bound(t testing.TB) (fd int, address string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	sa, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fd, fmt.Sprintf("127.0.0.1:%d", sa.(*syscall.SockaddrInet4).Port)
}

// exports makes a table of cluster east: app-id in namespace shop, to instances.
func exports(revision uint64, apps map[string][]string) *catalog.GatewayTable {
	table := &catalog.GatewayTable{Domain: catalog.DefaultDomain, Cluster: "east", Revision: revision}
	for id, instances := range apps {
		app := catalog.App{Namespace: "shop", ID: id}
		b := &catalog.Backend{App: app, Instances: slices.Clone(instances)}
		table.Backends = table.Backends.With(catalog.Edit[*catalog.Backend]{App: app, Value: b})
	}
	return table
}

// backend is a TCP server that gives every connection to a handler, and closes it after.
func backend(t testing.TB, handle func(*net.TCPConn)) string {
	t.Helper()
	l := listen(t)
	var (
		mu    sync.Mutex
		conns []net.Conn
		wg    sync.WaitGroup
	)
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			wg.Go(func() { defer c.Close(); handle(c.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return l.Addr().String()
}

// identity is a certificate for every app in namespace shop of cluster east.
var identity = sync.OnceValues(func() (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotAfter:     time.Now().Add(time.Hour),
		DNSNames:     []string{"*.shop.east.isthmus.internal", "*.shop.north.isthmus.internal", "*.orders.shop.north.isthmus.internal", "*.shop.isthmus.internal", "*.orders.shop.east.isthmus.internal", peerHost, "_resolver.west.isthmus.internal"},
		IsCA:         true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: cert}, pool
})

// tlsBackend greets every TLS client with its name and a newline, then echoes.
func tlsBackend(t testing.TB, name string) string {
	return backend(t, func(c *net.TCPConn) { greetAndEcho(c, name) })
}

func greetAndEcho(c net.Conn, name string) {
	cert, _ := identity()
	conn := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}})
	if _, err := io.WriteString(conn, name+"\n"); err != nil {
		return
	}
	io.Copy(conn, conn)
	conn.CloseWrite()
}

// tlsPeers is a resolver service for Config.Peers, as tlsBackend.
func tlsPeers(t testing.TB, name string) func(net.Conn) {
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	return func(c net.Conn) { running.Go(func() { defer c.Close(); greetAndEcho(c, name) }) }
}

// dialTCP connects and gives the connection a deadline, so that no test hangs.
func dialTCP(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c.(*net.TCPConn)
}

// clientConfig is that of a client for a host.
func clientConfig(host string) *tls.Config {
	_, roots := identity()
	return &tls.Config{ServerName: host, RootCAs: roots}
}

// call connects to a host through a gateway and returns the name of who answers.
func call(t testing.TB, addr, host string) (name string, conn *tls.Conn, err error) {
	t.Helper()
	conn = tls.Client(dialTCP(t, addr), clientConfig(host))
	name, err = readLine(conn)
	return name, conn, err
}

func readLine(r io.Reader) (string, error) {
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := io.ReadFull(r, b); err != nil {
			return string(line), err
		}
		if b[0] == '\n' {
			return string(line), nil
		}
		line = append(line, b[0])
	}
}

func readExactly(r io.Reader, b []byte) bool {
	_, err := io.ReadFull(r, b)
	return err == nil
}

// recorder keeps what is written to it and answers nothing.
type recorder struct {
	net.Conn
	bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) { return r.Buffer.Write(p) }
func (r *recorder) Read([]byte) (int, error)    { return 0, io.EOF }

// helloOf is the ClientHello of Go's own client.
func helloOf(config *tls.Config) []byte {
	var r recorder
	tls.Client(&r, config).Handshake()
	return bytes.Clone(r.Bytes())
}

func hello(host string) []byte {
	return helloOf(&tls.Config{ServerName: host, InsecureSkipVerify: true})
}

// eventually waits for a condition that real sockets will bring about.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v, still not: %s", patience, what)
		}
	}
}
