package dns

import (
	"net/netip"
	"strings"
	"testing"
)

// TestWhoAsks: an address tells whose view is answered from, and who it does not tell sees
// gateways alone.
func TestWhoAsks(t *testing.T) {
	l := sharedLab(t)
	const gateways = "10.77.2.11, 10.77.2.12"
	for _, c := range []struct {
		about string
		from  netip.Addr
		name  string
		args  []string
		want  want
	}{
		{"an instance asks as its app", checkout, "orders.shop.", nil, want{"NOERROR", "", orders, "-"}},
		{"another app has another view", cart, "orders.shop.", nil, want{"NOERROR", "", gateways, "-"}},
		{"a view has only what the selection holds", cart, "stock.shop.", nil, want{"NXDOMAIN", "", "-", "15"}},
		{"an app without a selection sees its cluster", follower, "payroll.finance.", nil, want{"NOERROR", "", "10.77.1.120", "-"}},
		{"and no other", follower, "stock.shop.", nil, want{"NXDOMAIN", "", "-", ""}},
		{"an address of two apps is nobody's", sharing, "orders.shop.", nil, want{"NXDOMAIN", "", "-", "18"}},
		{"nobody knows a stranger", stranger, "orders.shop.", nil, want{"NXDOMAIN", "", "-", "18"}},
		{"who sees no app of this cluster", stranger, "orders.shop.west.", nil, want{"NXDOMAIN", "", "-", "18"}},
		{"nor an instance", stranger, "10-77-1-101.orders.shop.west.", nil, want{"NXDOMAIN", "", "-", "18"}},
		{"but gateways' names", stranger, "stock.shop.east.", nil, want{"NOERROR", "", gateways, "-"}},
		{"which say nothing about apps", stranger, "nowhere.shop.east.", nil, want{"NOERROR", "", gateways, "-"}},
		{"of clusters that there are", stranger, "stock.shop.nowhere.", nil, want{"NXDOMAIN", "", "-", ""}},
		{"a listener is bound to an app", stranger, "orders.shop.", []string{"-p", boundPort}, want{"NOERROR", "", orders, "-"}},
		{"whoever asks there", cart, "orders.shop.", []string{"-p", boundPort}, want{"NOERROR", "", orders, "-"}},
	} {
		t.Run(c.about, func(t *testing.T) {
			l.dig(t, c.from, append(c.args, c.name+zone, "A")...).check(t, c.want)
		})
	}
}

// TestClientSubnet: a forwarder that is listed says for whom it asks (RFC 7871).
func TestClientSubnet(t *testing.T) {
	l := sharedLab(t)
	const name = "orders.shop." + zone
	for _, c := range []struct {
		about  string
		from   netip.Addr
		subnet string
		want   want
		scope  string // of the subnet in the response; empty: it has none, or a scope of 0
	}{
		{"a listed forwarder is believed", relay, "10.77.3.11/32", want{"NOERROR", "", orders, "-"}, "10.77.3.11/32/32"},
		{"for each caller", relay, "10.77.3.21/32", want{"NOERROR", "", "10.77.2.11, 10.77.2.12", "-"}, "10.77.3.21/32/32"},
		{"also for those who may not", relay, "10.77.3.99/32", want{"NXDOMAIN", "", "-", "18"}, "10.77.3.99/32/32"},
		{"part of an address is nobody, and that is said of it alone", relay, "10.77.3.0/24", want{"NXDOMAIN", "", "-", "18"}, "10.77.3.0/24/24"},
		{"nor is none of it", relay, "0.0.0.0/0", want{"NXDOMAIN", "", "-", "18"}, ""},
		{"others are not believed", stranger, "10.77.3.11/32", want{"NXDOMAIN", "", "-", "18"}, ""},
		{"not even callers", cart, "10.77.3.11/32", want{"NOERROR", "", "10.77.2.11, 10.77.2.12", "-"}, ""},
	} {
		t.Run(c.about, func(t *testing.T) {
			r := l.dig(t, c.from, "+subnet="+c.subnet, name, "A")
			r.check(t, c.want)
			switch {
			case c.scope != "":
				r.has(t, `CLIENT-SUBNET: `+c.scope)
			case strings.Contains(r.Text, "CLIENT-SUBNET") && !strings.Contains(r.Text, c.subnet+"/0"):
				t.Errorf("the response has a client subnet that was not used:\n%s", r.Text)
			}
		})
	}
	l.dig(t, relay, name, "A").check(t, want{status: "NXDOMAIN", ede: "18"})

	for about, option := range map[string]string{
		"bits beyond the prefix": "000118000a4d030b", "a scope in a query": "000120200a4d030b", "a prefix longer than an address": "000121000a4d030b00",
		"no prefix": "0001", "no family that there is": "000318000a4d03", "an address cut off": "000120000a4d03",
	} {
		if r := l.dig(t, relay, "+nocookie", "+ednsopt=8:"+option, name, "A"); r.Status != "FORMERR" {
			t.Errorf("a client subnet with %s: %s", about, r.Text)
		}
	}
}

// TestRefusalsReadTheSame: what may not be called reads the same whether it is there or not.
func TestRefusalsReadTheSame(t *testing.T) {
	l := sharedLab(t)
	text := func(name string) string {
		r := l.dig(t, checkout, name+".finance."+zone, "A")
		return r.Status + " " + strings.ReplaceAll(r.EDE, name, "APP")
	}
	there, nowhere := text("payroll"), text("xayroll")
	if there != nowhere {
		t.Errorf("an app that is there: %q; one that is not: %q", there, nowhere)
	}
	for _, part := range []string{"selection", "finance/APP"} {
		if !strings.Contains(there, part) {
			t.Errorf("%q does not name %s", there, part)
		}
	}
}

// TestToolsShowWhy: dig and kdig print the reason of a refusal.
func TestToolsShowWhy(t *testing.T) {
	l := sharedLab(t)
	for _, c := range []struct {
		from netip.Addr
		name string
		ede  string
	}{
		{checkout, "payroll.finance.", "15 "}, {stranger, "orders.shop.", "18 "}, {checkout, "empty.shop.", "22 "}, {checkout, "lost.shop.", ""},
	} {
		var said []string
		for _, tool := range []string{"dig", "kdig"} {
			args := []string{c.name + zone, "A"}
			if tool == "kdig" {
				args = append(args, "+edns")
			}
			r := l.by(t, tool, c.from, args...)
			if !strings.HasPrefix(r.EDE, c.ede) || len(r.EDE) < 10 {
				t.Errorf("%s: %q, want %q and a reason:\n%s", tool, r.EDE, c.ede, r.Text)
			}
			said = append(said, r.EDE)
		}
		if said[0] != said[1] {
			t.Errorf("dig shows %q, kdig %q", said[0], said[1])
		}
	}
}

// TestReverse: the name of an instance that the caller may see.
func TestReverse(t *testing.T) {
	l := sharedLab(t)
	const name = "10-77-1-101.orders.shop.west." + zone
	for _, tool := range tools {
		l.by(t, tool, checkout, "-x", "10.77.1.101").check(t, want{status: "NOERROR", flags: "", answer: name})
	}
	l.dig(t, checkout, "-x", "fd00:77::1").check(t, want{status: "NOERROR", answer: "fd00-77-0-0-0-0-0-1.orders.shop.west." + zone})
	l.dig(t, checkout, name, "A").check(t, want{status: "NOERROR", answer: "10.77.1.101"})
	for _, c := range []struct {
		from    netip.Addr
		address string
	}{{checkout, "10.77.1.120"}, {stranger, "10.77.1.101"}, {checkout, "10.77.3.13"}, {checkout, "192.0.2.1"}} {
		r := l.dig(t, c.from, "-x", c.address)
		r.check(t, want{status: "REFUSED", answer: "-", ede: "20"})
		if strings.Contains(r.Text, "payroll") || strings.Contains(r.Text, "orders") {
			t.Errorf("it tells whose address it is:\n%s", r.Text)
		}
	}
}
