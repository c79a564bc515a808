package gateway

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
)

func TestShares(t *testing.T) {
	from := func(s string) *admitted { return &admitted{from: netip.AddrPortFrom(netip.MustParseAddr(s), 1)} }
	s := newShares(&Config{MaxConnections: 100, MaxPerSource: 10, MaxPeers: DefaultMaxPeers})
	fill := func(n int, over reason, address func(i int) string) (in []*admitted) {
		t.Helper()
		for i := range n {
			a := from(address(i))
			if got := s.admit(a); got != "" {
				t.Fatalf("%s: %s, want it let in", address(i), got)
			}
			in = append(in, a)
		}
		if got := s.admit(from(address(n))); got != over {
			t.Errorf("%s, after %d: %q, want %q", address(n), n, got, over)
		}
		return in
	}
	one := func(address string) func(int) string { return func(int) string { return address } }
	all := fill(10, sourceShare, one("10.1.0.1"))
	all = append(all, fill(5, sourceShare, func(i int) string { return fmt.Sprintf("10.1.0.%d", i+2) })...)     // its /24 has 15
	all = append(all, fill(10, sourceShare, func(i int) string { return fmt.Sprintf("2001:db8:1::%d", i) })...) // one /64
	all = append(all, fill(5, sourceShare, func(i int) string { return fmt.Sprintf("2001:db8:1:%d::1", i+1) })...)
	all = append(all, fill(10, sourceShare, one("::ffff:10.2.0.1"))...)
	if got := s.admit(from("10.2.0.1")); got != sourceShare {
		t.Errorf("the same address in IPv4: %q", got)
	}
	all = append(all, fill(60, tooMany, func(i int) string { return fmt.Sprintf("10.3.%d.1", i) })...)
	peer := from("10.1.0.1")
	peer.place = inReserve
	if !s.toPeers(peer) || !s.toPeers(all[0]) {
		t.Error("bounds of apps keep a peer out")
	}
	for range maxPeersPerSource - 2 {
		p := from("10.1.0.1")
		if p.place = inReserve; !s.toPeers(p) {
			t.Fatal("a peer's source has less than its share")
		}
		all = append(all, p)
	}
	if p := from("10.1.0.1"); s.toPeers(p) {
		t.Error("one source has more than its share of peers")
	}
	for _, a := range append(all, peer) {
		s.remove(a)
	}
	if s.apps != 0 || s.peers != 0 || len(s.sources)+len(s.networks)+len(s.peersOf) != 0 {
		t.Errorf("with nothing left there is %+v", s)
	}
}

// callFrom is call from an address of loopback.
func callFrom(t *testing.T, source, addr, host string) (name string, conn *tls.Conn, err error) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		t.Skipf("no connection from %s: %v", source, err)
	}
	t.Cleanup(func() { c.Close() })
	conn = tls.Client(c, clientConfig(host))
	name, err = readLine(conn)
	return name, conn, err
}

func TestASourceLeavesConnectionsToOthers(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		gw := serve(t, Config{MaxConnections: 20}, exports(1, map[string][]string{"orders": {tlsBackend(t, "orders")}}), with)
		var last *tls.Conn
		for i := range 10 {
			_, conn, err := callFrom(t, "127.0.1.1", gw.addr, ordersHost)
			if err != nil {
				t.Fatalf("connection %d of one source: %v", i, err)
			}
			last = conn
		}
		if _, _, err := callFrom(t, "127.0.1.1", gw.addr, ordersHost); err == nil || gw.refused(sourceShare) != 1 {
			t.Errorf("%v, and %d refusals with reason %s; want one beyond half of all", err, gw.refused(sourceShare), sourceShare)
		}
		for _, source := range []string{"127.0.1.2", "127.0.2.1"} {
			if got, _, err := callFrom(t, source, gw.addr, ordersHost); got != "orders" {
				t.Errorf("from %s: %v", source, err)
			}
		}
		if !strings.Contains(gw.log.String(), "gateway.maxPerSource") {
			t.Errorf("the log does not say what to do:\n%s", gw.log)
		}
		last.NetConn().Close()
		eventually(t, "the source has a place again", func() bool {
			got, _, _ := callFrom(t, "127.0.1.1", gw.addr, ordersHost)
			return got == "orders"
		})
	})
}

// A flood of connections to apps, or of ones that say nothing, leaves the resolver service
// in reach, and the connections that lead there alone.
func TestPeersComeThroughWhereNobodyElseDoes(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		gw := serve(t, Config{MaxConnections: 10, Peers: tlsPeers(t, "resolver")}, exports(1, map[string][]string{"orders": {tlsBackend(t, "orders")}}), with)
		_, link, err := callFrom(t, "127.0.9.1", gw.addr, peerHost)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			if _, _, err := callFrom(t, fmt.Sprintf("127.0.%d.1", i), gw.addr, ordersHost); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 3 * reserved { // the reserve is full of them, from everywhere and from one place
			source := fmt.Sprintf("127.0.%d.1", i%200)
			if i > 2*reserved {
				source = "127.0.9.1"
			}
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
			c, err := d.Dial("tcp", gw.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.Write(hello(ordersHost)[:200])
		}
		eventually(t, "the oldest have given way", func() bool { return gw.refused(helloEvicted) >= 2*reserved })
		for _, source := range []string{"127.0.9.1", "127.0.1.1", "127.0.77.1"} {
			if _, _, err := callFrom(t, source, gw.addr, ordersHost); err == nil {
				t.Errorf("from %s: an app is served beyond the limit", source)
			}
			if got, _, err := callFrom(t, source, gw.addr, peerHost); got != "resolver" {
				t.Errorf("from %s: the resolver service is out of reach: %v\n%s", source, err, gw.log)
			}
		}
		echo(t, link, []byte("the link that was there"))
		if n := gw.refused(tooMany); n != 3 {
			t.Errorf("%d refused beyond the limit, want 3", n)
		}
	})
}

func TestPeersHaveABoundOfTheirOwn(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		gw := serve(t, Config{Peers: tlsPeers(t, "resolver")}, exports(1, map[string][]string{"orders": {tlsBackend(t, "orders")}}), with)
		for i := range maxPeersPerSource {
			if _, _, err := callFrom(t, "127.0.1.1", gw.addr, peerHost); err != nil {
				t.Fatalf("connection %d: %v", i, err)
			}
		}
		if _, _, err := callFrom(t, "127.0.1.1", gw.addr, peerHost); err == nil || gw.refused(tooManyPeers) != 1 {
			t.Errorf("%v, and %d refusals with reason %s, want 1", err, gw.refused(tooManyPeers), tooManyPeers)
		}
		for source, host := range map[string]string{"127.0.1.1": ordersHost, "127.0.2.1": peerHost} {
			if _, _, err := callFrom(t, source, gw.addr, host); err != nil {
				t.Errorf("%s from %s: %v", host, source, err)
			}
		}
	})
}

// Where peers have no room, a handshake that is not finished gives way to a newer connection.
func TestUnfinishedHandshakesOfPeersGiveWay(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		const peers = 16
		gw := serve(t, Config{MaxPeers: peers, Peers: tlsPeers(t, "resolver")}, exports(1, map[string][]string{"orders": {tlsBackend(t, "orders")}}), with)
		for i := range 3 * peers {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(fmt.Sprintf("127.0.%d.1", i+1))}}
			c, err := d.Dial("tcp", gw.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.Write(hello(peerHost))
		}
		eventually(t, "the newest have the places", func() bool {
			return gw.metric("isthmus_gateway_connections_accepted_total") == 3*peers && gw.metric("isthmus_gateway_connections_open") == peers
		})
		for range 5 {
			if got, link, err := callFrom(t, "127.0.0.1", gw.addr, peerHost); err != nil || got != "resolver" {
				t.Fatalf("a peer is refused: %v\n%s", err, gw.log)
			} else {
				link.Close()
			}
		}
	})
}

// A network that has its share of half-open connections gives way to itself.
func TestHalfOpenConnectionsOfANetwork(t *testing.T) {
	h := newHellos(8, 4)
	aborted := map[string]int{}
	add := func(address string) *halfOpen {
		from := netip.AddrPortFrom(netip.MustParseAddr(address), 1)
		return h.add(&admitted{from: from}, func() { aborted[address]++ })
	}
	good := add("10.2.0.1")
	for range 20 {
		add("10.1.0.1")
	}
	if aborted["10.1.0.1"] != 16 || h.waiting.Len() != 5 {
		t.Errorf("of 20 of one network %d gave way and %d are left of all, want 16 and 5", aborted["10.1.0.1"], h.waiting.Len())
	}
	if h.done(good) {
		t.Error("one of another network gave way to them")
	}
	for i := range 6 {
		add(fmt.Sprintf("10.3.%d.1", i))
	}
	if aborted["10.1.0.1"] != 18 || h.waiting.Len() != 8 {
		t.Errorf("%d gave way and %d are left, want the oldest two to go for six newer ones", aborted["10.1.0.1"], h.waiting.Len())
	}
	h.close()
	if h.waiting.Len()+len(h.of) != 0 {
		t.Errorf("%d are left in %d networks", h.waiting.Len(), len(h.of))
	}
}
