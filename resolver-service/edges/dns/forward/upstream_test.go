package forward

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

// good answers any query with one address.
func good(t testing.TB) func(dns.ResponseWriter, *dns.Msg) {
	return func(w dns.ResponseWriter, q *dns.Msg) {
		records(t, q.Question[0].Name+" 60 A 192.0.2.1")(w, q)
	}
}

func TestTheNextUpstreamIsAsked(t *testing.T) {
	code := func(rcode int) netip.AddrPort {
		return serve(t, func(w dns.ResponseWriter, q *dns.Msg) { w.WriteMsg(new(dns.Msg).SetRcode(q, rcode)) }).addr
	}
	for _, c := range []struct {
		name  string
		first netip.AddrPort
	}{
		{"where nobody listens", nobody(t)},
		{"where nobody answers", silent(t)},
		{"on SERVFAIL", code(dns.RcodeServerFailure)},
		{"on REFUSED", code(dns.RcodeRefused)},
		{"on NOTIMP", code(dns.RcodeNotImplemented)},
		{"on a code that nobody knows", code(4000)},
		{"on what is no message", raw(t, func(q []byte, send func([]byte)) { send([]byte("hello")); send(nil) })},
	} {
		second := serve(t, good(t))
		f := forwarder(t, Config{Patience: 100 * time.Millisecond, Timeout: soon}, c.first, second.addr)
		if m := ask(t, f, query("a.test.", dns.TypeA)); len(m.Answer) != 1 {
			t.Errorf("%s: got %s", c.name, m)
		}
	}
}

func TestWhereNoUpstreamAnswersAllAreNamed(t *testing.T) {
	gone, quiet := nobody(t), silent(t)
	f := forwarder(t, Config{Patience: 20 * time.Millisecond, Timeout: 300 * time.Millisecond}, gone, quiet)
	asked := 0
	eventually(t, "it says how it was with each", func() bool { // a slow machine has not heard of the refusal
		asked++
		m := ask(t, f, query(fmt.Sprintf("a%d.test.", asked), dns.TypeA))
		e := extended(m)
		if m.Rcode != dns.RcodeServerFailure || len(e) != 1 || e[0].InfoCode != dns.ExtendedErrorCodeNoReachableAuthority {
			t.Fatalf("got %s", m)
		}
		text := e[0].ExtraText
		return strings.Contains(text, gone.String()+": read: connection refused") && strings.Contains(text, quiet.String()+": i/o timeout")
	})
	if plain := ask(t, f, new(dns.Msg).SetQuestion("b.test.", dns.TypeA)); plain.Rcode != dns.RcodeServerFailure {
		t.Errorf("without EDNS %s", plain)
	}
}

// forge changes a copy of a right answer.
func forge(t testing.TB, q []byte, change func(m *dns.Msg)) []byte {
	m := new(dns.Msg)
	if err := m.Unpack(q); err != nil {
		t.Error(err)
	}
	a := new(dns.Msg).SetReply(m)
	a.Answer = []dns.RR{rr(t, m.Question[0].Name+" 60 A 203.0.113.66")}
	change(a)
	packed, err := a.Pack()
	if err != nil {
		t.Error(err)
	}
	return packed
}

func TestLiesAreNotBelieved(t *testing.T) {
	lies := map[string]func(m *dns.Msg){
		"another id":       func(m *dns.Msg) { m.Id++ },
		"another name":     func(m *dns.Msg) { m.Question[0].Name = "b.test." },
		"another type":     func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAAAA },
		"another class":    func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS },
		"no question":      func(m *dns.Msg) { m.Question = nil },
		"two questions":    func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) },
		"a query":          func(m *dns.Msg) { m.Response = false },
		"another opcode":   func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify },
		"a longer name":    func(m *dns.Msg) { m.Question[0].Name = "a.test.test." },
		"an error, no EDE": func(m *dns.Msg) { m.Question, m.Answer, m.Rcode = nil, nil, dns.RcodeNameError },
	}
	for name, lie := range lies {
		upstream := raw(t, func(q []byte, send func([]byte)) {
			send(forge(t, q, lie))
			send([]byte{q[0], q[1], 0x80})
			cut := forge(t, q, func(*dns.Msg) {})
			send(cut[:len(cut)-2])
			send(forge(t, q, func(m *dns.Msg) { m.Answer = []dns.RR{rr(t, "a.test. 60 A 192.0.2.1")} }))
		})
		f := forwarder(t, Config{Timeout: soon, Patience: soon}, upstream)
		m := ask(t, f, query("a.test.", dns.TypeA))
		if len(m.Answer) != 1 || m.Answer[0].(*dns.A).A.String() != "192.0.2.1" {
			t.Errorf("%s: got %s", name, m)
		}
	}
}

func TestAnotherSenderIsNotBelieved(t *testing.T) {
	other, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	ports := make(chan netip.AddrPort, 100)
	s := serve(t, func(w dns.ResponseWriter, q *dns.Msg) {
		packed, _ := q.Pack()
		if _, err := other.WriteTo(forge(t, packed, func(*dns.Msg) {}), w.RemoteAddr()); err != nil {
			t.Error(err)
		}
		ports <- netip.MustParseAddrPort(w.RemoteAddr().String())
		good(t)(w, q)
	})
	f := forwarder(t, Config{Timeout: soon, Patience: soon}, s.addr)
	seen := map[uint16]bool{}
	ids := map[uint16]bool{}
	for i := range 50 {
		m := ask(t, f, query(fmt.Sprintf("n%d.test.", i), dns.TypeA))
		if len(m.Answer) != 1 || m.Answer[0].(*dns.A).A.String() != "192.0.2.1" {
			t.Fatalf("got %s", m)
		}
		seen[(<-ports).Port()] = true
		ids[s.last().Id] = true
	}
	if len(seen) < 40 || len(ids) < 45 {
		t.Errorf("50 queries had %d ports and %d ids", len(seen), len(ids))
	}
}

func TestWhoGuessesIDsIsLeftForTCP(t *testing.T) {
	s := serve(t, func(w dns.ResponseWriter, q *dns.Msg) {
		if w.RemoteAddr().Network() == "tcp" {
			good(t)(w, q)
			return
		}
		packed, _ := q.Pack()
		for id := range uint16(200) {
			w.Write(forge(t, packed, func(m *dns.Msg) { m.Id = q.Id + 1 + id }))
		}
		w.Write(forge(t, packed, func(*dns.Msg) {}))
	})
	f := forwarder(t, Config{Timeout: soon, Patience: soon}, s.addr)
	if m := ask(t, f, query("a.test.", dns.TypeA)); len(m.Answer) != 1 || m.Answer[0].(*dns.A).A.String() != "192.0.2.1" {
		t.Errorf("got %s", m)
	}
}

func TestWhatIsCutIsAskedOverTCP(t *testing.T) {
	s := serve(t, func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if w.RemoteAddr().Network() == "udp" {
			m.Truncated = true
			w.WriteMsg(m)
			return
		}
		for i := range 2000 {
			m.Answer = append(m.Answer, rr(t, fmt.Sprintf("a.test. 60 A 10.0.%d.%d", i/250, i%250)))
		}
		w.WriteMsg(m)
	})
	f := forwarder(t, Config{Timeout: soon, Patience: soon}, s.addr)
	q := query("a.test.", dns.TypeA)
	if m := ask(t, f, q); len(m.Answer) != 2000 || m.Truncated {
		t.Fatalf("got %d records", len(m.Answer))
	}
	packed, _ := q.Pack()
	for _, limit := range []int{512, 1232, 4096} {
		cut := wire.Truncate(f.Forward(t.Context(), packed, nil), limit)
		m := new(dns.Msg)
		if err := m.Unpack(cut); err != nil || len(cut) > limit || len(cut) < limit-16 || !m.Truncated || m.IsEdns0() == nil || len(m.Answer) == 0 {
			t.Errorf("cut to %d: %d bytes, %v: %v", limit, len(cut), err, m)
		}
	}
}

func TestAnUpstreamThatDoesNotKnowEDNS(t *testing.T) {
	for name, bare := range map[string]bool{"with the question": false, "with a header only": true} {
		s := serve(t, func(w dns.ResponseWriter, q *dns.Msg) {
			m := new(dns.Msg).SetRcode(q, dns.RcodeFormatError)
			switch {
			case q.IsEdns0() == nil:
				good(t)(w, q)
				return
			case bare:
				m.Question = nil
			}
			w.WriteMsg(m)
		})
		f := forwarder(t, Config{Timeout: soon, Patience: soon}, s.addr)
		if m := ask(t, f, query("a.test.", dns.TypeA)); len(m.Answer) != 1 {
			t.Errorf("%s: got %s", name, m)
		}
	}
}

func TestOptionsOfClientsGoNoFurther(t *testing.T) {
	s := serve(t, good(t))
	f := forwarder(t, Config{}, s.addr)
	q := query("a.test.", dns.TypeA)
	q.IsEdns0().Option = []dns.EDNS0{
		&dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 32, Address: net.IPv4(10, 1, 2, 3)},
		&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0102030405060708"},
		&dns.EDNS0_NSID{Code: dns.EDNS0NSID},
		&dns.EDNS0_PADDING{Padding: make([]byte, 50)},
	}
	ask(t, f, q)
	got := s.last().IsEdns0().Option
	if len(got) != 0 {
		t.Errorf("the upstream got %v", got)
	}
}

func TestOneThatIsNoResponseIsAnError(t *testing.T) {
	s := serve(t, func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		m.Question[0].Name = "another.test."
		for range maxMisfits {
			w.WriteMsg(m)
		}
	})
	f := forwarder(t, Config{Timeout: soon, Patience: soon}, s.addr)
	if e := extended(ask(t, f, query("a.test.", dns.TypeA))); len(e) != 1 || e[0].InfoCode != dns.ExtendedErrorCodeNoReachableAuthority {
		t.Errorf("got %v", e)
	}
}

func TestTheEndOfRunEndsWhatIsUnderWay(t *testing.T) {
	f := forwarder(t, Config{Timeout: soon, Patience: soon}, silent(t))
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { f.Run(ctx) })
	all.Go(func() {
		if m := ask(t, f, query("a.test.", dns.TypeA)); m.Rcode != dns.RcodeServerFailure {
			t.Errorf("got %s", m)
		}
	})
	eventually(t, "one is under way", func() bool { return f.Counters().Flights == 1 })
	cancel()
	all.Wait()
	if m := ask(t, f, query("b.test.", dns.TypeA)); m.Rcode != dns.RcodeServerFailure {
		t.Errorf("afterwards %s", m)
	}
}

func TestNamesOfAnyBytes(t *testing.T) {
	s := serve(t, good(t))
	f := forwarder(t, Config{}, s.addr)
	for _, label := range [][]byte{{0}, {'.'}, []byte(`a\b"c;`), bytes.Repeat([]byte{0xff}, 63), []byte("xn--bcher-kva"), []byte("*"), []byte("bücher")} {
		q := binary.BigEndian.AppendUint16(nil, 7)
		q = append(q, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, byte(len(label)))
		q = append(append(q, label...), 0, 0, 1, 0, 1)
		response := f.Forward(t.Context(), q, nil)
		m := new(dns.Msg)
		if err := m.Unpack(response); err != nil || m.Rcode != 0 || len(m.Answer) != 1 || !bytes.Equal(response[12:len(q)], q[12:]) {
			t.Errorf("label %q: %v: %s", label, err, m)
		}
	}
}

func TestQueriesUnderWayAreBounded(t *testing.T) {
	f := forwarder(t, Config{MaxQueries: 5}, silent(t))
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range 5 {
		all.Go(func() {
			packed, _ := query(fmt.Sprintf("n%d.test.", i), dns.TypeA).Pack()
			f.Forward(ctx, packed, nil)
		})
	}
	eventually(t, "five are under way", func() bool { return f.Counters().Flights == 5 })
	m := ask(t, f, query("another.test.", dns.TypeA))
	if e := extended(m); m.Rcode != dns.RcodeServerFailure || len(e) != 1 || !strings.Contains(e[0].ExtraText, "too many") {
		t.Errorf("the sixth: %s", m)
	}
	cancel()
	all.Wait()
}

func TestAnUpstreamGoesDownAndComesBack(t *testing.T) {
	first, let := vacant(t)
	second := serve(t, good(t))
	f := forwarder(t, Config{}, first, second.addr)
	asked := 0
	next := func() {
		asked++
		if m := ask(t, f, query(fmt.Sprintf("n%d.test.", asked), dns.TypeA)); len(m.Answer) != 1 {
			t.Fatalf("got %s", m)
		}
	}
	for range failuresToDown {
		next()
	}
	s := f.Status()
	if s[0].Up || s[0].Err == nil || s[0].Since.IsZero() || !s[1].Up {
		t.Fatalf("status %+v", s)
	}
	if order := f.inOrder(time.Now()); order[0].address != second.addr {
		t.Error("it is asked first while it is down")
	}
	if order := f.inOrder(time.Now().Add(downFor)); order[0].address != first {
		t.Errorf("it is not asked again after %s", downFor)
	}
	let()
	conn, err := net.ListenPacket("udp", first.String())
	if err != nil {
		t.Skipf("the port has gone to another program: %v", err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		buffer := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			conn.WriteTo(forge(t, buffer[:n], func(*dns.Msg) {}), from)
		}
	})
	defer all.Wait()
	defer conn.Close()
	for end := time.Now().Add(time.Minute); !f.Status()[0].Up; { // once its answer came in time
		if time.Now().After(end) {
			t.Fatalf("after answers: %+v", f.Status())
		}
		f.upstreams[0].failed = time.Now().Add(-downFor)
		next()
	}
}
