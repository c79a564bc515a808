package forward

import (
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// relay is a server that hands all it is asked to a forwarder, with its EDNS options or
// without.
func relay(t testing.TB, to *atomic.Pointer[Forwarder], options bool) netip.AddrPort {
	return raw(t, func(query []byte, send func([]byte)) {
		q := new(dns.Msg)
		f := to.Load()
		if err := q.Unpack(query); err != nil || f == nil {
			return
		}
		if !options {
			q.Extra = nil
		}
		packed, _ := q.Pack()
		go func() { send(f.Forward(t.Context(), packed, nil)) }()
	})
}

// A query that comes back waits for itself, since equal questions share one flight.
func TestAQueryThatComesBackEnds(t *testing.T) {
	const moment = 500 * time.Millisecond
	for name, c := range map[string]struct{ options, behind bool }{
		"an upstream that passes options on":  {options: true},
		"one that does not":                   {},
		"another of us between, with options": {options: true, behind: true},
	} {
		var end, middle atomic.Pointer[Forwarder]
		first := relay(t, &end, c.options)
		if c.behind {
			m := forwarder(t, Config{Timeout: moment}, first)
			middle.Store(m)
			first = relay(t, &middle, true)
		}
		f := forwarder(t, Config{Timeout: moment}, first)
		end.Store(f)
		m := ask(t, f, query("a.test.", dns.TypeA))
		if m.Rcode != dns.RcodeServerFailure {
			t.Errorf("%s: got %s", name, m)
		}
		if got := f.Counters(); got.Misses > 10 {
			t.Errorf("%s: counted %+v", name, got)
		}
	}
}

func TestAnUpstreamIsNotThisServer(t *testing.T) {
	for _, c := range []struct {
		upstream, own, want string
	}{
		{"127.0.0.1:7453", "127.0.0.1:7453", "back to this server"},
		{"127.0.0.1:7453", "0.0.0.0:7453", "back to this server"},
		{"[::1]:7453", "[::]:7453", "back to this server"},
		{"[::ffff:127.0.0.1]:53", "127.0.0.1:53", "back to this server"},
		{"127.0.0.1:0", "127.0.0.1:53", "back to this server"},
		{"127.0.0.2:53", "127.0.0.1:53", ""},
		{"192.0.2.1:53", "0.0.0.0:53", ""},
		{"0.0.0.0:53", "127.0.0.1:7453", "give the address of a resolver"},
	} {
		_, err := New(Config{Upstreams: []netip.AddrPort{netip.MustParseAddrPort(c.upstream)}, Own: []netip.AddrPort{netip.MustParseAddrPort(c.own)}}, nil)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("upstream %s of %s: %v, want %q", c.upstream, c.own, err, c.want)
		}
	}
	if _, err := New(Config{}, nil); err == nil {
		t.Error("a forwarder without upstreams")
	}
}
