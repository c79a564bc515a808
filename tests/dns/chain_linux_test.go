package dns

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/faults/network"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
)

// before are the resolvers that programs ask: those that users have, which ask our DNS server
// with the configuration that docs/reference/dns.md shows, and that server itself.
var before = map[string]netip.Addr{"Unbound": unbound, "CoreDNS": coredns, "Isthmus": server}

// TestChain has the resolvers of programs ask for apps.
func TestChain(t *testing.T) {
	l := sharedLab(t)
	all := clients(t)
	l.resolvers(t)
	const gateways = "10.77.2.11, 10.77.2.12"
	for _, asker := range []struct {
		name  string
		place *network.Place
		found map[string]string
	}{
		{"checkout", l.callers, map[string]string{
			"orders.shop." + zone: "10.77.1.101, 10.77.1.102, 10.77.1.103, fd00:77::1",
			"stock.shop." + zone:  gateways, "stock.shop.east." + zone: gateways, "v6only.shop." + zone: "fd00:77::2",
			"payroll.finance." + zone: "none", "empty.shop." + zone: "none", "shop." + zone: "none",
		}},
		{"cart", l.cart, map[string]string{
			"orders.shop." + zone: gateways, "stock.shop." + zone: "none", "stock.shop.east." + zone: "none",
		}},
	} {
		for name, nameserver := range before {
			var names []string
			for name := range asker.found {
				names = append(names, name)
			}
			for _, c := range all {
				t.Run(strings.Join([]string{name, c.name, asker.name}, " "), func(t *testing.T) {
					t.Parallel()
					for name, found := range c.lookUp(t, asker.place, nameserver, names...) {
						if found != asker.found[name] {
							t.Errorf("%s: %s, want %s", name, found, asker.found[name])
						}
					}
				})
			}
		}
	}
}

// TestChainOfLongAnswers: 120 addresses take TCP. musl has none before 1.2.4, and takes what
// fits into 512 bytes; Unbound cuts all of it off, and CoreDNS sends more than that to a
// client without EDNS, since it takes the option that it adds for the client's.
func TestChainOfLongAnswers(t *testing.T) {
	l := sharedLab(t)
	all := clients(t)
	l.resolvers(t)
	const name = "many.shop." + zone
	for resolver, nameserver := range before {
		for _, c := range all {
			if c.name == "musl" && resolver != "Isthmus" {
				continue
			}
			t.Run(resolver+" "+c.name, func(t *testing.T) {
				t.Parallel()
				found := strings.Split(c.lookUp(t, l.callers, nameserver, name)[name], ", ")
				least := 120
				if c.name == "musl" {
					least = 20
				}
				if len(found) < least {
					t.Errorf("%d addresses, want %d: %s", len(found), least, found)
				}
				for _, a := range found {
					if !strings.HasPrefix(a, "10.77.5.") {
						t.Errorf("%s is no address of the app", a)
					}
				}
			})
		}
	}
}

// resolvers starts Unbound and two CoreDNS before the DNS server, until the test ends.
func (l *lab) resolvers(t *testing.T) {
	t.Helper()
	page := pageOf(t, "reference/dns.md")
	corefile := settingOf(t, page, "corefile", "isthmus.internal")
	services := strings.Replace(settingOf(t, pageOf(t, "how-to/dns-on-kubernetes.md"), "corefile", "view dapr"), kubernetesAddress, "127.0.0.1:"+port, 1)
	listens := func(text string, a netip.Addr) string {
		return strings.Replace(text, "{\n", "{\n    bind "+a.String()+"\n", 1)
	}
	var wg sync.WaitGroup
	for _, start := range []func() (*sandbox.Process, error){
		func() (*sandbox.Process, error) {
			return servers.StartUnbound(meshtest.Within(t, meshtest.Patience), t.TempDir(), servers.UnboundOptions{
				Listen: netip.AddrPortFrom(unbound, 53), Place: l.west.place, Config: settingOf(t, page, "unbound", "stub-zone"),
			})
		},
		func() (*sandbox.Process, error) {
			return servers.StartCoreDNS(meshtest.Within(t, meshtest.Patience), t.TempDir(), servers.CoreDNSOptions{
				Listen: netip.AddrPortFrom(coredns, 53), Place: l.west.place, Corefile: listens(corefile, coredns) + listens(services, coredns),
			})
		},
		func() (*sandbox.Process, error) {
			return servers.StartCoreDNS(meshtest.Within(t, meshtest.Patience), t.TempDir(), servers.CoreDNSOptions{
				Name: "caching", Listen: netip.AddrPortFrom(caching, 53), Place: l.west.place,
				Corefile: strings.Replace(listens(corefile, caching), "errors\n", "errors\n    cache\n", 1),
			})
		},
	} {
		wg.Go(func() {
			p, err := start()
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("%s:\n%s", p.Name(), p.Tail(30))
				}
				if err := p.Kill(); err != nil {
					t.Error(err)
				}
			})
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// TestServicesOfKubernetes: the block of docs/how-to/dns-on-kubernetes.md takes Dapr's services, and
// nothing else of Kubernetes' names.
func TestServicesOfKubernetes(t *testing.T) {
	l := sharedLab(t)
	l.resolvers(t)
	ask := func(from netip.Addr, name string) *reply {
		return l.dig(t, from, "-p", "53", "@"+coredns.String(), name, "A")
	}
	ask(checkout, "orders-dapr.shop.svc.cluster.local").check(t, want{status: "NOERROR", answer: orders})
	ask(checkout, "Orders-Dapr.Shop.svc.cluster.local").check(t, want{status: "NOERROR", answer: orders})
	ask(cart, "orders-dapr.shop.svc.cluster.local").check(t, want{status: "NOERROR", answer: "10.77.2.11, 10.77.2.12"})
	ask(stranger, "orders-dapr.shop.svc.cluster.local").check(t, want{status: "NXDOMAIN", answer: "-", ede: "18"})
	ask(checkout, "orders.shop.svc.cluster.local").check(t, want{status: "REFUSED", answer: "-", ede: "-"})
}

// TestCallersOfUnbound: each has its own answer, whoever else asks.
func TestCallersOfUnbound(t *testing.T) {
	l := sharedLab(t)
	l.resolvers(t)
	for range 2 {
		l.through(t, checkout, unbound).check(t, want{status: "NOERROR", answer: orders})
		l.through(t, cart, unbound).check(t, want{status: "NOERROR", answer: "10.77.2.11, 10.77.2.12"})
		l.through(t, stranger, unbound).check(t, want{status: "NXDOMAIN"})
	}
}

// TestCacheThatDoesNot: CoreDNS keeps an answer for a name, whoever asked. So the page has
// no cache in the block of our zone; this shows what would be.
func TestCacheThatDoesNot(t *testing.T) {
	l := sharedLab(t)
	l.resolvers(t)
	for range 2 {
		l.through(t, checkout, coredns).check(t, want{status: "NOERROR", answer: orders})
		l.through(t, cart, coredns).check(t, want{status: "NOERROR", answer: "10.77.2.11, 10.77.2.12"})
		l.through(t, stranger, coredns).check(t, want{status: "NXDOMAIN"})
	}
	meshtest.Eventually(t, patience, func() error { // it keeps for 5 s what it was told for either of them
		if r := l.through(t, checkout, caching); data(r.Answer) != orders {
			return fmt.Errorf("checkout is told:\n%s", r.Text)
		}
		if r := l.through(t, stranger, caching); data(r.Answer) != orders {
			return fmt.Errorf("CoreDNS keeps answers by caller now; docs/reference/dns.md may allow its cache:\n%s", r.Text)
		}
		return nil
	})
}

// through asks a resolver for an app that each caller sees elsewhere.
func (l *lab) through(t *testing.T, from, resolver netip.Addr) *reply {
	t.Helper()
	return l.dig(t, from, "-p", "53", "@"+resolver.String(), "orders.shop."+zone, "A")
}

// TestClientsThatSayWhoTheyAre: CoreDNS overrules them. Unbound does not, as the page says.
func TestClientsThatSayWhoTheyAre(t *testing.T) {
	l := sharedLab(t)
	l.resolvers(t)
	posing := func(resolver netip.Addr) *reply {
		return l.dig(t, stranger, "-p", "53", "@"+resolver.String(), "+subnet="+checkout.String()+"/32", "orders.shop."+zone, "A")
	}
	posing(coredns).check(t, want{status: "NXDOMAIN", ede: "18"})
	if r := posing(unbound); data(r.Answer) != orders {
		t.Errorf("Unbound takes no subnet from clients now; docs/reference/dns.md may say so:\n%s", r.Text)
	}
}
