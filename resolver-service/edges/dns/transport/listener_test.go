package transport

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func TestUDPAndTCPOnOnePort(t *testing.T) {
	r := serve(t, Config{As: catalog.App{Namespace: "shop", ID: "checkout"}})
	for _, network := range []string{"udp", "tcp"} {
		got := texts(t, ask(t, network, r.addr, "a.isthmus.internal"))
		if from, err := netip.ParseAddrPort(got[0]); err != nil || from.Addr() != netip.MustParseAddr("127.0.0.1") {
			t.Errorf("%s: from %s, want 127.0.0.1", network, got[0])
		}
		if want := []string{"127.0.0.1", "shop/checkout"}; !slices.Equal(got[1:], want) {
			t.Errorf("%s: to and as %v, want %v", network, got[1:], want)
		}
	}
	for _, p := range []Protocol{UDP, TCP} {
		eventually(t, "every query that came is counted as answered", func() bool { // when it is sent
			c := r.Counters().Traffic[p]
			return c.Queries >= 1 && c.Responses == c.Queries && c.Dropped == 0
		})
	}
}

func TestAnswerComesFromTheAddressThatWasAsked(t *testing.T) {
	six := hasIPv6()
	for _, test := range []struct{ listen, ask string }{
		{"0.0.0.0:0", "127.0.0.1"},
		{"0.0.0.0:0", "127.0.0.5"},
		{":0", "127.0.0.5"},
		{"[::]:0", "127.0.0.5"},
		{"[::]:0", "::1"},
		{"[::1]:0", "::1"},
		{"127.0.0.7:0", "127.0.0.7"},
	} {
		t.Run(test.listen+" asked at "+test.ask, func(t *testing.T) {
			if strings.Contains(test.listen+test.ask, "::") && !six {
				t.Skip("this machine has no IPv6")
			}
			r := serve(t, Config{Address: test.listen})
			for _, name := range []string{"a.isthmus.internal", "later.isthmus.internal"} {
				if strings.HasPrefix(name, "later") {
					close(r.answers.release)
				}
				// The client's socket is connected: it takes a response from nowhere else.
				for _, network := range []string{"udp", "tcp"} {
					got := texts(t, ask(t, network, net.JoinHostPort(test.ask, r.port()), name))
					if got[1] != test.ask {
						t.Errorf("%s by %s: sent to %s, want %s", name, network, got[1], test.ask)
					}
					if from := netip.MustParseAddrPort(got[0]).Addr(); from.Is4In6() || !from.IsLoopback() {
						t.Errorf("%s by %s: from %s", name, network, from)
					}
				}
			}
		})
	}
}

func hasIPv6() bool {
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		return false
	}
	l.Close()
	return true
}

func TestPortInUse(t *testing.T) {
	r := serve(t, Config{})
	if l, err := Listen(Config{Address: r.addr}); err == nil {
		l.Close()
		t.Error("two listeners have one port")
	} else if !strings.Contains(err.Error(), r.addr) {
		t.Errorf("the error does not say where: %v", err)
	}
	var tcp net.Listener
	for range portTries { // of which other programs may have one by TCP
		udp, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer udp.Close()
		taken := udp.LocalAddr().String()
		if l, err := Listen(Config{Address: taken}); err == nil {
			l.Close()
			t.Error("listens by UDP where another one does")
		}
		if tcp, err = net.Listen("tcp", taken); err == nil {
			tcp.Close()
			return
		}
	}
	t.Error("TCP is left open where UDP can't be listened to")
}

func TestAddressThatIsNone(t *testing.T) {
	for _, address := range []string{"", "127.0.0.1", "127.0.0.1:domainn", "no such host:53"} {
		if l, err := Listen(Config{Address: address}); err == nil {
			l.Close()
			t.Errorf("%q: listens", address)
		} else if !strings.Contains(err.Error(), "host:port") {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestRestartOnTheSamePort(t *testing.T) {
	const restarts = 5
	r, lost := serve(t, Config{}), 0
	for range restarts {
		ask(t, "tcp", r.addr, "a.isthmus.internal")
		r.stop()
		l, err := Listen(patient(Config{Address: r.addr}))
		if err != nil { // another program may be quicker
			t.Log(err)
			r, lost = serve(t, Config{}), lost+1
			continue
		}
		r = serveAt(t, l, r.answers)
		ask(t, "udp", r.addr, "a.isthmus.internal")
	}
	if lost > 1 {
		t.Errorf("%d of %d restarts found the port taken", lost, restarts)
	}
}

// TestEndWhileTrafficFlows ends Serve under queries; goleak sees whether all of it ended.
func TestEndWhileTrafficFlows(t *testing.T) {
	r := serve(t, Config{})
	close(r.answers.release)
	var clients sync.WaitGroup
	defer clients.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for i := range 8 {
		network := []string{"udp", "tcp"}[i%2]
		name := []string{"a.isthmus.internal", "later.isthmus.internal"}[i/2%2]
		clients.Go(func() {
			for ctx.Err() == nil {
				c := dns.Client{Net: network, Timeout: 100 * time.Millisecond}
				_, _, _ = c.ExchangeContext(ctx, question(name), r.addr) // fails once there is no server
			}
		})
	}
	eventually(t, "traffic", func() bool {
		c := r.Counters()
		return c.Traffic[UDP].Responses > 100 && c.Traffic[TCP].Responses > 100
	})
	r.stop()
}

// A client that has connected, or that has sent a part of its query, when the listener is told to
// end, has its answer: a reset would be all that it hears otherwise.
func TestALastQueryIsAnswered(t *testing.T) {
	r := serve(t, Config{last: patience})
	fresh, half := dial(t, r), dial(t, r)
	query := frame(t, "a.isthmus.internal.")
	if _, err := half.Conn.Write(query[:5]); err != nil {
		t.Fatal(err)
	}
	idle := dial(t, r)
	exchange(t, idle, "a.isthmus.internal.")
	eventually(t, "all are taken", func() bool { return r.Counters().Open == 3 })
	ended := make(chan struct{})
	go func() { r.stop(); close(ended) }()
	time.Sleep(20 * time.Millisecond) // the listener is told by then, and else this tests less
	texts(t, exchange(t, fresh, "a.isthmus.internal."))
	if _, err := half.Conn.Write(query[5:]); err != nil {
		t.Fatal(err)
	}
	m, err := half.ReadMsg()
	if err != nil {
		t.Fatal(err)
	}
	texts(t, m)
	<-ended
	if !closed(idle.Conn) {
		t.Error("an idle connection is still open")
	}
}

// The same for clients that connect while the listener ends, by TCP and by TLS. Those whose
// connections were not accepted have a successor, which has the same socket.
func TestWhoConnectsAtTheEndIsAnswered(t *testing.T) {
	server, trusting := tlsPair(t)
	for protocol, configs := range map[string][2]*tls.Config{"tcp": {}, "tcp-tls": {server, trusting}} {
		t.Run(protocol, func(t *testing.T) {
			for range 30 {
				connectAtTheEnd(t, configs[0], configs[1])
			}
		})
	}
}

func connectAtTheEnd(t *testing.T, server, client *tls.Config) {
	t.Helper()
	r := serve(t, Config{TLS: server, last: patience})
	file, err := r.TCP().(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	successor, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var mu sync.Mutex
	failed, left := map[string]error{}, map[string]bool{} // by the client's address
	for range 8 {
		clients.Go(func() {
			for ctx.Err() == nil {
				raw, err := net.Dial("tcp", r.addr)
				if err != nil {
					t.Error(err)
					return
				}
				conn := &dns.Conn{Conn: raw}
				if client != nil {
					conn.Conn = tls.Client(raw, client)
				}
				raw.SetDeadline(time.Now().Add(patience))
				if err = conn.WriteMsg(question("a.isthmus.internal.")); err == nil {
					_, err = conn.ReadMsg()
				}
				if err != nil {
					mu.Lock()
					failed[raw.LocalAddr().String()] = err
					mu.Unlock()
				}
				conn.Close()
			}
		})
	}
	eventually(t, "they ask", func() bool { return r.Counters().Traffic[TCP].Queries+r.Counters().Traffic[TLS].Queries > 20 })
	r.stop()
	stop()
	accepting := make(chan struct{})
	go func() {
		defer close(accepting)
		for {
			conn, err := successor.Accept()
			if err != nil {
				return
			}
			conn.Close()
			mu.Lock()
			left[conn.RemoteAddr().String()] = true
			mu.Unlock()
		}
	}()
	clients.Wait()
	successor.Close()
	<-accepting
	for from, err := range failed {
		if !left[from] {
			t.Errorf("%s: %v", from, err)
		}
	}
}

func TestQueriesUnderWayFinish(t *testing.T) {
	for _, network := range []string{"udp", "tcp"} {
		t.Run(network, func(t *testing.T) {
			l, err := Listen(Config{Address: "127.0.0.1:0"})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			h := &answers{release: make(chan struct{})}
			served := make(chan error, 1)
			go func() { served <- l.Serve(ctx, h, slog.New(slog.DiscardHandler)) }()
			asked := make(chan *dns.Msg, 1)
			go func() { asked <- ask(t, network, l.Addr().String(), "later.isthmus.internal") }()
			eventually(t, "a query is waited for", func() bool {
				c := l.Counters()
				return c.Traffic[UDP].Waited+c.Traffic[TCP].Waited > 0
			})
			cancel()
			close(h.release)
			if err := <-served; err != nil {
				t.Error(err)
			}
			texts(t, <-asked)
		})
	}
}

func TestWhatCantBeWaitedForIsServFail(t *testing.T) {
	r := serve(t, Config{MaxWaiting: 4}) // half of it for one client
	var clients sync.WaitGroup
	var failed atomic.Int32
	for range 5 {
		clients.Go(func() {
			if ask(t, "tcp", r.addr, "later.isthmus.internal").Rcode == dns.RcodeServerFailure {
				failed.Add(1)
			}
		})
	}
	eventually(t, "three are refused", func() bool { return failed.Load() == 3 })
	if m := ask(t, "udp", r.addr, "later.isthmus.internal"); m.Rcode != dns.RcodeServerFailure {
		t.Errorf("by UDP: %v", m)
	}
	texts(t, ask(t, "udp", r.addr, "a.isthmus.internal")) // what needs no waiting is answered
	close(r.answers.release)
	clients.Wait()
	eventually(t, "two are counted as waited for, and three and that by UDP as refused", func() bool {
		c := r.Counters()
		return c.Traffic[TCP].Waited == 2 && c.Traffic[TCP].Overload == 3 && c.Traffic[UDP].Overload >= 1
	})
}

// eventually waits until something is so.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}
