package dns

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// TestMultiClusterServicesDNS says the assertions of the Multi-Cluster Services DNS
// specification (KEP-1645, specification.md, version 1.0.0 of its schema) again for our
// names. Each subtest begins with the section that it comes from. There
// <service>.<ns>.svc.<clustersetzone> is our <app>.<ns>.<domain>, a port named <port> with
// <proto> our _dapr._tcp, and <hostname>.<clusterid>.<service>.<ns>.svc.<clustersetzone> our
// <ip>.<app>.<ns>.<cluster>.<domain>. Where ours differs on purpose it says so.
func TestMultiClusterServicesDNS(t *testing.T) {
	l := sharedLab(t)
	ask := func(t *testing.T, name, kind string) *reply { t.Helper(); return l.dig(t, checkout, name, kind) }

	t.Run("2.2 the version of the schema is told", func(t *testing.T) {
		ask(t, "dns-version."+zone, "TXT").check(t, want{status: "NOERROR", answer: `"1.0.0"`})
	})

	// 2.3, a service with one address in each importing cluster, is an app behind gateways.
	t.Run("2.3.1 an app that another cluster exports has the addresses by which it is reached", func(t *testing.T) {
		ask(t, "stock.shop."+zone, "A").check(t, want{status: "NOERROR", answer: "10.77.2.11, 10.77.2.12"})
	})
	t.Run("2.3.1 and none of a family by which it is not", func(t *testing.T) {
		ask(t, "stock.shop."+zone, "AAAA").check(t, want{status: "NOERROR", answer: "-"})
	})
	t.Run("2.3.1 an app of both families has A and AAAA records", func(t *testing.T) {
		ask(t, "orders.shop."+zone, "A").check(t, want{status: "NOERROR", answer: orders})
		ask(t, "orders.shop."+zone, "AAAA").check(t, want{status: "NOERROR", answer: "fd00:77::1"})
	})
	t.Run("2.3.1 an app that is not exported to this cluster has no records", func(t *testing.T) {
		ask(t, "secret.shop."+zone, "A").check(t, want{status: "NXDOMAIN", answer: "-", ede: "15"})
	})
	t.Run("2.3.2 the port of an app has an SRV record that leads to a name with addresses", func(t *testing.T) {
		r := ask(t, "_dapr._tcp.stock.shop."+zone, "SRV")
		if len(r.Answer) != 1 {
			t.Fatalf("want one record:\n%s", r.Text)
		}
		s := r.Answer[0].(*dns.SRV)
		if s.Port != 15443 || s.Target != "stock.shop.east."+zone {
			t.Errorf("%v: want the gateways' port and the app's host name", s)
		}
		ask(t, s.Target, "A").check(t, want{status: "NOERROR", answer: "10.77.2.11, 10.77.2.12"})
	})
	t.Run("2.3.2 ports without a name have no SRV record", func(t *testing.T) {
		for _, name := range []string{"_http._tcp.stock.shop.", "_dapr._udp.stock.shop.", "_50002._tcp.stock.shop."} {
			ask(t, name+zone, "SRV").check(t, want{status: "NXDOMAIN", answer: "-"})
		}
		ask(t, "stock.shop."+zone, "SRV").check(t, want{status: "NOERROR", answer: "-", ede: "-"})
	})
	t.Run("2.3.3 an address of many apps has no PTR record, since there may be only one", func(t *testing.T) {
		ask(t, "11.2.77.10.in-addr.arpa.", "PTR").check(t, want{status: "REFUSED", answer: "-", ede: "20"})
	})
	// 2.3.4 has no name for one cluster's backends. Ours does, on purpose: it is the host name
	// that gateways route by. It tells no more than the view does.
	t.Run("2.3.4 a name for one cluster leads to what the caller's selection has there, and nothing else", func(t *testing.T) {
		ask(t, "stock.shop.east."+zone, "A").check(t, want{status: "NOERROR", answer: "10.77.2.11, 10.77.2.12"})
		ask(t, "near.shop.north."+zone, "A").check(t, want{status: "NOERROR", answer: "10.77.4.101"})
		ask(t, "payroll.finance.west."+zone, "A").check(t, want{status: "NXDOMAIN", answer: "-", ede: "15"})
	})

	// 2.4, a headless service, is an app whose instances are in reach.
	t.Run("2.4.1 an app has the address of each ready instance", func(t *testing.T) {
		r := ask(t, "orders.shop."+zone, "A")
		r.check(t, want{status: "NOERROR", answer: orders})
		if strings.Contains(r.Text, notReady) {
			t.Errorf("an instance that is not ready is there:\n%s", r.Text)
		}
	})
	t.Run("2.4.1 also in another cluster on the same network", func(t *testing.T) {
		ask(t, "near.shop."+zone, "A").check(t, want{status: "NOERROR", answer: "10.77.4.101"})
	})
	t.Run("2.4.1 each ready instance has a name of its own with its cluster in it", func(t *testing.T) {
		for _, i := range []struct{ name, kind, address string }{
			{"10-77-1-101.orders.shop.west.", "A", "10.77.1.101"}, {"10-77-1-102.orders.shop.west.", "A", "10.77.1.102"},
			{"10-77-4-101.near.shop.north.", "A", "10.77.4.101"}, {"fd00-77-0-0-0-0-0-1.orders.shop.west.", "AAAA", "fd00:77::1"},
		} {
			ask(t, i.name+zone, i.kind).check(t, want{status: "NOERROR", answer: i.address})
		}
		ask(t, strings.ReplaceAll(notReady, ".", "-")+".orders.shop.west."+zone, "A").check(t, want{status: "NXDOMAIN", answer: "-"})
	})
	// There the answer is to be NXDOMAIN. Ours is NODATA with a reason: the name stands in the
	// selection, and whatever asks for the other family meanwhile must not take it for gone.
	t.Run("2.4.1 an app without a ready instance has no address", func(t *testing.T) {
		ask(t, "empty.shop."+zone, "A").check(t, want{status: "NOERROR", answer: "-", ede: "22"})
	})
	t.Run("2.4.2 N ready instances are N SRV records, each with its instance's name and port", func(t *testing.T) {
		targets := map[string]uint16{}
		for _, rr := range ask(t, "_dapr._tcp.orders.shop.west."+zone, "SRV").Answer {
			targets[strings.TrimSuffix(rr.(*dns.SRV).Target, ".orders.shop.west."+zone)] = rr.(*dns.SRV).Port
		}
		if got := fmt.Sprint(targets); got != "map[10-77-1-101:50002 10-77-1-102:50002 10-77-1-103:50003 fd00-77-0-0-0-0-0-1:50002]" {
			t.Errorf("%s", got)
		}
	})
	t.Run("2.4.2 those of all clusters together", func(t *testing.T) {
		var got []string
		for _, rr := range ask(t, "_dapr._tcp.everywhere.shop."+zone, "SRV").Answer {
			s := rr.(*dns.SRV)
			got = append(got, fmt.Sprintf("%d %s", s.Priority, strings.TrimSuffix(s.Target, ".shop."+zone)))
		}
		slices.Sort(got)
		if len(got) != 4 {
			t.Fatalf("%q", got)
		}
		for _, part := range []string{".everywhere.shop.west.", "everywhere.shop.east.", "10-77-4-103.everywhere.shop.north."} {
			if !strings.Contains(strings.Join(got, ".shop."+zone+" ")+".shop."+zone, part) {
				t.Errorf("%q has no %s", got, part)
			}
		}
	})
	t.Run("2.4.2 what the SRV records lead to comes along", func(t *testing.T) {
		if r := ask(t, "_dapr._tcp.orders.shop.west."+zone, "SRV"); !strings.Contains(data(r.Additional), "10.77.1.101") || !strings.Contains(data(r.Additional), "fd00:77::1") {
			t.Errorf("no addresses in the additional section:\n%s", r.Text)
		}
	})
	t.Run("2.4.2 in another cluster's name there are that cluster's alone", func(t *testing.T) {
		r := ask(t, "_dapr._tcp.everywhere.shop.north."+zone, "SRV")
		if len(r.Answer) != 1 || r.Answer[0].(*dns.SRV).Target != "10-77-4-103.everywhere.shop.north."+zone {
			t.Errorf("%s", r.Text)
		}
	})
	t.Run("2.4.3 the address of an instance has its name", func(t *testing.T) {
		ask(t, "101.1.77.10.in-addr.arpa.", "PTR").check(t, want{status: "NOERROR", answer: "10-77-1-101.orders.shop.west." + zone})
		ask(t, "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.7.7.0.0.0.0.d.f.ip6.arpa.", "PTR").
			check(t, want{status: "NOERROR", answer: "fd00-77-0-0-0-0-0-1.orders.shop.west." + zone})
	})
	// 2.4.4 is 2.3.4 for headless services, and is said there.
	t.Run("2.4.4 what is between these names has no records", func(t *testing.T) {
		for name, ede := range map[string]string{"shop.west.": "0", "west.": "0", "shop.": "0", "_tcp.orders.shop.": "-"} {
			ask(t, name+zone, "A").check(t, want{status: "NOERROR", answer: "-", ede: ede})
		}
		ask(t, "west.orders.shop."+zone, "A").check(t, want{status: "NXDOMAIN", answer: "-"})
	})
}
