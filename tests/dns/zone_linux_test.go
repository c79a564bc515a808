package dns

import (
	"fmt"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// What stands here is in the manner of Zonemaster's tests: what every zone is to be, asked
// as a person would. Who asks is shop/checkout, where nothing else is said.

var orders = addresses("10.77.1.101", "10.77.1.102", "10.77.1.103")

// TestAnswers asks each tool for each name, by UDP and by TCP.
func TestAnswers(t *testing.T) {
	l := sharedLab(t)
	for _, c := range []struct {
		about, name, kind string
		want              want
	}{
		{"an app has the addresses of its instances", "orders.shop." + zone, "A", want{"NOERROR", "aa qr rd", orders, "-"}},
		{"of the family that is asked for", "orders.shop." + zone, "AAAA", want{"NOERROR", "aa qr rd", "fd00:77::1", "-"}},
		{"the other family is no data", "v6only.shop." + zone, "A", want{"NOERROR", "aa qr rd", "-", "-"}},
		{"so is a type that nobody has", "orders.shop." + zone, "MX", want{"NOERROR", "aa qr rd", "-", "-"}},
		{"or that nobody knows", "orders.shop." + zone, "TYPE65400", want{"NOERROR", "aa qr rd", "-", "-"}},
		{"another cluster is its gateways", "stock.shop." + zone, "A", want{"NOERROR", "aa qr rd", "10.77.2.11, 10.77.2.12", "-"}},
		{"also by the app's name there", "stock.shop.east." + zone, "A", want{"NOERROR", "aa qr rd", "10.77.2.11, 10.77.2.12", "-"}},
		{"and by that of a shard", "0.stock.shop.east." + zone, "A", want{"NOERROR", "aa qr rd", "10.77.2.11, 10.77.2.12", "-"}},
		{"an app in this cluster", "orders.shop.west." + zone, "A", want{"NOERROR", "aa qr rd", orders, "-"}},
		{"a cluster on the same network is its instances", "near.shop." + zone, "A", want{"NOERROR", "aa qr rd", "10.77.4.101", "-"}},
		{"one instance", "10-77-1-101.orders.shop.west." + zone, "A", want{"NOERROR", "aa qr rd", "10.77.1.101", "-"}},
		{"one instance by IPv6", "fd00-77-0-0-0-0-0-1.orders.shop.west." + zone, "AAAA", want{"NOERROR", "aa qr rd", "fd00:77::1", "-"}},
		{"an instance that is not of the app", "10-77-1-111.orders.shop.west." + zone, "A", want{"NXDOMAIN", "aa qr rd", "-", ""}},
		{"what is above names is no data", "shop." + zone, "A", want{"NOERROR", "aa qr rd", "-", "0"}},
		{"so is the namespace of a cluster", "shop.east." + zone, "A", want{"NOERROR", "aa qr rd", "-", "0"}},
		{"so is what stands between a name and its service", "_tcp.orders.shop." + zone, "A", want{"NOERROR", "aa qr rd", "-", "-"}},
		{"a service has no address", "_dapr._tcp.orders.shop." + zone, "A", want{"NOERROR", "aa qr rd", "-", "-"}},
		{"an app that is nowhere", "nowhere.shop." + zone, "A", want{"NXDOMAIN", "aa qr rd", "-", "15"}},
		{"an app that the selection does not hold", "payroll.finance." + zone, "A", want{"NXDOMAIN", "aa qr rd", "-", "15"}},
		{"a cluster that nobody knows", "orders.shop.nowhere." + zone, "A", want{"NXDOMAIN", "aa qr rd", "-", ""}},
		{"an app without instances", "empty.shop." + zone, "A", want{"NOERROR", "aa qr rd", "-", "22"}},
		{"a Dapr service of Kubernetes", "orders-dapr.shop.svc.cluster.local.", "A", want{"NOERROR", "aa qr rd", orders, "-"}},
		{"one that the view does not hold", "payroll-dapr.finance.svc.cluster.local.", "A", want{"NXDOMAIN", "aa qr rd", "-", "15"}},
		{"the name server has the address that was asked", "ns." + zone, "A", want{"NOERROR", "aa qr rd", server.String(), "-"}},
		{"the zone's name server", zone, "NS", want{"NOERROR", "aa qr rd", "ns." + zone, "-"}},
		{"the zone's name has no address", zone, "A", want{"NOERROR", "aa qr rd", "-", "-"}},
		{"another zone is refused", "example.com.", "A", want{"REFUSED", "qr rd", "-", "20"}},
		{"so is a name that only ends like the zone's", "notisthmus.internal.", "A", want{"REFUSED", "qr rd", "-", "20"}},
		{"so is another service of Kubernetes", "orders.shop.svc.cluster.local.", "A", want{"REFUSED", "qr rd", "-", "20"}},
		{"everything at once is not told", "orders.shop." + zone, "ANY", want{"NOERROR", "aa qr rd", `"RFC8482" ""`, "-"}},
	} {
		t.Run(c.about, func(t *testing.T) {
			for _, tool := range tools {
				for _, way := range []string{"UDP", "TCP"} {
					args := []string{c.name, c.kind}
					w := c.want
					switch {
					case tool == "drill":
						w.ede = "-" // it sends no EDNS
						if c.kind == "TYPE65400" {
							args[1] = "type65400"
						}
						if way == "TCP" {
							args = append(args, "-t")
						}
					case way == "TCP":
						args = append(args, "+tcp")
					}
					if tool == "dig" {
						args = append(args, "+noadflag")
					}
					if tool == "kdig" {
						args = append(args, "+edns")
					}
					r := l.by(t, tool, checkout, args...)
					r.check(t, w)
					if data(r.Answer) == "" && r.Status != "REFUSED" {
						if s := soa(t, r.Authority); s.Hdr.Name != authority(c.name) || s.Hdr.Ttl > 5 || s.Minttl > 5 {
							t.Errorf("%s: %s: a negative answer holds by %v, want 5 s or less, and the zone's name", tool, c.name, s)
						}
					}
				}
			}
		})
	}
}

// authority is the zone that a name of TestAnswers is in.
func authority(name string) string {
	if strings.HasSuffix(name, "cluster.local.") {
		return "svc.cluster.local."
	}
	return zone
}

func TestZoneIsTheSameByUDPAndTCP(t *testing.T) {
	l := sharedLab(t)
	for _, kind := range []string{"SOA", "NS"} {
		seen := map[string]string{}
		for _, tool := range tools {
			for _, way := range []string{"UDP", "TCP"} {
				args := []string{zone, kind}
				if way == "TCP" {
					args = append(args, map[string]string{"dig": "+tcp", "kdig": "+tcp", "drill": "-t"}[tool])
				}
				r := l.by(t, tool, stranger, args...)
				r.check(t, want{status: "NOERROR", flags: ""})
				seen[data(r.Answer)] = tool + " by " + way
			}
		}
		if len(seen) != 1 {
			t.Errorf("%s records differ: %v", kind, seen)
		}
	}
	s := soa(t, l.dig(t, stranger, zone, "SOA").Answer)
	if s.Ns != "ns."+zone || s.Serial == 0 || s.Hdr.Ttl > 5 || s.Minttl > 5 || s.Mbox == "." || s.Retry > s.Refresh || s.Expire < s.Refresh {
		t.Errorf("SOA: %v", s)
	}
}

func TestTTLs(t *testing.T) {
	l := sharedLab(t)
	for _, c := range []struct {
		name   string
		at     uint32
		reason string
	}{
		{"orders.shop." + zone, 5, "instances come and go"},
		{"stock.shop." + zone, 5, "it may be in another cluster next time"},
		{"orders.shop.west." + zone, 5, "instances come and go"},
		{"stock.shop.east." + zone, 30, "gateways stay"},
		{"10-77-1-101.orders.shop.west." + zone, 5, "it may be gone"},
	} {
		for _, rr := range l.dig(t, checkout, c.name, "A").Answer {
			if rr.Header().Ttl != c.at {
				t.Errorf("%v: want a TTL of %d: %s", rr, c.at, c.reason)
			}
		}
	}
}

// TestCaseIsKept: resolvers draw the case of letters by chance, and want it back
// (draft-vixie-dnsext-dns0x20); names are the same whatever it is (RFC 4343).
func TestCaseIsKept(t *testing.T) {
	l := sharedLab(t)
	for _, name := range []string{"oRdErS.sHoP.IsThMuS.iNtErNaL.", "ORDERS.SHOP.WEST.ISTHMUS.INTERNAL.", "Orders-Dapr.Shop.Svc.Cluster.Local."} {
		for _, tool := range tools {
			r := l.by(t, tool, checkout, name, "A")
			r.check(t, want{status: "NOERROR", answer: orders})
			r.has(t, `(?m)^;;? ?`+strings.ReplaceAll(name, ".", `\.`)+`\s`) // the question
			for _, rr := range r.Answer {
				if rr.Header().Name != name {
					t.Errorf("%s: the record is of %s, want %s", tool, rr.Header().Name, name)
				}
			}
		}
	}
}

// TestOddNames: what no app can be called is not there, and harms nobody.
func TestOddNames(t *testing.T) {
	l := sharedLab(t)
	long := strings.Repeat("x", 63)
	for _, name := range []string{
		"xn--bcher-kva.shop." + zone, `b\195\188cher.shop.` + zone, `\000.shop.` + zone, `a\.b.shop.` + zone, "*.shop." + zone,
		long + ".shop." + zone, long + "." + long + "." + long + ".a.b." + zone, "_.shop." + zone, "-.shop." + zone,
		strings.Repeat("a.", 100) + zone, "999-1-1-1.orders.shop.west." + zone, "4294967296.orders.shop.east." + zone, "_dapr._udp.orders.shop." + zone,
	} {
		for _, who := range []struct {
			name string
			r    *reply
		}{{"checkout", l.dig(t, checkout, "-q", name, "A")}, {"nobody", l.dig(t, stranger, "-q", name, "A")}} {
			if who.r.Status != "NXDOMAIN" && !(who.r.Status == "NOERROR" && len(who.r.Answer) == 0) {
				t.Errorf("%s asks for %s: %s", who.name, name, who.r.Text)
			}
		}
	}
}

// TestOtherRequestsAreRefused: nothing but questions is answered.
func TestOtherRequestsAreRefused(t *testing.T) {
	l := sharedLab(t)
	for _, c := range []struct {
		about, tool string
		args        []string
		status      string
	}{
		{"AXFR", "kdig", []string{"-t", "AXFR", zone}, "REFUSED"},
		{"IXFR by UDP", "kdig", []string{"+notcp", "-t", "IXFR=1", zone}, "REFUSED"},
		{"IXFR by TCP", "kdig", []string{"+tcp", "-t", "IXFR=1", zone}, "REFUSED"},
		{"UPDATE", "dig", []string{"+opcode=update", zone, "SOA"}, "NOTIMP"},
		{"NOTIFY", "kdig", []string{"-t", "NOTIFY", zone}, "NOTIMP"},
		{"STATUS", "dig", []string{"+opcode=status", zone, "SOA"}, "NOTIMP"},
		{"an opcode that nobody knows", "dig", []string{"+opcode=15", zone, "SOA"}, "NOTIMP"},
		{"no question", "dig", []string{"+header-only", "+nocookie", zone}, "FORMERR"},
		{"no question, and a cookie", "dig", []string{"+header-only", "+cookie", zone}, "(good)"},
		{"another class", "dig", []string{zone, "SOA", "HS"}, "REFUSED"},
	} {
		t.Run(c.about, func(t *testing.T) {
			out, err := l.raw(t, checkout, c.tool, c.args...)
			if !strings.Contains(out, c.status) {
				t.Errorf("%v: want %s in:\n%s", err, c.status, out)
			}
			if strings.Contains(out, "10.77.1.101") {
				t.Errorf("it tells of apps:\n%s", out)
			}
		})
	}
}

func TestWhoAnswers(t *testing.T) {
	l := sharedLab(t)
	for name, pattern := range map[string]string{
		"version.bind.": `"(?i:isthmus)`, "version.server.": `"(?i:isthmus)`, "id.server.": `"west-1"`, "hostname.bind.": `"west-1"`,
	} {
		for _, tool := range tools {
			args := map[string][]string{"dig": {name, "TXT", "CH"}, "kdig": {"-c", "CH", name, "TXT"}, "drill": {name, "TXT", "CH"}}[tool]
			r := l.by(t, tool, stranger, args...)
			r.check(t, want{status: "NOERROR"})
			r.has(t, pattern)
		}
	}
	l.dig(t, stranger, "orders.shop."+zone, "TXT", "CH").check(t, want{status: "REFUSED", answer: "-"})
	l.dig(t, stranger, "+nsid", zone, "SOA").has(t, `NSID: .*\("?west-1"?\)`)
	l.by(t, "kdig", stranger, "+nsid", zone, "SOA").has(t, `NSID: .*west-1`)
	if r := l.dig(t, stranger, zone, "SOA"); strings.Contains(r.Text, "NSID") {
		t.Errorf("who does not ask is told:\n%s", r.Text)
	}
}

// TestAnswersTakeTurns: who takes the first address shares calls among all.
func TestAnswersTakeTurns(t *testing.T) {
	l := sharedLab(t)
	first := map[string]int{}
	for range 12 {
		first[l.dig(t, checkout, "orders.shop."+zone, "A").Answer[0].(*dns.A).A.String()]++
	}
	if len(first) != 3 {
		t.Errorf("the first address of 12 answers: %v, want each of three", first)
	}
}

// TestRoutesShareByWeight: everywhere is in west for 30 of 100 callers, and else in east.
func TestRoutesShareByWeight(t *testing.T) {
	l := sharedLab(t)
	const asked = 60
	count := map[string]int{}
	var questions []string
	for range asked {
		questions = append(questions, "everywhere.shop."+zone, "A")
	}
	all, err := l.run(t.Context(), checkout, "kdig", questions...)
	if err != nil || len(all) != asked {
		t.Fatalf("%d responses, %v", len(all), err)
	}
	for _, r := range all {
		count[data(r.Answer)]++
	}
	here, there := count["10.77.1.111, 10.77.1.112"], count["10.77.2.11, 10.77.2.12"]
	if here+there != asked || here < 14 || here > 22 {
		t.Errorf("answers: %v, want some 18 of west's instances and 42 of east's gateways, and nothing else", count)
	}
}

func TestMalformedNamesOfAnInstance(t *testing.T) {
	l := sharedLab(t)
	for _, first := range []string{"10-77-1", "10-77-1-101-1", "010-77-1-101", "fd00-77--1", "10-77-1-256"} {
		name := fmt.Sprintf("%s.orders.shop.west.%s", first, zone)
		l.dig(t, checkout, name, "A").check(t, want{status: "NXDOMAIN", answer: "-"})
	}
}
