package transport

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

// dial connects to a listener, from an address of loopback if one is given.
func dial(t testing.TB, r *running, from ...string) *dns.Conn {
	t.Helper()
	var d net.Dialer
	if len(from) > 0 {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from[0])}
	}
	conn, err := d.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return &dns.Conn{Conn: conn}
}

// exchange sends a query and reads a response on a connection.
func exchange(t testing.TB, c *dns.Conn, name string) *dns.Msg {
	t.Helper()
	if err := c.WriteMsg(question(name)); err != nil {
		t.Fatal(err)
	}
	m, err := c.ReadMsg()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// closed tells that the other end closes a connection, whatever it sends before.
func closed(c net.Conn) bool {
	_, err := io.Copy(io.Discard, c)
	e, ok := err.(net.Error)
	return !ok || !e.Timeout()
}

func frame(t testing.TB, name string) []byte {
	t.Helper()
	packed, err := question(name).Pack()
	if err != nil {
		t.Fatal(err)
	}
	return appendFrame(nil, packed)
}

func TestPipelinedAnswersComeOutOfOrder(t *testing.T) {
	r := serve(t, Config{})
	c := dial(t, r)
	names := []string{"later.isthmus.internal.", "a.isthmus.internal.", "later.b.isthmus.internal.", "c.isthmus.internal."}
	var all []byte
	for _, name := range names {
		all = append(all, frame(t, name)...)
	}
	if _, err := c.Conn.Write(all); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{names[1], names[3]} {
		m, err := c.ReadMsg()
		if err != nil || m.Question[0].Name != want {
			t.Fatalf("%v, %v; want %s", m, err, want)
		}
	}
	close(r.answers.release)
	missing := map[string]bool{names[0]: true, names[2]: true}
	for range 2 {
		m, err := c.ReadMsg()
		if err != nil || !missing[m.Question[0].Name] {
			t.Fatalf("%v, %v; want one of %v", m, err, missing)
		}
		delete(missing, m.Question[0].Name)
	}
}

func TestManyInFlight(t *testing.T) {
	r := serve(t, Config{})
	c := dial(t, r)
	const count = 3 * maxInFlight
	go func() {
		for i := range count {
			if i == maxInFlight+1 { // the connection is not read until one of them is answered
				eventually(t, "as many as may be are in flight", func() bool { return r.Counters().Traffic[TCP].Waited == maxInFlight })
				close(r.answers.release)
			}
			c.Conn.Write(frame(t, "later.isthmus.internal"))
		}
	}()
	for i := range count {
		if _, err := c.ReadMsg(); err != nil {
			t.Fatalf("response %d: %v", i, err)
		}
	}
}

func TestLargeMessages(t *testing.T) {
	r := serve(t, Config{})
	c := dial(t, r)
	m := question("large.isthmus.internal")
	m.SetEdns0(4096, false)
	m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_PADDING{Padding: make([]byte, 60_000)}}
	packed, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for range 5 {
			c.Conn.Write(appendFrame(nil, packed))
		}
	}()
	for range 5 {
		got, err := c.ReadMsg()
		if err != nil || len(got.Answer) != 200 {
			t.Fatalf("%v", err)
		}
	}
}

// TestByteByByte sends a query in pieces, which is slow and not too slow.
func TestByteByByte(t *testing.T) {
	r := serve(t, Config{})
	c := dial(t, r)
	c.Conn.(*net.TCPConn).SetNoDelay(true)
	for _, b := range frame(t, "a.isthmus.internal") {
		if _, err := c.Conn.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	m, err := c.ReadMsg()
	if err != nil {
		t.Fatal(err)
	}
	texts(t, m)
}

func TestIdleConnectionIsClosed(t *testing.T) {
	r := serve(t, Config{IdleTimeout: 50 * time.Millisecond})
	c, _ := inTime(t, r, "a.isthmus.internal")
	if !closed(c.Conn) {
		t.Error("it is open after its idle timeout")
	}
}

// inTime connects and asks; and does so again where this machine held the query up for so
// long that the connection was idle until it was closed.
func inTime(t testing.TB, r *running, name string) (*dns.Conn, *dns.Msg) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		before := r.Counters().Traffic[TCP].Queries
		c := dial(t, r)
		err := c.WriteMsg(question(name))
		if err == nil {
			var m *dns.Msg
			if m, err = c.ReadMsg(); err == nil {
				return c, m
			}
		}
		if r.Counters().Traffic[TCP].Queries > before || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// TestWaitingConnectionIsNotIdle has a query waited for that takes longer than a
// connection may be idle.
func TestWaitingConnectionIsNotIdle(t *testing.T) {
	r := serve(t, Config{IdleTimeout: 20 * time.Millisecond})
	go func() {
		eventually(t, "the query is waited for", func() bool { return r.Counters().Traffic[TCP].Waited > 0 })
		time.AfterFunc(200*time.Millisecond, func() { close(r.answers.release) })
	}()
	_, m := inTime(t, r, "later.isthmus.internal")
	texts(t, m)
}

func TestSlowSenderIsClosed(t *testing.T) {
	t.Parallel()
	r := serve(t, Config{IdleTimeout: time.Hour, stall: 100 * time.Millisecond})
	c := dial(t, r)
	c.Conn.Write([]byte{0, 100, 1, 2, 3})
	if !closed(c.Conn) {
		t.Error("it is open though the rest of the query does not come")
	}
}

// TestSlowReaderIsClosed asks for much and reads nothing. Others are answered meanwhile.
func TestSlowReaderIsClosed(t *testing.T) {
	t.Parallel()
	r := serve(t, Config{IdleTimeout: time.Hour, stall: defaultStall}) // the others have it too
	c := dial(t, r)
	c.Conn.(*net.TCPConn).SetReadBuffer(4096)
	ended := make(chan error, 1)
	go func() {
		query := frame(t, "large.isthmus.internal")
		for {
			if _, err := c.Conn.Write(query); err != nil {
				ended <- err
				return
			}
		}
	}()
	for {
		select {
		case err := <-ended:
			if e, ok := err.(net.Error); ok && e.Timeout() {
				t.Error("it is open though it takes no responses")
			}
			return
		case <-time.After(10 * time.Millisecond):
			texts(t, ask(t, "tcp", r.addr, "a.isthmus.internal"))
		}
	}
}

func TestWhatIsNoDNSIsClosed(t *testing.T) {
	t.Parallel()
	r := serve(t, Config{IdleTimeout: time.Hour, stall: 100 * time.Millisecond})
	for _, sent := range []string{"\x00\x00", "\x00\x03abc", "GET / HTTP/1.1\r\n\r\n"} {
		c := dial(t, r)
		c.Conn.Write([]byte(sent))
		if !closed(c.Conn) {
			t.Errorf("%q: it is open", sent)
		}
	}
}

func TestClientHasItsShareOfConnections(t *testing.T) {
	r := serve(t, Config{Address: "0.0.0.0:0", MaxTCP: 50}) // five for each client
	r.addr = net.JoinHostPort("127.0.0.1", r.port())
	other := dial(t, r, "127.0.0.2")
	texts(t, exchange(t, other, "a.isthmus.internal"))
	var mine []*dns.Conn
	for range 8 {
		c := dial(t, r, "127.0.0.3")
		texts(t, exchange(t, c, "a.isthmus.internal"))
		mine = append(mine, c)
	}
	for i, c := range mine[:3] {
		if !closed(c.Conn) {
			t.Errorf("connection %d, which was idle the longest, is open", i)
		}
	}
	for _, c := range append(mine[3:], other) {
		texts(t, exchange(t, c, "a.isthmus.internal"))
	}
	if c := r.Counters(); c.Open != 6 || c.Evicted != 3 || c.Accepted != 9 || c.Refused != 0 {
		t.Errorf("counted %+v", c)
	}
}

func TestOldestIdleConnectionGivesWay(t *testing.T) {
	r := serve(t, Config{MaxTCP: 2})
	first, second := dial(t, r), dial(t, r)
	texts(t, exchange(t, first, "a.isthmus.internal"))
	texts(t, exchange(t, second, "a.isthmus.internal"))
	texts(t, exchange(t, first, "a.isthmus.internal"))
	third := dial(t, r)
	texts(t, exchange(t, third, "a.isthmus.internal"))
	if !closed(second.Conn) {
		t.Error("the one that was idle the longest is open")
	}
	// Those that are waited for don't give way.
	for _, c := range []*dns.Conn{first, third} {
		c.WriteMsg(question("later.isthmus.internal"))
	}
	eventually(t, "both are waited for", func() bool { return r.Counters().Traffic[TCP].Waited == 2 })
	if !closed(dial(t, r).Conn) {
		t.Error("a third one is open")
	}
	close(r.answers.release)
	for _, c := range []*dns.Conn{first, third} {
		if _, err := c.ReadMsg(); err != nil {
			t.Error(err)
		}
	}
}

// TestSlowClientsDoNotKeepOthersOut has all the room taken by connections on which a
// query never ends.
func TestSlowClientsDoNotKeepOthersOut(t *testing.T) {
	r := serve(t, Config{MaxTCP: 20})
	for i := range 20 {
		from := net.IPv4(127, 0, 1, byte(1+i/2)).String()
		c := dial(t, r, from)
		c.Conn.Write([]byte{0, 100, 1, 2, 3})
	}
	eventually(t, "all of them are open", func() bool { return r.Counters().Accepted >= 20 })
	texts(t, ask(t, "tcp", r.addr, "a.isthmus.internal"))
}

// tlsPair makes a server's configuration and a client's that trusts it.
func tlsPair(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"ns.isthmus.internal"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}},
		&tls.Config{RootCAs: roots, ServerName: "ns.isthmus.internal"}
}

func TestDNSOverTLS(t *testing.T) {
	server, trusting := tlsPair(t)
	r := serve(t, Config{TLS: server})
	for _, protocols := range [][]string{nil, {"dot"}} {
		config := trusting.Clone()
		config.NextProtos = protocols
		conn, err := dns.DialWithTLS("tcp-tls", r.addr, config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(patience))
		for range 3 {
			if got := texts(t, exchange(t, conn, "a.isthmus.internal")); got[1] != "127.0.0.1" {
				t.Errorf("sent to %s", got[1])
			}
		}
		if got := conn.Conn.(*tls.Conn).ConnectionState().NegotiatedProtocol; got != strings.Join(protocols, "") {
			t.Errorf("offered %v, negotiated %q", protocols, got)
		}
	}
	if c := r.Counters(); c.Traffic[TLS].Queries != 6 || c.Traffic[TCP].Queries != 0 || c.Traffic[UDP].Queries != 0 {
		t.Errorf("counted %+v", c)
	}
	if len(r.udp) > 0 {
		t.Error("there is UDP beside TLS")
	}
}

func TestTLSThatIsRefused(t *testing.T) {
	server, trusting := tlsPair(t)
	r := serve(t, Config{TLS: server})
	old := trusting.Clone()
	old.MaxVersion = tls.VersionTLS11
	other := trusting.Clone()
	other.NextProtos = []string{"h2"}
	for what, config := range map[string]*tls.Config{"TLS 1.1": old, "another protocol": other} {
		if conn, err := tls.Dial("tcp", r.addr, config); err == nil {
			conn.Close()
			t.Errorf("%s is taken", what)
		}
	}
	c := dial(t, r) // no TLS at all
	c.Conn.Write(frame(t, "a.isthmus.internal"))
	if !closed(c.Conn) {
		t.Error("a connection without TLS is open")
	}
}

func TestTLSHandshakeThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	server, _ := tlsPair(t)
	r := serve(t, Config{TLS: server, IdleTimeout: time.Hour, stall: 100 * time.Millisecond})
	if c := dial(t, r); !closed(c.Conn) {
		t.Error("it is open though it says nothing")
	}
}

// FuzzStream has a connection read bytes that anybody may send, in pieces.
func FuzzStream(f *testing.F) {
	f.Add(frame(f, "a.isthmus.internal"), uint8(3))
	f.Add(append(frame(f, "a.isthmus.internal"), frame(f, "b.isthmus.internal")...), uint8(100))
	f.Add([]byte{0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 1}, uint8(1))
	f.Fuzz(func(t *testing.T, stream []byte, piece uint8) {
		l := &Listener{cfg: Config{}.withDefaults(), counts: newCounts(1)}
		s := newServing(context.Background(), l, new(echo), slog.New(slog.DiscardHandler))
		defer s.release()
		want := 0
		for rest := stream; whole(rest); want++ {
			size := int(binary.BigEndian.Uint16(rest))
			if size < wire.HeaderSize {
				break
			}
			rest = rest[2+size:]
		}
		here, there := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.newConn(there, nil).serve(context.Background())
		}()
		go func() {
			defer here.Close()
			for rest := stream; len(rest) > 0; {
				n := min(int(piece)+1, len(rest))
				if _, err := here.Write(rest[:n]); err != nil {
					return
				}
				rest = rest[n:]
			}
		}()
		io.Copy(io.Discard, here)
		<-done
		if got := int(s.Counters().Traffic[TCP].Responses); got > want {
			t.Errorf("%d responses to %d queries", got, want)
		}
	})
}
