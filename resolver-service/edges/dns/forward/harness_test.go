package forward

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon is how long something may take that happens at all.
const soon = 60 * time.Second

// server is an upstream of a test.
type server struct {
	addr  netip.AddrPort
	asked atomic.Int64
	mu    sync.Mutex
	saw   []*dns.Msg
	from  []string
}

func (s *server) last() *dns.Msg {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.saw[len(s.saw)-1]
}

// serve runs a DNS server, UDP and TCP.
func serve(t testing.TB, answer func(w dns.ResponseWriter, q *dns.Msg)) *server {
	t.Helper()
	var packets net.PacketConn
	var l net.Listener
	for range 20 {
		var err error
		if packets, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		if l, err = net.Listen("tcp", packets.LocalAddr().String()); err == nil {
			break
		}
		packets.Close()
	}
	s := &server{addr: netip.MustParseAddrPort(packets.LocalAddr().String())}
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		s.mu.Lock()
		s.saw = append(s.saw, q)
		s.from = append(s.from, w.RemoteAddr().String())
		s.mu.Unlock()
		s.asked.Add(1)
		answer(w, q)
	})
	var all sync.WaitGroup
	t.Cleanup(all.Wait) // after those below
	for _, d := range []*dns.Server{{PacketConn: packets, Handler: handler}, {Listener: l, Handler: handler}} {
		started := make(chan struct{})
		d.NotifyStartedFunc = func() { close(started) }
		all.Go(func() { d.ActivateAndServe() })
		<-started
		t.Cleanup(func() { d.Shutdown() })
	}
	return s
}

// raw runs an upstream that does with packets what it likes, and no TCP.
func raw(t testing.TB, reply func(query []byte, send func([]byte))) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		buffer := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			reply(buffer[:n:n], func(m []byte) { conn.WriteTo(m, from) })
		}
	})
	t.Cleanup(func() { conn.Close(); all.Wait() })
	return netip.MustParseAddrPort(conn.LocalAddr().String())
}

// nobody is an address where nobody listens.
func nobody(t testing.TB) netip.AddrPort {
	address, _ := vacant(t)
	return address
}

// vacant is an address where nobody listens, and that no other program gets before it is let
// go: the socket that has it takes packets of one sender only, for which there is no use.
func vacant(t testing.TB) (address netip.AddrPort, let func()) {
	t.Helper()
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return netip.MustParseAddrPort(conn.LocalAddr().String()), func() { conn.Close() }
}

// silent is an upstream that never answers.
func silent(t testing.TB) netip.AddrPort { return raw(t, func([]byte, func([]byte)) {}) }

// records answers with records in zone-file syntax.
func records(t testing.TB, lines ...string) func(dns.ResponseWriter, *dns.Msg) {
	return func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		for _, line := range lines {
			m.Answer = append(m.Answer, rr(t, line))
		}
		w.WriteMsg(m)
	}
}

func rr(t testing.TB, line string) dns.RR {
	r, err := dns.NewRR(line)
	if err != nil || r == nil {
		t.Errorf("record %q: %v", line, err)
	}
	return r
}

// forwarder makes one, with time for its upstreams where nothing else is said; what it has
// under way is waited for when the test ends.
func forwarder(t testing.TB, cfg Config, upstreams ...netip.AddrPort) *Forwarder {
	t.Helper()
	cfg.Upstreams = upstreams
	cfg.Timeout, cfg.Patience = cmp.Or(cfg.Timeout, soon), cmp.Or(cfg.Patience, soon)
	f, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.end()
		eventually(t, "nothing is under way", func() bool { return f.pending.Load() == 0 })
	})
	return f
}

// run runs a forwarder until the test ends.
func run(t testing.TB, f *Forwarder) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { f.Run(ctx) })
	t.Cleanup(func() { cancel(); all.Wait() })
}

// query makes one as a client with EDNS does.
func query(name string, kind uint16) *dns.Msg {
	return new(dns.Msg).SetQuestion(name, kind).SetEdns0(1232, false)
}

// ask forwards a query and checks what holds for every response.
func ask(t testing.TB, f *Forwarder, q *dns.Msg) *dns.Msg {
	t.Helper()
	packed, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	m := new(dns.Msg)
	response := f.Forward(t.Context(), packed, nil)
	if err := m.Unpack(response); err != nil {
		t.Fatalf("response %x: %v", response, err)
	}
	if m.Id != q.Id || !m.Response || len(m.Question) != 1 || m.Question[0] != q.Question[0] {
		t.Fatalf("a response to something else: %s\nto %s", m, q)
	}
	if (m.IsEdns0() != nil) != (q.IsEdns0() != nil) {
		t.Fatalf("EDNS in the query %v, in the response %v", q.IsEdns0() != nil, m.IsEdns0() != nil)
	}
	if m.IsEdns0() != nil && m.Extra[len(m.Extra)-1] != dns.RR(m.IsEdns0()) {
		t.Fatalf("the OPT is not last: %s", m)
	}
	return m
}

// extended are the extended errors of a response.
func extended(m *dns.Msg) (all []*dns.EDNS0_EDE) {
	if opt := m.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if e, ok := o.(*dns.EDNS0_EDE); ok {
				all = append(all, e)
			}
		}
	}
	return all
}

// age makes all that is kept so much older.
func age(f *Forwarder, by time.Duration) {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	for _, e := range f.cache.byKey {
		k := e.Value.(*kept)
		older := *k.answer
		older.stored, older.expires = older.stored.Add(-by), older.expires.Add(-by)
		k.answer = &older
	}
}

// eventually waits until something holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so after %s: %s", soon, what)
		}
	}
}
