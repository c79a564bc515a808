package dns

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/forward"
)

// TestNamesOfOurOwnAreAskedThroughTheForwarder, once for two lookups.
func TestNamesOfOurOwnAreAskedThroughTheForwarder(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	upstream := &dns.Server{PacketConn: conn, NotifyStartedFunc: func() { close(started) }, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.IPv4(192, 0, 2, 7)}}
		w.WriteMsg(m)
	})}
	var served sync.WaitGroup
	served.Go(func() { upstream.ActivateAndServe() })
	<-started
	defer served.Wait()
	defer upstream.Shutdown()
	f, err := forward.New(forward.Config{Upstreams: []netip.AddrPort{netip.MustParseAddrPort(conn.LocalAddr().String())}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // asked, and from the cache
		got, err := through(f).LookupNetIP(t.Context(), "ip4", "gw.east.example.")
		if err != nil || len(got) != 1 || got[0] != netip.MustParseAddr("192.0.2.7") {
			t.Errorf("got %v, %v", got, err)
		}
	}
	if c := f.Counters(); c.Misses != 1 || c.Hits != 1 {
		t.Errorf("counted %+v", c)
	}
}
