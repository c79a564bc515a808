package dns

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
)

// bytesOf asks and returns the response as it came.
func (g *target) bytesOf(t *testing.T, from netip.Addr, at, name string, kind uint16, shape ...func(*mdns.Msg)) []byte {
	t.Helper()
	var conn net.Conn
	if err := g.place.Do(func() (err error) {
		conn, err = net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.UDPAddrFromAddrPort(netip.MustParseAddrPort(at)))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	q := new(mdns.Msg).SetQuestion(name, kind).SetEdns0(1232, false)
	q.Id = 7
	for _, s := range shape {
		s(q)
	}
	packed, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 4096)
	for range 20 {
		conn.Write(packed)
		conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		if n, err := conn.Read(buffer); err == nil {
			return buffer[:n]
		}
	}
	t.Fatalf("%s is not answered", name)
	return nil
}

// TestWhatOneMayNotSeeIsAsIfItWereNot: an app that is there and one that is not, addresses
// of both kinds: not a byte tells them apart, but for the name that was asked.
func TestWhatOneMayNotSeeIsAsIfItWereNot(t *testing.T) {
	g := newTarget(t, map[string]any{"kubernetes": "cluster.local"})
	stranger := netip.MustParseAddr("127.66.1.1")
	subnet := func(m *mdns.Msg) { // believed from listed forwarders only, and there is none
		m.IsEdns0().Option = []mdns.EDNS0{&mdns.EDNS0_SUBNET{Code: mdns.EDNS0SUBNET, Family: 1, SourceNetmask: 32, Address: net.IP(instanceOfShop.AsSlice())}}
	}
	types := []uint16{mdns.TypeA, mdns.TypeAAAA, mdns.TypeSRV, mdns.TypeTXT, mdns.TypeHTTPS, mdns.TypeSVCB, mdns.TypePTR, mdns.TypeANY, mdns.TypeSOA, mdns.TypeNS, mdns.TypeMX, 65280}
	for _, who := range []struct {
		name  string
		from  netip.Addr
		at    string
		shape []func(*mdns.Msg)
	}{
		{"who may not", stranger, bound, nil},
		{"a stranger", stranger, g.at, nil},
		{"a stranger who says to ask for an instance", stranger, g.at, []func(*mdns.Msg){subnet}},
	} {
		for _, pair := range [][2]string{
			{"secret", "sesame"}, {"SECRET", "SESAME"},
			{"follower", "followed"}, // the app that is there has another name's letters
		} {
			for _, form := range []string{
				"%s.shop." + zone, "%s.shop.west." + zone, "%s.shop.south." + zone, "%s.shop.nowhere." + zone, "_dapr._tcp.%s.shop.south." + zone, "_dapr._tcp.%s.shop." + zone, "_tcp.%s.shop." + zone,
				"_dapr._tcp.%s.shop.west." + zone, "0.%s.shop.west." + zone, "10-77-1-102.%s.shop.west." + zone, "x.%s.shop." + zone, "%s-dapr.shop.svc.cluster.local.",
				"_dapr._tcp.%s-dapr.shop.svc.cluster.local.",
			} {
				for _, kind := range types {
					there, not := fmt.Sprintf(form, pair[0]), fmt.Sprintf(form, pair[1])
					if a, b := g.pair(t, who.from, who.at, there, not, pair, kind, who.shape...); !bytes.Equal(a, b) {
						t.Errorf("%s asks for %s %s:\n%x\nfor %s\n%x", who.name, there, mdns.TypeToString[kind], a, not, b)
					}
				}
			}
		}
		for _, kind := range types { // the address of an instance, and nobody's
			a, b := g.pair(t, who.from, who.at, "102.1.77.10.in-addr.arpa.", "104.1.77.10.in-addr.arpa.", [2]string{"102", "104"}, kind)
			if !bytes.Equal(a, b) {
				t.Errorf("%s asks for an instance's address, type %d:\n%x\nand nobody's\n%x", who.name, kind, a, b)
			}
		}
	}
}

// pair asks for what is there and for what is not, and returns both responses with the word
// for the former in both. Where something changed between the two questions, such as the
// zone's serial, both are asked again.
func (g *target) pair(t *testing.T, from netip.Addr, at, there, not string, words [2]string, kind uint16, shape ...func(*mdns.Msg)) (a, b []byte) {
	t.Helper()
	for range 10 {
		a, b = g.bytesOf(t, from, at, there, kind, shape...), replaceName(g.bytesOf(t, from, at, not, kind, shape...), words[1], words[0])
		if bytes.Equal(a, b) || bytes.Equal(a, g.bytesOf(t, from, at, there, kind, shape...)) {
			break
		}
	}
	return a, b
}

// replaceName puts one word for another of the same length, in either case.
func replaceName(m []byte, old, put string) []byte {
	m = bytes.ReplaceAll(m, []byte(old), []byte(put))
	return bytes.ReplaceAll(m, []byte(strings.ToLower(old)), []byte(strings.ToLower(put)))
}

// TestNamesWriteNoLogs: what labels hold reaches no log and no metric.
func TestNamesWriteNoLogs(t *testing.T) {
	g := newTarget(t, map[string]any{"forward": []string{"127.0.0.53:53"}}) // where nobody listens
	series := g.metrics(t)
	for _, label := range []string{`\010level=ERROR\032msg=forged`, `\027[2J\027]0;forged\007`, `forged\"}\0321\010`, `forged\000`, `..forged`[2:] + `\.`} {
		for _, below := range []string{"shop." + zone, "shop.east." + zone, zone, "example."} {
			for _, kind := range []uint16{mdns.TypeA, mdns.TypeTXT, mdns.TypeSRV} {
				for _, from := range []netip.Addr{instanceOfShop, netip.MustParseAddr("127.66.1.1")} {
					g.bytesOf(t, from, g.at, label+"."+below, kind)
				}
			}
		}
	}
	text, err := os.ReadFile(g.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	if i := bytes.Index(text, []byte("forged")); i >= 0 {
		t.Errorf("the log has what a label held: %q", text[max(0, i-200):min(len(text), i+200)])
	}
	for _, s := range g.metrics(t) {
		if strings.Contains(s, "forged") {
			t.Errorf("a metric has what a label held: %q", s)
		}
	}
	if now := g.metrics(t); len(now) > len(series)+20 {
		t.Errorf("metrics grew from %d series to %d: %v", len(series), len(now), slices.DeleteFunc(now, func(s string) bool { return slices.Contains(series, s) }))
	}
}
