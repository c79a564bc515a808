package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/gateway"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// apps are the addresses of the two apps behind the proxies.
type apps struct{ Echo, Bulk string }

// proxy is what a proxy in Go needs to know.
type proxy struct {
	Listen string
	Apps   apps
}

// runGateway is what is measured.
func runGateway(ctx context.Context, argument []byte) error {
	var p proxy
	l, err := p.listen(argument)
	if err != nil {
		return err
	}
	table := &catalog.GatewayTable{Domain: catalog.DefaultDomain, Cluster: "east", Revision: 1}
	for id, addr := range map[string]string{"echo": p.Apps.Echo, "bulk": p.Apps.Bulk} {
		app := catalog.App{Namespace: "bench", ID: id}
		b := &catalog.Backend{App: app, Instances: []string{addr}}
		table.Backends = table.Backends.With(catalog.Edit[*catalog.Backend]{App: app, Value: b})
	}
	var current live.Value[*catalog.GatewayTable]
	current.Store(table)
	g, err := gateway.New(gateway.Config{
		Table:        &current,
		Logger:       slog.New(slog.NewTextHandler(os.Stderr, nil)),
		DrainTimeout: time.Millisecond,
	})
	if err != nil {
		return err
	}
	return g.Serve(ctx, l)
}

// listen reads what a proxy needs to know, and listens.
func (p *proxy) listen(argument []byte) (net.Listener, error) {
	if err := json.Unmarshal(argument, p); err != nil {
		return nil, err
	}
	return net.Listen("tcp", p.Listen)
}

// runPlain is the proxy that one would write in Go in an hour.
func runPlain(ctx context.Context, argument []byte) error {
	var p proxy
	l, err := p.listen(argument)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { l.Close() })
	for {
		client, err := l.Accept()
		if err != nil {
			return nil
		}
		go p.Apps.pass(client)
	}
}

var errHello = errors.New("hello read")

// peeked is a connection from which crypto/tls reads bytes that were read already.
type peeked struct {
	net.Conn
	io.Reader
}

func (p peeked) Read(b []byte) (int, error)  { return p.Reader.Read(b) }
func (p peeked) Write(b []byte) (int, error) { return len(b), nil }

func (a apps) pass(client net.Conn) {
	defer client.Close()
	var read bytes.Buffer
	var name string
	tls.Server(peeked{client, io.TeeReader(client, &read)}, &tls.Config{
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) { name = h.ServerName; return nil, errHello },
	}).Handshake()
	addr := map[string]string{echoHost: a.Echo, bulkHost: a.Bulk}[name]
	backend, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer backend.Close()
	backend.Write(read.Bytes())
	done := make(chan struct{})
	go func() {
		io.Copy(backend, client)
		backend.(*net.TCPConn).CloseWrite()
		close(done)
	}()
	io.Copy(client, backend)
	client.(*net.TCPConn).CloseWrite()
	<-done
}

// runApps are the two apps behind the proxies.
func runApps(ctx context.Context, _ []byte) error {
	cert, err := selfSigned()
	if err != nil {
		return err
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, SessionTicketsDisabled: true}
	echo, err := serveApp(ctx, func(c net.Conn) { echoBlocks(tls.Server(c, config)) })
	if err != nil {
		return err
	}
	bulk, err := serveApp(ctx, sendBulk)
	if err != nil {
		return err
	}
	all := apps{echo.String(), bulk.String()}
	return measure.Answer(map[string]measure.Method{"Apps": measure.Typed(func(measure.None) (apps, error) { return all, nil })})
}

func serveApp(ctx context.Context, handle func(net.Conn)) (net.Addr, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); handle(c) }()
		}
	}()
	return l.Addr(), nil
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

// sendBulk reads a ClientHello, which it ignores, and then numbers of bytes to send.
// It speaks no TLS, so that ciphers do not take the time that the proxies need.
func sendBulk(c net.Conn) {
	header := make([]byte, 5)
	if _, err := io.ReadFull(c, header); err != nil {
		return
	}
	if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint16(header[3:]))); err != nil {
		return
	}
	for {
		var n int64
		if err := binary.Read(c, binary.BigEndian, &n); err != nil {
			return
		}
		for n > 0 {
			sent, err := c.Write(zeros[:min(n, int64(len(zeros)))])
			if err != nil {
				return
			}
			n -= int64(sent)
		}
	}
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{echoHost}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
