package dns

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// TestEDNS asks what ISC's EDNS compliance tester asks of every server (RFC 6891), and
// then what more we take of EDNS.
func TestEDNS(t *testing.T) {
	l := sharedLab(t)
	const name = "orders.shop." + zone
	for _, c := range []struct {
		about string
		args  []string
		want  want
		has   string // what the tool shows of EDNS; empty: it shows none
	}{
		{"no EDNS", []string{"+noedns", "+noad", "+norec", zone, "SOA"}, want{status: "NOERROR", flags: "aa qr", ede: "-"}, ""},
		{"EDNS 0", []string{"+edns=0", "+nocookie", "+norec", "+noad", zone, "SOA"}, want{status: "NOERROR", flags: "aa qr", ede: "-"}, `EDNS: version: 0, flags:; udp: 1232`},
		{"EDNS 1", []string{"+edns=1", "+noednsneg", "+nocookie", "+norec", "+noad", zone, "SOA"}, want{status: "BADVERS", flags: "qr", answer: "-", ede: "-"}, `EDNS: version: 0, flags:;`},
		{"EDNS 0 with an unknown option", []string{"+ednsopt=100", "+nocookie", "+norec", "+noad", zone, "SOA"}, want{status: "NOERROR", flags: "aa qr", ede: "-"}, `EDNS: version: 0`},
		{"EDNS 1 with an unknown option", []string{"+edns=1", "+noednsneg", "+ednsopt=100", "+nocookie", "+norec", "+noad", zone, "SOA"}, want{status: "BADVERS", flags: "qr", answer: "-", ede: "-"}, `EDNS: version: 0`},
		{"EDNS 0 with an unknown flag", []string{"+ednsflags=0x40", "+nocookie", "+norec", "+noad", zone, "SOA"}, want{status: "NOERROR", flags: "aa qr", ede: "-"}, `EDNS: version: 0, flags:; udp`},
		{"EDNS 1 with an unknown flag", []string{"+edns=1", "+noednsneg", "+ednsflags=0x40", "+nocookie", "+norec", "+noad", zone, "SOA"}, want{status: "BADVERS", flags: "qr", answer: "-", ede: "-"}, `EDNS: version: 0, flags:;`},
		{"DNSSEC OK", []string{"+dnssec", "+nocookie", "+norec", "+noad", zone, "SOA"}, want{status: "NOERROR", flags: "aa qr", ede: "-"}, `EDNS: version: 0, flags: do; udp`},
		{"a bit that is to be zero", []string{"+zflag", "+norec", "+noad", zone, "SOA"}, want{status: "NOERROR", ede: "-"}, `EDNS: version: 0`},
		{"AD and CD are not ours to set", []string{"+adflag", "+cdflag", "+norec", zone, "SOA"}, want{status: "NOERROR", ede: "-"}, `EDNS: version: 0`},
		{"the options of a list", []string{"+nsid", "+cookie", "+expire", "+subnet=0.0.0.0/0", "+norec", "+noad", zone, "SOA"}, want{status: "NOERROR", flags: "aa qr", ede: "-"}, `NSID: `},
		{"the same by TCP", []string{"+tcp", "+nsid", "+cookie", "+expire", "+keepalive", "+subnet=0.0.0.0/0", "+norec", "+noad", zone, "SOA"}, want{status: "NOERROR", flags: "aa qr", ede: "-"}, `NSID: `},
		{"a buffer smaller than is allowed", []string{"+bufsize=1", "+ignore", name, "A"}, want{status: "NOERROR", answer: orders}, `EDNS: version: 0`},
		{"an answer that is no error", []string{name, "MX"}, want{status: "NOERROR", answer: "-"}, `EDNS: version: 0`},
		{"a name that is not there", []string{"nowhere.shop." + zone, "A"}, want{status: "NXDOMAIN", answer: "-", ede: "15"}, `EDNS: version: 0`},
		{"a zone that is not ours", []string{"example.com", "A"}, want{status: "REFUSED", answer: "-", ede: "20"}, `EDNS: version: 0`},
	} {
		t.Run(c.about, func(t *testing.T) {
			r := l.dig(t, checkout, c.args...)
			r.check(t, c.want)
			switch {
			case c.has != "":
				r.has(t, c.has)
			case strings.Contains(r.Text, "EDNS"):
				t.Errorf("who sends no EDNS gets some:\n%s", r.Text)
			}
			if strings.Contains(r.Text, "OPT=100") {
				t.Errorf("an unknown option came back:\n%s", r.Text)
			}
		})
	}
}

// TestTruncation: what does not fit is cut between records, and said to be cut; by TCP all
// of it is had. Some clients have no EDNS, some no TCP.
func TestTruncation(t *testing.T) {
	l := sharedLab(t)
	const many = "many.shop." + zone // 120 addresses
	for _, c := range []struct {
		about    string
		args     []string
		min, max int // addresses
		cut      bool
	}{
		{"without EDNS", []string{"+noedns", "+ignore"}, 20, 32, true},
		{"at 512 bytes", []string{"+bufsize=512", "+ignore"}, 20, 32, true},
		{"at 1,232", []string{"+bufsize=1232", "+ignore"}, 60, 76, true},
		{"never more than 1,232", []string{"+bufsize=4096", "+ignore"}, 60, 76, true},
		{"by TCP", []string{"+tcp"}, 120, 120, false},
		{"by UDP and then TCP", nil, 120, 120, false},
	} {
		t.Run(c.about, func(t *testing.T) {
			r := l.dig(t, checkout, append(slices.Clone(c.args), many, "A")...)
			if cut := strings.Contains(" "+r.Flags+" ", " tc "); cut != c.cut || len(r.Answer) < c.min || len(r.Answer) > c.max {
				t.Errorf("%d addresses, cut: %v; want %d to %d, %v in\n%s", len(r.Answer), cut, c.min, c.max, c.cut, r.Text)
			}
		})
	}
	r := l.by(t, "drill", checkout, many, "A")
	if len(r.Answer) < 20 {
		t.Errorf("drill: %d addresses in\n%s", len(r.Answer), r.Text)
	}
	// SRV answers are the longest, and have instances' addresses with them where there is room.
	if r := l.dig(t, checkout, "+tcp", "_dapr._tcp."+many, "SRV"); len(r.Answer) != 120 {
		t.Errorf("%d SRV records by TCP, want 120", len(r.Answer))
	}
}

var serverCookie = regexp.MustCompile(`COOKIE: ([0-9a-f]{16})([0-9a-f]{32})( \(good\))?`)

// TestCookies: RFC 7873 and RFC 9018.
func TestCookies(t *testing.T) {
	l := sharedLab(t)
	r := l.dig(t, stranger, "+cookie=0123456789abcdef", zone, "SOA")
	m := serverCookie.FindStringSubmatch(r.Text)
	if m == nil || m[1] != "0123456789abcdef" || !strings.HasPrefix(m[2], "01000000") {
		t.Fatalf("no server cookie of version 1 in\n%s", r.Text)
	}
	again := l.dig(t, stranger, "+cookie="+m[1]+m[2], zone, "SOA")
	again.check(t, want{status: "NOERROR"})
	if serverCookie.FindString(again.Text) == "" {
		t.Errorf("the second response has no cookie:\n%s", again.Text)
	}
	// One that somebody else was given, one that was never given, and one of another length.
	for _, wrong := range []string{strings.Repeat("ab", 8) + m[2], m[1] + strings.Repeat("0", 32)} {
		l.dig(t, stranger, "+cookie="+wrong, zone, "SOA").check(t, want{status: "NOERROR"})
	}
	l.dig(t, stranger, "+nocookie", "+ednsopt=10:0102", zone, "SOA").check(t, want{status: "FORMERR", answer: "-"})
	l.by(t, "kdig", stranger, "+cookie", "+badcookie", zone, "SOA").has(t, `COOKIE: `)
}

// TestTypesOfAnApp: what there is beside addresses.
func TestTypesOfAnApp(t *testing.T) {
	l := sharedLab(t)
	r := l.dig(t, checkout, "orders.shop."+zone, "HTTPS")
	if len(r.Answer) != 2 {
		t.Fatalf("HTTPS: want a record for each of two ports:\n%s", r.Text)
	}
	for _, rr := range r.Answer {
		h := rr.(*dns.HTTPS)
		text := h.String()
		if h.Priority == 0 || h.Target != "." || !strings.Contains(text, "h2") || !strings.Contains(text, "ipv4hint") || !strings.Contains(text, "port=") {
			t.Errorf("HTTPS: %s", text)
		}
	}
	l.dig(t, checkout, "orders.shop."+zone, "SVCB").check(t, want{status: "NOERROR"})
	l.by(t, "kdig", checkout, "+edns", "orders.shop."+zone, "HTTPS").check(t, want{status: "NOERROR"})
	r = l.dig(t, checkout, "everywhere.shop."+zone, "TXT")
	for _, pattern := range []string{`"app=shop/everywhere"`, `"cluster=(west|east)"`, `"revision=\d+"`, `"rule=`, `"outcome=ok"`, `east`, `north`} {
		r.has(t, pattern)
	}
	l.dig(t, checkout, "payroll.finance."+zone, "TXT").check(t, want{status: "NXDOMAIN", ede: "15"})
}
