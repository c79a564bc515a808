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
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"runtime/pprof"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/gateway"
)

// roleFlags say what a child process is.
type roleFlags struct {
	name, echo, bulk, profile string
}

func (r roleFlags) run(ctx context.Context) error {
	if r.profile != "" {
		f, err := os.Create(r.profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	switch r.name {
	case "apps":
		return runApps(ctx)
	case "gateway":
		return r.runGateway(ctx)
	case "plain":
		return r.runPlain(ctx)
	}
	return fmt.Errorf("no role %q", r.name)
}

func listen() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }

// runGateway is what is measured.
func (r roleFlags) runGateway(ctx context.Context) error {
	table := &catalog.GatewayTable{Domain: catalog.DefaultDomain, Cluster: "east", Revision: 1}
	for id, addr := range map[string]string{"echo": r.echo, "bulk": r.bulk} {
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
	l, err := listen()
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return g.Serve(ctx, l)
}

// runPlain is the proxy that one would write in Go in an hour.
func (r roleFlags) runPlain(ctx context.Context) error {
	l, err := listen()
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	context.AfterFunc(ctx, func() { l.Close() })
	for {
		client, err := l.Accept()
		if err != nil {
			return nil
		}
		go r.passPlain(client)
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

func (r roleFlags) passPlain(client net.Conn) {
	defer client.Close()
	var read bytes.Buffer
	var name string
	tls.Server(peeked{client, io.TeeReader(client, &read)}, &tls.Config{
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) { name = h.ServerName; return nil, errHello },
	}).Handshake()
	addr := map[string]string{echoHost: r.echo, bulkHost: r.bulk}[name]
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
func runApps(ctx context.Context) error {
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
	fmt.Println(echo, bulk)
	<-ctx.Done()
	return nil
}

func serveApp(ctx context.Context, handle func(net.Conn)) (net.Addr, error) {
	l, err := listen()
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
