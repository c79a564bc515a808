package transport

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

func TestPacketsThatAreNoQueries(t *testing.T) {
	r := serve(t, Config{Sockets: 1})
	conn, err := net.Dial("udp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	bad := [][]byte{{}, {1}, make([]byte, wire.HeaderSize-1)}
	for _, packet := range bad {
		if _, err := conn.Write(packet); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all are dropped", func() bool { return r.Counters().Traffic[UDP].Dropped == uint64(len(bad)) })
	// One that is as large as can be is answered.
	m := question("a.isthmus.internal")
	m.SetEdns0(1232, false)
	m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_PADDING{Padding: make([]byte, 1900)}}
	c := dns.Client{Timeout: patience}
	if _, _, err := c.Exchange(m, r.addr); err != nil {
		t.Error(err)
	}
}

// TestAQueryThatIsTooLongIsAnswered as one that can't be read, so that its sender doesn't wait.
func TestAQueryThatIsTooLongIsAnswered(t *testing.T) {
	r := serve(t, Config{Sockets: 1})
	for _, padding := range []int{maxQuery, 4 * maxQuery, 60_000} {
		m := question("a.isthmus.internal")
		m.SetEdns0(1232, false)
		m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_PADDING{Padding: make([]byte, padding)}}
		c := dns.Client{Timeout: patience}
		if answer, _, err := c.Exchange(m, r.addr); err != nil || answer.Rcode == dns.RcodeSuccess {
			t.Errorf("%d bytes: %v, %v", padding, answer, err)
		}
	}
}

// TestNobodyAtTheOtherEnd has the kernel report that what was sent could not be received.
func TestNobodyAtTheOtherEnd(t *testing.T) {
	r := serve(t, Config{Sockets: 1})
	packed, err := question("a.isthmus.internal").Pack()
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		conn, err := net.Dial("udp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		conn.Write(packed)
		conn.Close()
	}
	eventually(t, "all are answered", func() bool { return r.Counters().Traffic[UDP].Queries >= 100 })
	texts(t, ask(t, "udp", r.addr, "a.isthmus.internal"))
}

func TestAnswersOfAFullBatch(t *testing.T) {
	r := serve(t, Config{Sockets: 1})
	conn, err := net.Dial("udp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const count = 200 // several batches, of which some are full
	want := make(map[uint16]string)
	for i := range count {
		m := question(fmt.Sprintf("a%d.isthmus.internal", i))
		m.Id = uint16(i)
		want[m.Id] = m.Question[0].Name
		packed, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(packed); err != nil {
			t.Fatal(err)
		}
	}
	buf := make([]byte, 4096)
	for len(want) > 0 {
		conn.SetReadDeadline(time.Now().Add(patience))
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatalf("%d of %d responses did not come: %v", len(want), count, err)
		}
		var m dns.Msg
		if err := m.Unpack(buf[:n]); err != nil {
			t.Fatal(err)
		}
		if len(m.Answer) != 1 || m.Answer[0].Header().Name != want[m.Id] {
			t.Errorf("response %d: %v", m.Id, &m)
		}
		delete(want, m.Id)
	}
}

// TestLargeResponsesOfABatch has responses that do not all fit in a batch's room.
func TestLargeResponsesOfABatch(t *testing.T) {
	r := serve(t, Config{Sockets: 1})
	conn, err := net.Dial("udp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	packed, err := question("large.isthmus.internal").Pack()
	if err != nil {
		t.Fatal(err)
	}
	const count = 3 // as many as fit in a client's buffer
	for range count {
		conn.Write(packed)
	}
	buf := make([]byte, 1<<16)
	for i := range count {
		conn.SetReadDeadline(time.Now().Add(patience))
		n, err := conn.Read(buf)
		if err != nil || n < 50_000 || !bytes.Contains(buf[:n], []byte("large")) {
			t.Fatalf("response %d: %d bytes, %v", i, n, err)
		}
	}
}

// TestFloodDoesNotReachOthers floods the listener under many addresses, with responses
// limited, and asks as somebody else.
func TestFloodDoesNotReachOthers(t *testing.T) {
	r := serve(t, Config{Address: "0.0.0.0:0", RateLimit: RateLimit{Responses: 10, Slip: 2}})
	server := net.JoinHostPort("127.0.0.1", r.port())
	packed, err := question("a.isthmus.internal").Pack()
	if err != nil {
		t.Fatal(err)
	}
	var sources []net.Conn
	for i := range 100 { // of 20 networks
		from := &net.UDPAddr{IP: net.IPv4(127, 1, byte(i/5), byte(1+i%5))}
		d := net.Dialer{LocalAddr: from}
		conn, err := d.Dial("udp", server)
		if err != nil {
			t.Skipf("this machine does not send from %s: %v", from.IP, err)
		}
		defer conn.Close()
		sources = append(sources, conn)
	}
	const rounds = 100
	began := time.Now()
	for i := range rounds {
		for _, conn := range sources {
			conn.Write(packed)
		}
		// No more at once than there is room for in a socket.
		eventually(t, "the round is taken", func() bool { return r.Counters().Traffic[UDP].Queries >= uint64(len(sources)*(i+1)) })
		if i%10 == 0 { // 10 in all: within its own limit
			texts(t, ask(t, "udp", server, "a.isthmus.internal"))
		}
	}
	var c Traffic
	eventually(t, "the flood is judged, and what slips is truncated", func() bool {
		c = r.Counters().Traffic[UDP]
		return c.Queries >= uint64(rounds*len(sources)) && c.Truncated == c.Slipped &&
			c.Queries == c.Responses+c.Dropped+c.Limited-c.Slipped
	})
	seconds := uint64(time.Since(began)/time.Second) + 2
	if whole := c.Responses - c.Slipped; whole > 20*10*seconds+100 {
		t.Errorf("%d responses were sent whole in %d s, want %d", whole, seconds, 20*10*seconds)
	}
	if c.Slipped == 0 {
		t.Errorf("nothing slips: %+v", c)
	}
	// A flooded network's real client comes by TCP.
	d := dns.Client{Net: "tcp", Timeout: patience, Dialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, 0, 1)}}}
	for range 50 {
		if _, _, err := d.Exchange(question("a.isthmus.internal"), server); err != nil {
			t.Fatalf("by TCP: %v", err)
		}
	}
}

func TestKnownClientsAreLimitedLess(t *testing.T) {
	for _, standing := range []Standing{Instance, Forwarder, Proved} {
		r := serveWith(t, Config{RateLimit: RateLimit{Responses: 1}}, &answers{standing: standing})
		for range 50 {
			texts(t, ask(t, "udp", r.addr, "a.isthmus.internal"))
		}
		if c := r.Counters().Traffic[UDP]; c.Limited != 0 {
			t.Errorf("limited: %+v", c)
		}
	}
}

// echo answers with the query itself, which is as little work as can be.
type echo struct{ answers }

func (*echo) Answer(q *Query, out []byte) ([]byte, bool) {
	out = append(out, q.Packet...)
	out[2] |= 0x80
	return out, false
}

func TestUDPAllocatesNothing(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::]:0"} {
		if address == "[::]:0" && !hasIPv6() {
			continue
		}
		l, err := Listen(Config{Address: address, RateLimit: RateLimit{Responses: 1000, Slip: 2}})
		if err != nil {
			t.Fatal(err)
		}
		testAllocations(t, l)
		l.Close()
	}
}

func loopbackOf(a netip.Addr) string {
	if a.Is4() {
		return "127.0.0.1"
	}
	return "::1"
}
