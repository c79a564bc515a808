package corefile

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// upstream is a DNS server that answers everything, and says whether the last query had a client subnet.
type upstream struct {
	address string
	subnet  atomic.Bool
}

// serve starts an upstream whose answers have an address, by which they are known.
func serve(t *testing.T, address string) *upstream {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &upstream{address: conn.LocalAddr().String()}
	done := make(chan struct{})
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		u.subnet.Store(false)
		if o := q.IsEdns0(); o != nil {
			for _, option := range o.Option {
				_, is := option.(*dns.EDNS0_SUBNET)
				u.subnet.Store(u.subnet.Load() || is)
			}
		}
		m := new(dns.Msg).SetReply(q)
		m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: net.ParseIP(address)}}
		_ = w.WriteMsg(m)
	})}
	go func() {
		defer close(done)
		_ = server.ActivateAndServe()
	}()
	t.Cleanup(func() {
		_ = server.Shutdown()
		conn.Close()
		<-done
	})
	return u
}

// TestQueriesGoWhereARealCoreDNSSendsThem compares with CoreDNS itself.
func TestQueriesGoWhereARealCoreDNSSendsThem(t *testing.T) {
	isthmus, other := serve(t, "192.0.2.1"), serve(t, "192.0.2.2")
	for name, c := range map[string]struct {
		corefile string // @ is the port; ISTHMUS and OTHER are servers
		server   string // what a file custom/isthmus.server holds
		name     string // orders.shop.isthmus.internal
		want     *upstream
		subnet   bool
	}{
		"a block of its own":             {corefile: ".:@ {\n forward . OTHER\n}\nisthmus.internal:@ {\n errors\n rewrite edns0 subnet set 32 128\n forward . ISTHMUS\n}\n", want: isthmus, subnet: true},
		"without the client's subnet":    {corefile: ".:@ {\n forward . OTHER\n}\nisthmus.internal:@ {\n forward . ISTHMUS\n}\n", want: isthmus},
		"none":                           {corefile: ".:@ {\n errors\n forward . OTHER\n}\n", want: other},
		"a comment":                      {corefile: ".:@ {\n forward . OTHER\n}\n# isthmus.internal:@ {\n#  forward . ISTHMUS\n# }\n", want: other},
		"of a longer zone":               {corefile: ".:@ {\n forward . OTHER\n}\nwest.isthmus.internal:@ {\n forward . ISTHMUS\n}\n", want: other},
		"of the zone above":              {corefile: ".:@ {\n forward . OTHER\n}\ninternal:@ {\n forward . ISTHMUS\n}\n", want: isthmus},
		"the longest zone wins":          {corefile: "internal:@ {\n forward . OTHER\n}\nIsthmus.Internal.:@ {\n forward . ISTHMUS\n}\n", want: isthmus},
		"a forward within the root's":    {corefile: ".:@ {\n forward isthmus.internal ISTHMUS {\n  max_concurrent 100\n }\n forward . OTHER\n}\n", want: isthmus},
		"several zones of a block":       {corefile: "example.org:@, isthmus.internal:@ {\n forward . ISTHMUS\n}\n.:@ {\n forward . OTHER\n}\n", want: isthmus},
		"zones on several lines":         {corefile: "example.org:@,\nisthmus.internal:@ {\n forward . ISTHMUS\n}\n.:@ {\n forward . OTHER\n}\n", want: isthmus},
		"another port":                   {corefile: ".:@ {\n forward . OTHER\n}\nisthmus.internal:1024 {\n forward . ISTHMUS\n}\n", want: other},
		"with its scheme":                {corefile: ".:@ {\n forward . OTHER\n}\ndns://isthmus.internal:@ {\n forward . ISTHMUS\n}\n", want: isthmus},
		"a snippet":                      {corefile: "(own) {\n rewrite edns0 subnet set 32 128\n forward . ISTHMUS\n}\n.:@ {\n forward . OTHER\n}\nisthmus.internal:@ {\n import own\n}\n", want: isthmus, subnet: true},
		"an imported file":               {corefile: ".:@ {\n forward . OTHER\n}\nimport custom/*.server\n", server: "isthmus.internal:@ {\n forward . ISTHMUS\n}\n", want: isthmus},
		"a file that nothing imports":    {corefile: ".:@ {\n forward . OTHER\n}\n", server: "isthmus.internal:@ {\n forward . ISTHMUS\n}\n", want: other},
		"quoted words":                   {corefile: "\"isthmus.internal:@\" {\n forward \".\" \"ISTHMUS\"\n}\n.:@ {\n forward . OTHER\n}\n", want: isthmus},
		"another name of the same block": {corefile: ".:@ {\n forward . OTHER\n}\nisthmus.internal:@ {\n forward . ISTHMUS\n}\n", name: "notisthmus.internal", want: other},
	} {
		t.Run(name, func(t *testing.T) {
			port, err := sandbox.FreePort()
			if err != nil {
				t.Fatal(err)
			}
			put := strings.NewReplacer("@", fmt.Sprint(port), "ISTHMUS", isthmus.address, "OTHER", other.address)
			text, server, host := put.Replace(c.corefile), put.Replace(c.server), c.name
			if host == "" {
				host = "orders.shop.isthmus.internal"
			}
			files := map[string]string{}
			dir := t.TempDir()
			if server != "" {
				files["custom/isthmus.server"] = server
				if err := errors.Join(os.MkdirAll(filepath.Join(dir, "custom"), 0o700), os.WriteFile(filepath.Join(dir, "custom/isthmus.server"), []byte(server), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			listen := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(port))
			start := func(ctx context.Context, _ string, o servers.CoreDNSOptions) (*sandbox.Process, error) {
				return servers.StartCoreDNS(ctx, dir, o)
			}
			serverstest.Start(t, start, servers.CoreDNSOptions{Listen: listen, Corefile: text})
			answer, _, err := (&dns.Client{Timeout: 10 * time.Second}).Exchange(new(dns.Msg).SetQuestion(host+".", dns.TypeA), listen.String())
			if err != nil || len(answer.Answer) != 1 {
				t.Fatal(answer, err)
			}
			address := map[string]*upstream{"192.0.2.1": isthmus, "192.0.2.2": other}[answer.Answer[0].(*dns.A).A.String()].address
			blocks, err := Parse(text, files)
			if err != nil {
				t.Fatal(err)
			}
			found := For(blocks, host, port)
			if len(found) != 1 || len(found[0].Forwards(host)) != 1 {
				t.Fatalf("%d blocks of %+v", len(found), blocks)
			}
			if got := found[0].Forwards(host)[0]; got != address || got != c.want.address {
				t.Errorf("it goes to %s, and CoreDNS sends it to %s; want %s", got, address, c.want.address)
			}
			if got := found[0].Has("rewrite", "edns0", "subnet", "set"); got != c.subnet || got != (address == isthmus.address && isthmus.subnet.Load()) {
				t.Errorf("with the subnet: %t, and CoreDNS sends it: %t", got, isthmus.subnet.Load())
			}
		})
	}
}

func TestWhatIsNoCorefile(t *testing.T) {
	for text, want := range map[string]string{
		".:53 {\n forward . 1.1.1.1\n":   "a block has no end",
		".:53\n":                         "no block follows",
		".:53 {\n log \"a\n}\n":          "a quotation has no end",
		"import custom/loop.server\n":    "imports go deeper",
		".:53 {\n import custom/loop\n}": "go deeper",
	} {
		loop := map[string]string{"custom/loop.server": "import custom/loop.server\n", "custom/loop": "import custom/loop\n"}
		if _, err := Parse(text, loop); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(".:53 {\n forward . /etc/resolv.conf {\n  x\n }\n}\n(a) {\n}\nimport a\n")
	f.Fuzz(func(_ *testing.T, text string) {
		all, _ := Parse(text, map[string]string{"a": text})
		for _, b := range For(all, "isthmus.internal", 53) {
			b.Forwards("isthmus.internal")
		}
	})
}
