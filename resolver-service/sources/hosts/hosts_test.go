package hosts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/hosts/lookup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// names is a DNS of a test: what each name has, or how it fails.
type names struct {
	mu    sync.Mutex
	has   map[string][]netip.Addr
	fails map[string]error
	slow  map[string]bool
	ttl   map[string]time.Duration
	asked []string
}

func (n *names) lookup(ctx context.Context, _, name string) ([]netip.Addr, time.Duration, error) {
	n.mu.Lock()
	n.asked = append(n.asked, name)
	slow, addresses, err := n.slow[name], n.has[name], n.fails[name]
	n.mu.Unlock()
	if slow {
		<-ctx.Done()
		return nil, 0, ctx.Err()
	}
	if addresses == nil && err == nil {
		err = &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return addresses, n.ttl[name], err
}

func (n *names) set(name string, err error, addresses ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.has[name] = nil
	for _, a := range addresses {
		n.has[name] = append(n.has[name], netip.MustParseAddr(a))
	}
	n.fails[name] = err
}

// times is how often a name was asked for since the last call.
func (n *names) times(name string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := 0
	n.asked = slices.DeleteFunc(n.asked, func(s string) bool {
		if s == name {
			count++
		}
		return s == name
	})
	return count
}

// resolving runs hosts in a bubble of synctest.
func resolving(t *testing.T, test func(n *names, hs *Hosts, clusters *live.Value[*catalog.Gateways])) {
	synctest.Test(t, func(t *testing.T) {
		n := &names{has: map[string][]netip.Addr{}, fails: map[string]error{}, slow: map[string]bool{}, ttl: map[string]time.Duration{}}
		var clusters live.Value[*catalog.Gateways]
		hs := New("dns", &clusters, "isthmus.internal", n.lookup, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- hs.Run(ctx) }()
		test(n, hs, &clusters)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func gatewaysAt(addresses ...string) *catalog.Gateways {
	return &catalog.Gateways{Domain: "isthmus.internal", Addresses: map[string][]string{"east": addresses}}
}

// told is "name: addresses" of all that is published.
func (hs *Hosts) told() string {
	published, _ := hs.published.Load()
	return fmt.Sprint(published)
}

func TestHostNamesAreLookedUpAtOnceAndAgain(t *testing.T) {
	resolving(t, func(n *names, hs *Hosts, clusters *live.Value[*catalog.Gateways]) {
		n.set("gw.example", nil, "192.0.2.2", "192.0.2.1", "::ffff:192.0.2.1", "0.0.0.0", "fe80::1%eth0", "2001:db8::1")
		clusters.Store(gatewaysAt("GW.example.:15443", "198.51.100.1:15443", "gw.example:443"))
		synctest.Wait()
		if got, want := hs.told(), "map[gw.example:[192.0.2.1 192.0.2.2 2001:db8::1]]"; got != want {
			t.Errorf("at once: %s, want %s", got, want)
		}
		n.set("gw.example", nil, "192.0.2.3")
		time.Sleep(refreshEvery + time.Second)
		synctest.Wait()
		if got, want := hs.told(), "map[gw.example:[192.0.2.3]]"; got != want {
			t.Errorf("after the refresh: %s, want %s", got, want)
		}
		if asked := n.times("gw.example"); asked != 2 {
			t.Errorf("asked %d times, want 2", asked)
		}
		clusters.Store(gatewaysAt("198.51.100.1:15443"))
		synctest.Wait()
		if got := hs.told(); got != "map[]" {
			t.Errorf("without the name: %s", got)
		}
		all := gatewaysAt("198.51.100.1:15443")
		all.Apps = map[string][]catalog.AppGateway{"east": {{App: catalog.App{Namespace: "shop", ID: "orders"}, Address: "GW.example:50002"}}}
		clusters.Store(all)
		synctest.Wait()
		if got, want := hs.told(), "map[gw.example:[192.0.2.3]]"; got != want {
			t.Errorf("of one app's gateway: %s, want %s", got, want)
		}
	})
}

func TestEveryNameWasLookedUp(t *testing.T) {
	resolving(t, func(n *names, hs *Hosts, clusters *live.Value[*catalog.Gateways]) {
		n.set("gw.example", nil, "192.0.2.1")
		n.slow["slow.example"] = true
		looked := func() bool {
			synctest.Wait()
			select {
			case <-hs.Looked():
				return true
			default:
				return false
			}
		}
		if looked() {
			t.Error("before any Cluster object")
		}
		clusters.Store(gatewaysAt("gw.example:1", "slow.example:1"))
		if looked() {
			t.Error("while a name is being looked up")
		}
		time.Sleep(lookupTimeout)
		if !looked() {
			t.Error("not once one has an address and the other has failed")
		}
	})
}

func TestTheLastAddressesStandWhileDNSFails(t *testing.T) {
	resolving(t, func(n *names, hs *Hosts, clusters *live.Value[*catalog.Gateways]) {
		n.set("gw.example", nil, "192.0.2.1")
		clusters.Store(gatewaysAt("gw.example:1"))
		synctest.Wait()
		n.times("gw.example")
		n.set("gw.example", &net.DNSError{Err: "server misbehaving", Name: "gw.example", IsTemporary: true})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := hs.told(); got != "map[gw.example:[192.0.2.1]]" {
			t.Errorf("DNS fails: %s", got)
		}
		said := hs.Status()
		if len(said) != 1 || said[0].GetError() == "" || time.Since(time.UnixMilli(said[0].GetFailingUnixMs())) < 9*time.Minute || len(said[0].GetAddresses()) != 1 {
			t.Errorf("status %v", said)
		}
		if got, want := hs.Troubles(), "dns: gateway gw.example not resolved: "; len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("troubles %q, want one that begins %q", got, want)
		}
		if asked := n.times("gw.example"); asked < 19 || asked > 25 {
			t.Errorf("asked %d times in ten minutes", asked)
		}
		n.set("gw.example", nil) // gone
		time.Sleep(keepGone - time.Second)
		synctest.Wait()
		if got := hs.told(); got != "map[gw.example:[192.0.2.1]]" {
			t.Errorf("DNS has just said that it is gone: %s", got)
		}
		time.Sleep(2*refreshEvery + time.Second)
		synctest.Wait()
		if got := hs.told(); got != "map[]" {
			t.Errorf("DNS says that it is gone: %s", got)
		}
		n.set("gw.example", nil, "192.0.2.9")
		time.Sleep(refreshEvery + time.Second)
		synctest.Wait()
		if got := hs.told(); got != "map[gw.example:[192.0.2.9]]" || hs.Failing() != 0 {
			t.Errorf("it is back: %s", got)
		}
	})
}

func TestAChangeIsSeenOnceTheAnswerRunsOut(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 5 * time.Second, 20 * time.Second} {
		resolving(t, func(n *names, hs *Hosts, clusters *live.Value[*catalog.Gateways]) {
			n.ttl["gw.example"] = ttl
			n.set("gw.example", nil, "192.0.2.1")
			clusters.Store(gatewaysAt("gw.example:1"))
			synctest.Wait()
			n.set("gw.example", nil, "192.0.2.2")
			time.Sleep(ttl + time.Second)
			synctest.Wait()
			if got := hs.told(); got != "map[gw.example:[192.0.2.2]]" {
				t.Errorf("%s: %s", ttl, got)
			}
		})
	}
}

// TestHowLongAnswersHold asks a real server, by UDP and by TCP.
func TestHowLongAnswersHold(t *testing.T) {
	server := dnstest(t, map[string]string{
		"gw.example.": "gw.example. 60 IN CNAME alias.example.", "alias.example.": "alias.example. 7 IN A 192.0.2.1",
	})
	for _, network := range []string{"udp", "tcp"} {
		find := lookup.Through(func() *net.Resolver {
			return &net.Resolver{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, server)
			}}
		})
		addresses, ttl, err := find(t.Context(), "ip4", "gw.example.")
		if err != nil || ttl != 7*time.Second || fmt.Sprint(addresses) != "[192.0.2.1]" {
			t.Errorf("%s: %v for %s, %v; want 192.0.2.1 for 7s", network, addresses, ttl, err)
		}
	}
}

func TestANameInOurOwnDomainIsNeverLookedUp(t *testing.T) {
	resolving(t, func(n *names, hs *Hosts, clusters *live.Value[*catalog.Gateways]) {
		clusters.Store(gatewaysAt("gw.shop.Isthmus.internal.:1", "isthmus.internal:1", "gw.notisthmus.internal:1"))
		time.Sleep(time.Hour)
		synctest.Wait()
		if asked := n.times("gw.shop.isthmus.internal") + n.times("isthmus.internal"); asked != 0 {
			t.Errorf("asked %d times", asked)
		}
		if n.times("gw.notisthmus.internal") == 0 {
			t.Error("a name elsewhere was not asked for")
		}
		for _, h := range hs.Status() {
			if own := !strings.Contains(h.GetName(), "not"); own != strings.Contains(h.GetError(), "own domain isthmus.internal") {
				t.Errorf("%s: %s", h.GetName(), h.GetError())
			}
		}
	})
}

func TestASlowNameHoldsNoOtherUp(t *testing.T) {
	resolving(t, func(n *names, hs *Hosts, clusters *live.Value[*catalog.Gateways]) {
		var all []string
		for i := range maxLookups - 1 {
			name := fmt.Sprintf("slow-%d.example", i)
			n.slow[name] = true
			all = append(all, name+":1")
		}
		n.set("gw.example", nil, "192.0.2.1")
		clusters.Store(gatewaysAt(all...))
		synctest.Wait()
		clusters.Store(gatewaysAt(append(all, "gw.example:1")...))
		synctest.Wait()
		if got := hs.told(); got != "map[gw.example:[192.0.2.1]]" {
			t.Errorf("got %s", got)
		}
		time.Sleep(lookupTimeout + time.Second)
		synctest.Wait()
		if n := hs.Failing(); n != maxLookups-1 {
			t.Errorf("%d names failed", n)
		}
	})
}

func TestThereAreBoundsToHostNames(t *testing.T) {
	resolving(t, func(n *names, hs *Hosts, clusters *live.Value[*catalog.Gateways]) {
		var all []string
		for i := range maxHosts + 7 {
			all = append(all, fmt.Sprintf("gw-%04d.example:1", i))
		}
		many := make([]string, 0, 100)
		for i := range 100 {
			many = append(many, fmt.Sprintf("192.0.2.%d", i+1))
		}
		n.set("gw-0000.example", nil, many...)
		clusters.Store(gatewaysAt(all...))
		time.Sleep(time.Minute)
		synctest.Wait()
		published, _ := hs.published.Load()
		if got := len(published["gw-0000.example"]); got != maxAddresses {
			t.Errorf("%d addresses, want %d", got, maxAddresses)
		}
		if said := hs.Status(); len(said) != maxHosts+1 || !strings.HasPrefix(said[maxHosts].GetError(), "7 more names") {
			t.Errorf("%d names in status, the last %v", len(said), said[len(said)-1])
		}
	})
}

func TestOnlyDNSItselfSaysThatANameIsGone(t *testing.T) {
	for _, c := range []struct {
		err  error
		gone bool
	}{
		{&net.DNSError{IsNotFound: true}, true},
		{&net.DNSError{IsNotFound: true, IsTemporary: true}, false},
		{&net.DNSError{IsTimeout: true}, false},
		{&net.DNSError{Err: "server misbehaving"}, false},
		{errors.New("network is unreachable"), false},
		{context.DeadlineExceeded, false},
	} {
		if isGone(c.err) != c.gone {
			t.Errorf("%v: gone is %t", c.err, !c.gone)
		}
	}
}

// dnstest answers on loopback, by UDP and TCP, with records by name, and what they lead to.
func dnstest(t *testing.T, records map[string]string) (address string) {
	t.Helper()
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		for name := q.Question[0].Name; records[name] != ""; {
			r, err := dns.NewRR(records[name])
			if err != nil {
				t.Error(err)
				break
			}
			m.Answer = append(m.Answer, r)
			if alias, ok := r.(*dns.CNAME); ok {
				name = alias.Target
				continue
			}
			break
		}
		_ = w.WriteMsg(m)
	})
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenPacket("udp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	for _, s := range []*dns.Server{{Listener: tcp, Handler: handler}, {PacketConn: udp, Handler: handler}} {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		serving.Go(func() { _ = s.ActivateAndServe() })
		<-started
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	t.Cleanup(func() { go serving.Wait() })
	return tcp.Addr().String()
}
