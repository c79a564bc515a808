package hostile

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// door is a listener as an attacker finds it.
type door struct {
	name    string
	address string
	network byte // the attacker's addresses are 127.<network>.0.0/16

	before  []byte // what leads to the listener, such as a ClientHello through the gateway
	opening []byte // what an honest client sends first
	endless []byte // a first message that has no end, after its beginning
	body    []byte // the beginning of a request whose body has no end
	request []byte // a whole request, to be repeated
	secure  string // requests go over TLS, with this server name
	h2      bool   // speaks gRPC
	peer    bool   // takes peers, and not sidecars
	xds     bool   // takes clients of xDS, and not sidecars
	passes  bool   // passes a connection on, and so sets no limit to it
	packets bool   // UDP
}

// doors are all listeners.
func (s *stage) doors(t *testing.T) []door {
	t.Helper()
	query := framed(t)
	page := "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
	service := "GET /v1/health/service/orders HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Consul-Token: " + consulToken + "\r\n\r\n"
	headers := bytes.Repeat([]byte("X-Much: "+strings.Repeat("a", 1000)+"\r\n"), 64)
	all := []door{
		{name: "resolver", address: s.Resolver, opening: clientHello(t, "h2"), endless: endlessHello(), h2: true},
		{name: "gateway", address: s.Gateway, opening: clientHello(t, ordersName), endless: endlessHello(), request: make([]byte, 16<<10), secure: ordersName, passes: true},
		{name: "gateway apps", address: s.apps, opening: clientHello(t, ordersName), endless: endlessHello(), request: make([]byte, 16<<10), secure: ordersName, passes: true},
		{name: "gateway _resolver", address: s.Gateway, before: clientHello(t, resolverName), opening: endlessHello(), endless: endlessHello(), h2: true, peer: true},
		{name: "xds", address: s.xds, opening: clientHello(t, "h2"), endless: endlessHello(), h2: true, xds: true},
		{name: "dns tcp", address: s.dns, opening: query, endless: append([]byte{0xff, 0xff}, make([]byte, 64<<10)...), request: query},
		{name: "dns tls", address: s.dnsTLS, opening: clientHello(t, "dns"), endless: endlessHello(), request: query, secure: "dns"},
		{name: "dns udp", address: s.dns, request: query[2:], packets: true},
		{name: "consul", address: s.consul, opening: []byte(service), endless: append([]byte(strings.TrimSuffix(service, "\r\n")), headers...), body: upload("/v1/agent/service/register"), request: []byte(service)},
		{name: "admin", address: s.Admin, opening: []byte(page), endless: append([]byte(strings.TrimSuffix(page, "\r\n")), headers...), body: upload("/livez"), request: []byte(page)},
		{name: "debug", address: s.debug, opening: []byte(page), endless: append([]byte(strings.TrimSuffix(page, "\r\n")), headers...), request: []byte(strings.Replace(page, "/metrics", "/debug/views", 1))},
	}
	for i := range all {
		all[i].network = byte(100 + i)
	}
	return all
}

// upload is the head of a request with a body of 1 GiB.
func upload(path string) []byte {
	return []byte("PUT " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Consul-Token: " + consulToken + "\r\nContent-Length: 1073741824\r\n\r\n")
}

// framed is a query as it goes over TCP.
func framed(t *testing.T) []byte {
	t.Helper()
	q, err := new(mdns.Msg).SetQuestion("orders.shop.isthmus.internal.", mdns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(q))), q...)
}

// clientHello is the first flight of a TLS client.
func clientHello(t *testing.T, serverName string) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	defer ours.Close()
	client := tls.Client(theirs, &tls.Config{ServerName: serverName, InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	var hello sync.WaitGroup
	hello.Go(func() { _ = client.Handshake() }) // nobody answers
	defer hello.Wait()
	defer theirs.Close()
	record := make([]byte, 5)
	if _, err := io.ReadFull(ours, record); err != nil {
		t.Fatal(err)
	}
	record = append(record, make([]byte, binary.BigEndian.Uint16(record[3:]))...)
	if _, err := io.ReadFull(ours, record[5:]); err != nil {
		t.Fatal(err)
	}
	return record
}

// endlessHello are records of a ClientHello that says it has 16 MiB, as far as 64 KiB.
func endlessHello() []byte {
	record := append([]byte{22, 3, 1, 0x40, 0}, make([]byte, 1<<14)...)
	copy(record[5:], []byte{1, 0xff, 0xff, 0xff, 3, 3})
	return bytes.Repeat(record, 4)
}

// from is the n-th of the attacker's addresses.
func (d *door) from(n int) caller {
	return caller{}.at(fmt.Sprintf("127.%d.%d.%d", d.network, n>>8&255, n&255|1))
}

// attack is what one test does to one door.
type attack struct {
	*door
	t       *testing.T
	ctx     context.Context // ends with the test
	mu      sync.Mutex
	conns   []net.Conn
	working sync.WaitGroup
	refused atomic.Int64 // connections that the service did not take
}

func (d *door) attack(t *testing.T) *attack {
	a := &attack{door: d, t: t, ctx: t.Context()}
	t.Cleanup(func() {
		a.mu.Lock()
		for _, c := range a.conns {
			c.Close()
		}
		a.mu.Unlock()
		a.working.Wait()
	})
	return a
}

// open opens connections, of which half come from one address, and has each do something. A
// service may refuse any of them.
func (a *attack) open(count int, do func(net.Conn)) {
	a.t.Helper()
	for n := range count {
		from := a.from(0)
		if n%2 == 1 {
			from = a.from(n)
		}
		ctx, cancel := context.WithTimeout(a.ctx, meshtest.Attempt)
		conn, err := from.dial(ctx, a.address)
		cancel()
		if err != nil {
			a.refused.Add(1)
			continue
		}
		a.mu.Lock()
		a.conns = append(a.conns, conn)
		a.mu.Unlock()
		conn.SetWriteDeadline(time.Now().Add(meshtest.Attempt))
		if _, err := conn.Write(a.before); err != nil {
			a.refused.Add(1)
			continue
		}
		do(conn)
	}
}

// openSecure is [attack.open] with a TLS handshake where the door wants one. Handshakes that
// are refused are left out.
func (a *attack) openSecure(count int, do func(net.Conn)) {
	a.t.Helper()
	a.open(count, func(raw net.Conn) {
		if a.secure == "" {
			do(raw)
			return
		}
		conn := tls.Client(raw, caller{}.tls(a.secure))
		raw.SetDeadline(time.Now().Add(meshtest.Attempt))
		if err := conn.Handshake(); err != nil {
			a.refused.Add(1)
			raw.Close()
			return
		}
		raw.SetDeadline(time.Time{})
		do(conn)
	})
}

// pour writes a text again and again, until the service takes no more or has taken enough.
func (a *attack) pour(conn net.Conn, text []byte, most int) {
	a.working.Go(func() {
		for n := 0; n < most && a.ctx.Err() == nil; n += len(text) {
			conn.SetWriteDeadline(time.Now().Add(time.Second))
			if _, err := conn.Write(text); err != nil {
				return
			}
		}
	})
}

// drain reads until the connection ends.
func (a *attack) drain(conn net.Conn) {
	a.working.Go(func() { io.Copy(io.Discard, conn) })
}

// soon is how long the service may take to end a connection that is of no use: each of its own
// limits is at most a quarter of it.
const soon = 45 * time.Second

// allEnd wants the service to end every connection by itself.
func (a *attack) allEnd() {
	a.t.Helper()
	end := time.Now().Add(soon)
	for n, c := range a.conns {
		c.SetReadDeadline(end)
		if _, err := io.Copy(io.Discard, c); isTimeout(err) {
			a.t.Errorf("connection %d of %d is not ended by the service", n, len(a.conns))
			return
		}
	}
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

// small has a connection take as little as the kernel allows, so that whoever writes to it
// soon waits.
func small(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if raw, err := conn.(*net.TCPConn).SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}
}
