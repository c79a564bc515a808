package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
	"golang.org/x/net/ipv4"

	"github.com/isthmus-mesh/isthmus/tests/faults/network"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// target is a service that is attacked, on the loopback of a network of its own, where every
// address of 127.0.0.0/8 can be a sender's.
type target struct {
	*cluster
	lab *lab
	at  string
}

// Senders.
var (
	instanceOfShop = netip.MustParseAddr("127.9.0.11") // follows the cluster's default
	bound          = "127.0.0.1:7454"                  // whoever asks there is shop/checkout
)

// newTarget starts the service with more settings of its DNS server.
func newTarget(t *testing.T, dns map[string]any) *target {
	t.Helper()
	needs(t, "isthmus")
	l := &lab{Network: network.New(1), dir: t.TempDir()}
	g := &target{lab: l, at: "127.0.0.1:" + port}
	t.Cleanup(func() {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	})
	ctx := meshtest.Within(t, 2*patience)
	place, err := l.Place(netip.MustParseAddr("10.77.9.1"))
	if err != nil {
		t.Fatal(err)
	}
	box, err := sandbox.NewIn(place, filepath.Join(l.dir, "west"), quiet)
	if err != nil {
		t.Fatal(err)
	}
	g.cluster = &cluster{name: "west", place: place, box: box}
	l.west = g.cluster
	listen := map[string]any{"dns": []any{g.at, map[string]any{"address": bound, "as": "shop/checkout"}}}
	if err := g.start(ctx, listen, map[string]any{"dns": dns}); err != nil {
		t.Fatal(err)
	}
	objects := []string{
		instance("follower-1", "shop/follower", instanceOfShop.String()+":50001"),
		instance("orders-1", "shop/orders", "10.77.1.101:50002"),
		instance("secret-1", "shop/secret", "10.77.1.102:50002"),
		meshtest.Cluster("east", "10.77.2.11:15443", "10.77.2.12:15443", "10.77.2.13:15443"),
		meshtest.Cluster("south", "10.77.3.11:15443"), // with nothing to go round
		"apiVersion: isthmus.dev/v1alpha1\nkind: AppEndpoints\nmetadata: {namespace: shop, name: checkout}\nspec: {endpoints: [{app: orders}]}\n",
	}
	if err := g.apply(ctx, strings.Join(objects, "---\n")); err != nil {
		t.Fatal(err)
	}
	meshtest.Eventually(t, patience, func() error { return g.wellAt(instanceOfShop, "udp", time.Second) })
	return g
}

// socket is one that sends from an address to the target. Port 0 of UDP is any.
func (g *target) socket(t testing.TB, from netip.Addr) *net.UDPConn {
	t.Helper()
	var conn *net.UDPConn
	err := g.place.Do(func() (err error) {
		conn, err = net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.UDPAddrFromAddrPort(netip.MustParseAddrPort(g.at)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// stream is a connection to the target from an address.
func (g *target) stream(from netip.Addr) (conn net.Conn, err error) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), Timeout: patience}
	err = g.place.Do(func() error { conn, err = d.Dial("tcp4", g.at); return err })
	return conn, err
}

// ask asks once.
func (g *target) ask(from netip.Addr, network, name string, kind uint16, limit time.Duration, shape ...func(*mdns.Msg)) (*mdns.Msg, error) {
	var conn net.Conn
	var err error
	if network == "tcp" {
		conn, err = g.stream(from)
	} else {
		err = g.place.Do(func() (err error) {
			conn, err = net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.UDPAddrFromAddrPort(netip.MustParseAddrPort(g.at)))
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	q := new(mdns.Msg).SetQuestion(name, kind)
	for _, s := range shape {
		s(q)
	}
	c := mdns.Conn{Conn: conn, UDPSize: 4096}
	conn.SetDeadline(time.Now().Add(limit))
	if err := c.WriteMsg(q); err != nil {
		return nil, err
	}
	m, err := c.ReadMsg()
	if err == nil && m.Id != q.Id {
		err = fmt.Errorf("the id %d answers %d", m.Id, q.Id)
	}
	return m, err
}

// wellAt asks as a good client does, once.
func (g *target) wellAt(from netip.Addr, network string, limit time.Duration) error {
	m, err := g.ask(from, network, "orders.shop."+zone, mdns.TypeA, limit)
	if err == nil && (len(m.Answer) != 1 || !strings.HasSuffix(m.Answer[0].String(), "10.77.1.101")) {
		err = fmt.Errorf("%s over %s got %s", from, network, m)
	}
	return err
}

// well fails the test unless a good client is answered, within as many tries as resolvers
// make in a minute, and tells how many that were.
func (g *target) well(t testing.TB, from netip.Addr) (tries int) {
	t.Helper()
	var errs []error
	for tries = 1; tries <= 60; tries++ {
		err := g.wellAt(from, "udp", time.Second)
		if err == nil {
			return tries
		}
		errs = append(errs, err)
	}
	t.Fatalf("a good client is not answered: %v\n%s", errors.Join(errs...), g.Tail(20))
	return tries
}

// resident is the memory that the service has, in bytes.
func (g *target) resident(t testing.TB) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

// metrics are the names and labels that the service tells, without their values.
func (g *target) metrics(t testing.TB) (series []string) {
	t.Helper()
	conn, err := g.place.Dial(t.Context(), "tcp", g.Admin)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(conn, "GET /metrics HTTP/1.0\r\n\r\n")
	var b strings.Builder
	buffer := make([]byte, 1<<16)
	for {
		n, err := conn.Read(buffer)
		b.Write(buffer[:n])
		if err != nil {
			break
		}
	}
	for line := range strings.Lines(b.String()) {
		if strings.HasPrefix(line, "isthmus_dns") {
			series = append(series, line[:strings.LastIndexByte(line, ' ')])
		}
	}
	return series
}

// flood sends so many queries a second, or as many as the machine does, until ctx ends, and
// returns how many. Each is next's, which may use the buffer.
func flood(ctx context.Context, conn *net.UDPConn, rate float64, next func(buffer []byte) []byte) (sent int) {
	begun := time.Now()
	batch := make([]ipv4.Message, 64)
	room := make([][512]byte, len(batch))
	p := ipv4.NewPacketConn(conn)
	for ctx.Err() == nil {
		if float64(sent) > rate*time.Since(begun).Seconds() {
			time.Sleep(200 * time.Microsecond)
			continue
		}
		for i := range batch {
			batch[i].Buffers = [][]byte{next(room[i][:0])}
		}
		n, err := p.WriteBatch(batch, 0)
		if err != nil {
			time.Sleep(time.Millisecond) // the socket is full
			continue
		}
		sent += n
	}
	return sent
}

// drain reads what comes, until the socket is closed, and counts.
func drain(conn *net.UDPConn) (packets, bytes int) {
	buffer := make([]byte, 65535)
	for {
		n, err := conn.Read(buffer)
		switch {
		case err == nil:
			packets, bytes = packets+1, bytes+n
		case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
			return packets, bytes
		}
	}
}
