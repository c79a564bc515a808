package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/gateway"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/gateway/relay"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/tunnel"
	"github.com/isthmus-mesh/isthmus/tests/bench/harness"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// apps are the addresses of the two apps behind the proxies.
type apps struct{ Echo, Bulk string }

// proxy is what our gateway needs to know.
type proxy struct {
	Listen       string
	Apps         apps
	Certificates harness.Certificates // of the services at both ends of a tunnel
}

// runGateway is what is measured.
func runGateway(b *harness.B, p proxy) map[string]any {
	harness.Check(eastGateway(p.Apps).Serve(b, harness.Must(net.Listen("tcp", p.Listen))))
	return nil
}

// eastGateway leads to the apps.
func eastGateway(to apps) *gateway.Gateway {
	table := &catalog.GatewayTable{Cluster: "east"}
	for id, addr := range map[string]string{"echo": to.Echo, "bulk": to.Bulk} {
		app := catalog.App{Namespace: "bench", ID: id}
		table.Backends = table.Backends.With(catalog.Edit[*catalog.Backend]{App: app, Value: &catalog.Backend{App: app, Instances: []string{addr}}})
	}
	return newGateway(table, gateway.Config{})
}

func newGateway(table *catalog.GatewayTable, cfg gateway.Config) *gateway.Gateway {
	var current live.Value[*catalog.GatewayTable]
	table.Domain, table.Revision = catalog.DefaultDomain, 1
	current.Store(table)
	cfg.Table, cfg.Logger, cfg.DrainTimeout = &current, harness.Log, time.Millisecond
	return harness.Must(gateway.New(cfg))
}

// runTunnel is both ends of a tunnel: west's gateway, which takes the clients' connections, and
// east's, which has dialled it and leads to the apps.
func runTunnel(b *harness.B, p proxy) map[string]any {
	identityOf := func(cluster, other string) *identity.Source {
		id := p.Certificates.Identity(b, identity.ServiceApp("", cluster))
		id.SetPeers("", map[string]catalog.Trust{other: {}})
		return id
	}
	cfg := tunnel.Config{Domain: catalog.DefaultDomain, Log: harness.Log}
	cfg.Cluster, cfg.Identity = "west", identityOf("west", "east")
	accepter := tunnel.NewAccepter(cfg)
	cfg.Cluster, cfg.Identity = "east", identityOf("east", "west")
	dialer := tunnel.NewDialer(cfg)
	var exported catalog.Table[struct{}]
	for _, id := range []string{"echo", "bulk"} {
		exported = exported.With(catalog.Edit[struct{}]{App: catalog.App{Namespace: "bench", ID: id}})
	}
	west := newGateway(&catalog.GatewayTable{Cluster: "west", Tunnels: map[string]catalog.Tunnels{"east": {Apps: exported, Heard: true}}}, gateway.Config{
		Tunnels:    accepter.Take,
		OpenTunnel: func(ctx context.Context, cluster string) (relay.Conn, error) { return accepter.Open(ctx, cluster) },
	})
	var accepts, dials live.Value[[]*catalog.Cluster]
	accepts.Store([]*catalog.Cluster{{Name: "east", Tunnel: catalog.TunnelAccept}})
	dials.Store([]*catalog.Cluster{{Name: "west", Tunnel: catalog.TunnelDial, Gateways: []string{p.Listen}}})
	var running sync.WaitGroup
	running.Go(func() { harness.Check(accepter.Run(b, &accepts)) })
	running.Go(func() { harness.Check(dialer.Run(b, &dials)) })
	running.Go(func() { harness.Check(eastGateway(p.Apps).Serve(b, dialer)) })
	harness.Check(west.Serve(b, harness.Must(net.Listen("tcp", p.Listen))))
	running.Wait()
	dialer.End()
	return nil
}

// runApps are the two apps behind the proxies.
func runApps(b *harness.B, _ []byte) map[string]any {
	cert, key, err := harness.Must(sandbox.NewAuthority()).Server(echoHost)
	harness.Check(err)
	config := &tls.Config{Certificates: []tls.Certificate{harness.Must(tls.X509KeyPair(cert, key))}, SessionTicketsDisabled: true}
	echo, bulk := harness.Listen(), harness.Listen()
	serve(b, echo, func(c net.Conn) { echoBlocks(tls.Server(c, config)) })
	serve(b, bulk, sendBulk)
	return map[string]any{"Apps": func() apps { return apps{echo.Addr().String(), bulk.Addr().String()} }}
}

// serve handles connections until the end.
func serve(b *harness.B, l net.Listener, handle func(net.Conn)) {
	context.AfterFunc(b, func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); handle(c) }()
		}
	}()
}

// block is the size of a request and of its answer.
const block = 1024

func echoBlocks(c net.Conn) {
	b := make([]byte, block)
	for {
		if _, err := io.ReadFull(c, b); err != nil {
			return
		}
		if _, err := c.Write(b); err != nil {
			return
		}
	}
}

var zeros = make([]byte, 256<<10)

// sendBulk reads a ClientHello, which it ignores, and then numbers of bytes to send. It speaks no TLS,
// so that ciphers do not take the time that the proxies need.
func sendBulk(c net.Conn) {
	header := make([]byte, 5)
	if _, err := io.ReadFull(c, header); err != nil {
		return
	}
	if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint16(header[3:]))); err != nil {
		return
	}
	for n := int64(0); binary.Read(c, binary.BigEndian, &n) == nil; {
		for n > 0 {
			sent, err := c.Write(zeros[:min(n, int64(len(zeros)))])
			if err != nil {
				return
			}
			n -= int64(sent)
		}
	}
}

// touch makes a connection without an exchange: the app sees a ClientHello and the end, and ends the
// connection, too.
func touch(addr string) {
	conn := dialBulk(addr)
	defer conn.Close()
	harness.Check(conn.(*net.TCPConn).CloseWrite())
	back := harness.Must(io.Copy(io.Discard, conn))
	harness.Assert(back == 0, "%d bytes came back", back)
}

// ask sends requests over a warm connection, one at a time.
func ask(addr string, n int) {
	conn := dialEcho(addr)
	defer conn.Close()
	exchange(conn, n)
}

// stream receives bytes.
func stream(addr string, n int) {
	conn := dialBulk(addr)
	defer conn.Close()
	receive(conn, n)
}

func dial(addr string) net.Conn {
	conn := harness.Must(net.Dial("tcp", addr))
	conn.SetDeadline(time.Now().Add(time.Minute))
	return conn
}

func dialEcho(addr string) net.Conn {
	conn := tls.Client(dial(addr), &tls.Config{ServerName: echoHost, InsecureSkipVerify: true})
	harness.Check(conn.Handshake())
	return conn
}

func exchange(conn net.Conn, times int) {
	b := make([]byte, block)
	for range times {
		harness.Must(conn.Write(b))
		harness.Must(io.ReadFull(conn, b))
	}
}

// receive asks for n bytes and takes them.
func receive(conn net.Conn, n int) {
	harness.Check(binary.Write(conn, binary.BigEndian, int64(n)))
	for b := make([]byte, min(n, 256<<10)); n > 0; {
		n -= harness.Must(conn.Read(b))
	}
}

// bulkHello is the ClientHello for the app that sends bulk.
var bulkHello = sync.OnceValue(func() []byte {
	var sent bytes.Buffer
	tls.Client(writeOnly{Writer: &sent}, &tls.Config{ServerName: bulkHost}).Handshake()
	return sent.Bytes()
})

// writeOnly is a connection that takes all and answers nothing.
type writeOnly struct {
	net.Conn
	io.Writer
}

func (w writeOnly) Write(b []byte) (int, error) { return w.Writer.Write(b) }
func (w writeOnly) Read([]byte) (int, error)    { return 0, io.EOF }

func dialBulk(addr string) net.Conn {
	conn, hello := dial(addr), bytes.Clone(bulkHello())
	rand.Read(hello[11:43]) // the random: the gateway refuses a hello that it is passing on already
	harness.Must(conn.Write(hello))
	return conn
}

// openIdle opens connections on which one byte has come back, so that they are there from end to end,
// until the end.
func openIdle(b *harness.B, addr string, n int) {
	for range n {
		conn := dialBulk(addr)
		b.Cleanup(conn.Close)
		receive(conn, 1)
		conn.SetDeadline(time.Time{})
	}
}
