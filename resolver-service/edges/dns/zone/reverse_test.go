package zone

import (
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

func TestReverseNames(t *testing.T) {
	w := shop(t)
	refused := "REFUSED\nerror: 20 Not Authoritative: this server answers for isthmus.internal"
	w.check("shop/checkout", []row{
		{"1.0.0.10.in-addr.arpa. PTR", `
			NOERROR aa
			1.0.0.10.in-addr.arpa. 5 IN PTR 10-0-0-1.orders.shop.west.isthmus.internal.`},
		{"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa. PTR", `
			NOERROR aa
			1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa. 5 IN PTR fd00-0-0-0-0-0-0-1.orders.shop.west.isthmus.internal.`},
		{"9.0.0.10.in-addr.arpa. PTR", `
			NOERROR aa
			9.0.0.10.in-addr.arpa. 5 IN PTR 10-0-0-9.checkout.shop.west.isthmus.internal.`},
		{"1.0.0.10.in-addr.arpa. A", `
			NOERROR aa
			authority: 1.0.0.10.in-addr.arpa. 5 IN SOA ns.isthmus.internal. hostmaster.isthmus.internal. serial 3600 600 86400 5`},
		{"7.0.0.10.in-addr.arpa. PTR +", refused}, // an app that it may not see
		{"3.0.0.10.in-addr.arpa. PTR +", refused},
		{"01.0.0.10.in-addr.arpa. PTR +", refused},
		{"256.0.0.10.in-addr.arpa. PTR +", refused},
		{"0.0.10.in-addr.arpa. PTR +", refused},
		{"in-addr.arpa. NS +", refused},
	})
}

// TestAReverseNameLeadsToANameThatIsThere, for the same caller.
func TestAReverseNameLeadsToANameThatIsThere(t *testing.T) {
	w := newWorld(t, west)
	draining := func(a, address string) topology.Change {
		return topology.Change{Instances: []topology.InstanceChange{{Source: "draining " + a, Put: []catalog.Instance{
			{ID: address, App: app(a), Address: netip.MustParseAddrPort(address), Draining: true},
		}}}}
	}
	near := reaches("near", "203.0.113.7:15443")
	near.Network = "net-1"
	export := has("shop/orders", 1)
	export.Addresses = []string{"10.3.0.1:50002"}
	w.apply(
		full(near, selects("shop/checkout", calls("shop/orders"), calls("shop/away", via("near", 0, 1)), calls("shop/idle", via("local", 0, 0), via("near", 1, 1)))),
		runs("shop/checkout", "10.0.0.9:50002", "10.0.0.10:50002"), runs("shop/away", "10.0.0.3:50002"), runs("shop/idle", "10.0.0.4:50002"),
		runs("shop/orders", "10.0.0.1:50002", "10.0.0.1:50003", "[fd00::1]:50002"), draining("shop/orders", "10.0.0.2:50002"), draining("shop/checkout", "10.0.0.11:50002"),
		topology.Change{Peers: []topology.PeerChange{{Cluster: "near", Put: []topology.PeerExport{export}, Lease: topology.Fresh}}})
	refused := "REFUSED\nerror: 20 Not Authoritative: this server answers for isthmus.internal"
	nothing := func(name string) string {
		return "NOERROR aa\nauthority: " + name + " 5 IN SOA ns.isthmus.internal. hostmaster.isthmus.internal. serial 3600 600 86400 5"
	}
	w.check("shop/checkout", []row{
		{"3.0.0.10.in-addr.arpa. PTR +", refused}, // the selection leads elsewhere
		{"1.0.3.10.in-addr.arpa. PTR +", refused}, // in another cluster
		{"2.0.0.10.in-addr.arpa. PTR +", nothing("2.0.0.10.in-addr.arpa.")},
		{"11.0.0.10.in-addr.arpa. PTR +", nothing("11.0.0.10.in-addr.arpa.")},
	})
	for _, reverse := range []string{
		"1.0.0.10.in-addr.arpa.", "4.0.0.10.in-addr.arpa.", "9.0.0.10.in-addr.arpa.", "10.0.0.10.in-addr.arpa.",
		"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa.",
	} {
		w.leadsBack("shop/checkout", reverse)
	}
}

// leadsBack checks that the name that a reverse name leads to has its address.
func (w *world) leadsBack(who, reverse string) {
	w.t.Helper()
	got := w.ask(asking{as: who, name: reverse, typ: "PTR"})
	if len(got.Answer) != 1 {
		w.t.Errorf("%s has no name: %v", reverse, got)
		return
	}
	name, found := got.Answer[0].(*dns.PTR).Ptr, ""
	for _, typ := range []string{"A", "AAAA"} {
		for _, rr := range w.ask(asking{as: who, name: name, typ: typ}).Answer {
			switch r := rr.(type) {
			case *dns.A:
				found = r.A.String()
			case *dns.AAAA:
				found = r.AAAA.String()
			}
		}
	}
	if back, err := dns.ReverseAddr(found); err != nil || back != reverse {
		w.t.Errorf("%s is %s, and that is at %q", reverse, name, found)
	}
}

// TestAnAppThatSeesItselfAloneHasReverseNames of its own, by the same rule.
func TestAnAppThatSeesItselfAloneHasReverseNames(t *testing.T) {
	closed := west
	closed.Open = false
	w := newWorld(t, closed)
	w.apply(full(), runs("shop/checkout", "10.0.0.9:50002"), runs("shop/orders", "10.0.0.1:50002"))
	w.leadsBack("shop/checkout", "9.0.0.10.in-addr.arpa.")
	w.check("shop/checkout", []row{{"1.0.0.10.in-addr.arpa. PTR", "REFUSED"}})
	w.check("10.0.0.1", []row{{"9.0.0.10.in-addr.arpa. PTR", "REFUSED"}})
}

// TestReverseNamesWaitForInstances: what others say of private addresses is, for most, that they
// are not there, and that would be kept for long.
func TestReverseNamesWaitForInstances(t *testing.T) {
	settled := make(chan struct{})
	w := newWorld(t, west, func(c *Config) { c.Settled, c.Forward = settled, elsewhere{} })
	const six = "0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0."
	private := []string{"1.0.0.10.in-addr.arpa.", "1.1.64.100.in-addr.arpa.", "1." + six + "0.0.0.0.0.0.d.f.ip6.arpa."}
	public := []string{"8.8.8.8.in-addr.arpa.", "1." + six + "8.b.d.0.1.0.0.2.ip6.arpa.", "0.0.10.in-addr.arpa.", "in-addr.arpa."}
	both := func(ofPrivate string) {
		t.Helper()
		for _, who := range []string{"10.0.0.9", "shop/checkout"} {
			for _, name := range private {
				w.check(who, []row{{name + " PTR", ofPrivate}})
			}
			for _, name := range public {
				w.check(who, []row{{name + " PTR", "YXDOMAIN"}})
			}
		}
	}
	both("SERVFAIL ra")
	w.check("shop/checkout", []row{{private[0] + " PTR +", "SERVFAIL ra\nerror: 14 Not Ready: not ready: the config store's full set has not arrived yet"}})
	w.apply(full(), runs("shop/orders", "10.0.0.7:50002"))
	both("SERVFAIL ra")
	w.check("10.0.0.9", []row{{private[0] + " PTR +", "SERVFAIL ra\nerror: 14 Not Ready: not ready: instances and other clusters have not all been heard since the start; ask again"}})
	w.check("shop/checkout", []row{{"7.0.0.10.in-addr.arpa. PTR", "NOERROR aa ra\n7.0.0.10.in-addr.arpa. 5 IN PTR 10-0-0-7.orders.shop.west.isthmus.internal."}})
	w.check("10.0.0.9", []row{{"7.0.0.10.in-addr.arpa. PTR", "SERVFAIL ra"}}) // it may be an app that sees orders
	close(settled)
	both("YXDOMAIN")
	w.check("10.0.0.9", []row{{"7.0.0.10.in-addr.arpa. PTR", "YXDOMAIN"}})
}
