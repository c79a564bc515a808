package destination

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// host has an address of each family besides loopback.
func host(t testing.TB, more ...string) *Host {
	t.Helper()
	return NewHost(func() (all []net.Addr, err error) {
		for _, text := range append([]string{"127.0.0.1/8", "::1/128", "10.0.0.5/24", "2001:db8::5/64", "fe80::5/64"}, more...) {
			ip, network, err := net.ParseCIDR(text)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, &net.IPNet{IP: ip, Mask: network.Mask})
		}
		return all, nil
	})
}

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func listeners(texts ...string) (all []netip.AddrPort) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddrPort(text))
	}
	return all
}

const anywhere = "" // no refusal

func TestRules(t *testing.T) {
	on4 := &Rules{Listeners: listeners("0.0.0.0:15443", "127.0.0.1:7400", "10.0.0.5:7480"), Host: host(t)}
	on6 := &Rules{Listeners: listeners("[::]:15443", "[::ffff:10.0.0.5]:53"), Host: host(t)}
	local := &Rules{Loopback: true}
	inside := &Rules{Allow: prefixes("10.0.0.0/8", "2001:db8::/32")}
	for _, c := range []struct {
		rules                      *Rules
		address                    string
		instance, direct, exported string // what the refusals say; anywhere: none
	}{
		{nil, "10.0.0.1:50002", anywhere, anywhere, anywhere},
		{nil, "[2001:db8::1]:50002", anywhere, anywhere, anywhere},
		{nil, "0.0.0.0:22", "names no host", "names no host", "names no host"},
		{nil, "[::]:22", "names no host", "names no host", "names no host"},
		{nil, "[::ffff:0.0.0.0]:22", "names no host", "names no host", "names no host"},
		{nil, "0.1.2.3:22", "names no host", "names no host", "names no host"},
		{nil, "169.254.169.254:80", "link-local", "link-local", "link-local"},
		{nil, "[::ffff:169.254.169.254]:80", "link-local", "link-local", "link-local"},
		{nil, "[64:ff9b::a9fe:a9fe]:80", "link-local", "link-local", "link-local"},
		{nil, "[fe80::1]:80", "link-local", "link-local", "link-local"},
		{nil, "[fe80::1%eth0]:80", "link-local", "link-local", "link-local"},
		{nil, "[2001:db8::1%eth0]:80", "zone", "zone", "zone"},
		{nil, "224.0.0.1:80", "multicast", "multicast", "multicast"},
		{nil, "[ff02::1]:80", "multicast", "multicast", "multicast"},
		{nil, "255.255.255.255:80", "broadcast", "broadcast", "broadcast"},
		{nil, "10.0.0.1:0", "no port", "no port", "no port"},
		{nil, "127.0.0.1:50002", anywhere, "loopback", "loopback"},
		{nil, "127.9.9.9:50002", anywhere, "loopback", "loopback"},
		{nil, "[::1]:50002", anywhere, "loopback", "loopback"},
		{nil, "[::ffff:127.0.0.1]:50002", anywhere, "loopback", "loopback"},
		{nil, "[64:ff9b::7f00:1]:50002", anywhere, "loopback", "loopback"},

		{local, "127.0.0.1:50002", anywhere, anywhere, anywhere},
		{local, "169.254.169.254:80", "link-local", "link-local", "link-local"},

		{inside, "10.1.2.3:50002", anywhere, anywhere, anywhere},
		{inside, "[::ffff:10.1.2.3]:50002", anywhere, anywhere, anywhere},
		{inside, "192.168.0.1:50002", anywhere, anywhere, "gateway.allow"},
		{inside, "[2001:db9::1]:50002", anywhere, anywhere, "gateway.allow"},
		{&Rules{Allow: prefixes("127.0.0.0/8")}, "127.0.0.1:50002", anywhere, "loopback", "loopback"},

		{on4, "10.0.0.5:15443", "listens on", "listens on", "listens on"},
		{on4, "[::ffff:10.0.0.5]:15443", "listens on", "listens on", "listens on"},
		{on4, "127.0.0.1:15443", "listens on", "listens on", "listens on"},
		{on4, "127.8.8.8:15443", "listens on", "listens on", "listens on"},
		{on4, "10.0.0.6:15443", anywhere, anywhere, anywhere},
		{on4, "[2001:db8::5]:15443", anywhere, anywhere, anywhere},
		{on4, "127.0.0.1:7400", "listens on", "listens on", "listens on"},
		{on4, "10.0.0.5:7400", anywhere, anywhere, anywhere},
		{on4, "10.0.0.5:7480", "listens on", "listens on", "listens on"},
		{on4, "10.0.0.5:50002", anywhere, anywhere, anywhere},
		{on6, "10.0.0.5:15443", "listens on", "listens on", "listens on"},
		{on6, "[2001:db8::5]:15443", "listens on", "listens on", "listens on"},
		{on6, "[::1]:15443", "listens on", "listens on", "listens on"},
		{on6, "10.0.0.5:53", "listens on", "listens on", "listens on"},
		{on6, "[2001:db8::6]:15443", anywhere, anywhere, anywhere},
	} {
		a := netip.MustParseAddrPort(c.address)
		for ask, want := range map[string]struct {
			err  error
			says string
		}{
			"Instance": {c.rules.Instance(a), c.instance},
			"Direct":   {c.rules.Direct(a), c.direct},
			"Exported": {c.rules.Exported(a), c.exported},
		} {
			switch {
			case want.says == anywhere && want.err != nil:
				t.Errorf("%s(%s): %v, want none", ask, a, want.err)
			case want.says != anywhere && (want.err == nil || !strings.Contains(want.err.Error(), want.says)):
				t.Errorf("%s(%s): %v, want one that says %q", ask, a, want.err, want.says)
			}
		}
	}
	if err := (*Rules)(nil).Instance(netip.AddrPort{}); err == nil {
		t.Error("no address is allowed")
	}
}

// TestNoGatewayOfAnotherClusterIsHere by the word of a third one, but where all clusters are on one machine.
func TestNoGatewayOfAnotherClusterIsHere(t *testing.T) {
	for _, c := range []struct {
		address           string
		refused, loopback string // what the refusals say, the second with Rules.Loopback
	}{
		{"10.0.0.6:22", anywhere, anywhere},
		{"10.0.0.5:22", "of this machine", anywhere},
		{"[::ffff:10.0.0.5]:22", "of this machine", anywhere},
		{"[2001:db8::5]:22", "of this machine", anywhere},
		{"127.0.0.1:22", "of this machine", anywhere},
		{"[::1]:22", "of this machine", anywhere},
		{"[64:ff9b::7f00:1]:22", "of this machine", anywhere},
		{"10.0.0.5:15443", "of this machine", "of this machine"},
		{"127.0.0.1:15443", "of this machine", "of this machine"},
		{"0.0.0.0:22", "names no host", "names no host"},
		{"169.254.169.254:80", "link-local", "link-local"},
	} {
		for loopback, want := range map[bool]string{false: c.refused, true: c.loopback} {
			err := (&Rules{Loopback: loopback, Listeners: listeners("0.0.0.0:15443"), Host: host(t)}).Elsewhere(netip.MustParseAddrPort(c.address))
			if (err == nil) != (want == anywhere) || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s, loopback %t: %v, want %q", c.address, loopback, err, want)
			}
		}
	}
}

func TestTheHostsAddressesAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads int
		var fails error
		all := []net.Addr{&net.IPNet{IP: net.IPv4(10, 0, 0, 5), Mask: net.CIDRMask(24, 32)}}
		h := NewHost(func() ([]net.Addr, error) { reads++; return all, fails })
		old, now := netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("10.0.0.6")
		if !h.Has(old) || h.Has(now) || reads != 1 {
			t.Errorf("at first: %v, %v after %d reads", h.Has(old), h.Has(now), reads)
		}
		all[0] = &net.IPNet{IP: net.IPv4(10, 0, 0, 6), Mask: net.CIDRMask(24, 32)}
		if !h.Has(old) || reads != 1 {
			t.Errorf("a moment later they were read %d times", reads)
		}
		time.Sleep(interfaceTTL + time.Second)
		if h.Has(old) || !h.Has(now) || reads != 2 {
			t.Errorf("later: %v, %v after %d reads; want the new address alone", h.Has(old), h.Has(now), reads)
		}
		all, fails = nil, errors.New("no more descriptors")
		time.Sleep(interfaceTTL + time.Second)
		if !h.Has(now) {
			t.Error("what was known is forgotten when the interfaces can't be read")
		}
	})
}

// FuzzRules holds that an IPv4 address is judged alike in both of its forms, that what is
// exported may be an instance, and that nothing allowed can lead to the service or astray.
func FuzzRules(f *testing.F) {
	for _, text := range []string{"10.0.0.5:15443", "[::ffff:10.0.0.5]:15443", "169.254.169.254:80", "[fe80::1%x]:1", "0.0.0.0:22", "[::1]:7400", "[64:ff9b::7f00:1]:1"} {
		a := netip.MustParseAddrPort(text)
		f.Add(a.Addr().AsSlice(), a.Addr().Zone(), a.Port(), true)
	}
	this := host(f)
	f.Fuzz(func(t *testing.T, ip []byte, zone string, port uint16, loopback bool) {
		addr, ok := netip.AddrFromSlice(ip)
		if !ok {
			return
		}
		if addr.Is6() {
			addr = addr.WithZone(zone)
		}
		a := netip.AddrPortFrom(addr, port)
		r := &Rules{Loopback: loopback, Listeners: listeners("[::]:15443"), Host: this}
		for _, ask := range []func(netip.AddrPort) error{r.Instance, r.Direct, r.Exported} {
			if addr.Is4() {
				mapped := netip.AddrPortFrom(netip.AddrFrom16(addr.As16()), port)
				if (ask(a) == nil) != (ask(mapped) == nil) {
					t.Errorf("%s: %v, and %s: %v", a, ask(a), mapped, ask(mapped))
				}
			}
		}
		if r.Exported(a) == nil && (r.Direct(a) != nil || r.Instance(a) != nil) {
			t.Errorf("%s may be exported, and be no instance", a)
		}
		if r.Instance(a) != nil {
			return
		}
		to := addr.Unmap()
		switch {
		case to.IsUnspecified(), to.IsMulticast(), to.IsLinkLocalUnicast(), to.Zone() != "", port == 0, port == 15443 && this.Has(to):
			t.Errorf("%s may be an instance", a)
		case to.IsLoopback() && !loopback && r.Exported(a) == nil:
			t.Errorf("%s may be exported", a)
		}
	})
}

// TestAllowingDoesNotAllocate holds the cost that flushes and dials count on.
func TestAllowingDoesNotAllocate(t *testing.T) {
	r := &Rules{Allow: prefixes("10.0.0.0/8"), Listeners: listeners("0.0.0.0:50002", "127.0.0.1:7400"), Host: host(t)}
	a := netip.MustParseAddrPort("10.0.0.9:50002")
	if n := testing.AllocsPerRun(100, func() {
		if err := r.Exported(a); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations; want none", n)
	}
}

func BenchmarkExported(b *testing.B) {
	r := &Rules{Listeners: listeners("0.0.0.0:15443", "127.0.0.1:7400", "127.0.0.1:7453", "127.0.0.1:7480")}
	a := netip.MustParseAddrPort("10.0.0.9:50002")
	for b.Loop() {
		if r.Exported(a) != nil {
			b.Fatal("refused")
		}
	}
}
