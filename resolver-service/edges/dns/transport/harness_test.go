package transport

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// patience is how long a test waits for what has to happen at all.
const patience = 60 * time.Second

// answers answers every A query with one address, and does with some names what they say.
type answers struct {
	release  chan struct{} // what is waited for waits for this to be closed
	standing Standing
}

func (a *answers) Answer(q *Query, out []byte) ([]byte, bool) {
	q.Standing = a.standing
	switch {
	case bytes.Contains(q.Packet, []byte("\x05later")):
		return nil, true
	case bytes.Contains(q.Packet, []byte("\x06silent")):
		return nil, false
	}
	return a.build(q, out), false
}

func (a *answers) Wait(ctx context.Context, q *Query, out []byte) []byte {
	select {
	case <-a.release:
	case <-ctx.Done():
	}
	return a.build(q, out)
}

// build answers with whom the query was sent to, by whom, as A or AAAA and TXT.
func (a *answers) build(q *Query, out []byte) []byte {
	var query, m dns.Msg
	if query.Unpack(q.Packet) != nil || len(query.Question) != 1 {
		return servFail(out, q.Packet)
	}
	m.SetReply(&query)
	m.Authoritative = true
	name := query.Question[0].Name
	header := dns.RR_Header{Name: name, Class: dns.ClassINET, Ttl: 5, Rrtype: dns.TypeTXT}
	switch {
	case bytes.Contains(q.Packet, []byte("\x07missing")):
		m.Rcode = dns.RcodeNameError
		soa, _ := dns.NewRR("isthmus.internal. 5 IN SOA ns.isthmus.internal. x.isthmus.internal. 1 1 1 1 5")
		m.Ns = append(m.Ns, soa)
	case bytes.Contains(q.Packet, []byte("\x05large")):
		for range 200 {
			m.Answer = append(m.Answer, &dns.TXT{Hdr: header, Txt: []string{string(bytes.Repeat([]byte("x"), 250))}})
		}
	default:
		m.Answer = append(m.Answer, &dns.TXT{Hdr: header, Txt: []string{q.From.String(), q.To.String(), q.As.String()}})
	}
	if query.IsEdns0() != nil {
		m.SetEdns0(1232, false)
	}
	m.Compress = true
	packed, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return append(out, packed...)
}

// running is a listener that is served.
type running struct {
	*Listener
	answers *answers
	addr    string
	stop    func() // ends Serve and waits for it
}

// serve starts a listener, on loopback if nothing else is said; it ends with the test.
func serve(t testing.TB, cfg Config) *running {
	t.Helper()
	return serveWith(t, cfg, &answers{release: make(chan struct{})})
}

func serveWith(t testing.TB, cfg Config, h *answers) *running {
	t.Helper()
	if cfg.Address == "" {
		cfg.Address = "127.0.0.1:0"
	}
	l, err := Listen(patient(cfg))
	if err != nil {
		t.Fatal(err)
	}
	return serveAt(t, l, h)
}

// patient is a configuration with patience where it says nothing.
func patient(cfg Config) Config {
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, 10*patience)
	cfg.WaitTimeout = cmp.Or(cfg.WaitTimeout, patience)
	cfg.stall = cmp.Or(cfg.stall, patience)
	return cfg
}

func serveAt(t testing.TB, l *Listener, h *answers) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Serve(ctx, h, slog.New(slog.DiscardHandler)) }()
	r := &running{Listener: l, answers: h, addr: l.Addr().String()}
	r.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(patience):
			t.Fatal("Serve did not end")
		}
	})
	t.Cleanup(r.stop)
	return r
}

// port is the port of the listener, for another address.
func (r *running) port() string {
	_, port, _ := net.SplitHostPort(r.addr)
	return port
}

func question(name string) *dns.Msg {
	m := new(dns.Msg)
	return m.SetQuestion(dns.Fqdn(name), dns.TypeTXT)
}

// ask asks by "udp" or "tcp"; by UDP again where a packet was lost, as clients do.
func ask(t testing.TB, network, addr, name string) *dns.Msg {
	t.Helper()
	c := dns.Client{Net: network, Timeout: patience}
	if network == "udp" {
		c.Timeout = patience / 6
	}
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); {
		var m *dns.Msg
		if m, _, err = c.Exchange(question(name), addr); err == nil {
			return m
		}
		if e := net.Error(nil); !errors.As(err, &e) || !e.Timeout() {
			break
		}
	}
	t.Fatalf("%s by %s of %s: %v", name, network, addr, err)
	return nil
}

// texts are the strings of the only answer of a response.
func texts(t testing.TB, m *dns.Msg) []string {
	t.Helper()
	if len(m.Answer) != 1 {
		t.Fatalf("answers: %v", m)
	}
	return m.Answer[0].(*dns.TXT).Txt
}
