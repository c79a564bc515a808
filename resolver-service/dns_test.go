package resolverservice

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	dnsedge "github.com/isthmus-mesh/isthmus/resolver-service/edges/dns"
)

// answering is configOf with listeners for DNS, and with more of isthmus.yaml.
func answering(t *testing.T, listen, more string) *Config {
	t.Helper()
	dir := t.TempDir()
	cfg, err := Parse("isthmus.yaml", []byte(fmt.Sprintf("cluster: west\ndataDir: %s/data\nidentity: {insecure: true}\n"+
		"gateway: {plaintext: true, drainTimeout: 100ms}\nlisten: {resolver: '127.0.0.1:0', gateway: '127.0.0.1:0', admin: '127.0.0.1:0', dns: %s}\n%s", dir, listen, more)))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// dig asks one question, and waits for the answer as long as it takes.
type dig struct {
	t    *testing.T
	at   net.Addr
	net  string // "udp", "tcp" or "tcp-tls"; udp where empty
	from string // the address that asks
	ecs  string // an address to ask in the name of
	tls  *tls.Config
}

func (d dig) exchange(name string, kind uint16) *dns.Msg {
	d.t.Helper()
	query := new(dns.Msg).SetQuestion(dns.Fqdn(name), kind)
	query.SetEdns0(1232, false)
	if d.ecs != "" {
		a := netip.MustParseAddr(d.ecs)
		query.IsEdns0().Option = append(query.IsEdns0().Option, &dns.EDNS0_SUBNET{
			Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: uint8(a.BitLen()), Address: a.AsSlice(),
		})
	}
	var last error
	for end := time.Now().Add(patience); time.Now().Before(end); {
		client := &dns.Client{Net: d.net, Timeout: 10 * time.Second, TLSConfig: d.tls, Dialer: &net.Dialer{Timeout: 10 * time.Second}}
		if d.from != "" && d.net == "" {
			client.Dialer.LocalAddr = &net.UDPAddr{IP: net.ParseIP(d.from)}
		} else if d.from != "" {
			client.Dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(d.from)}
		}
		response, _, err := client.ExchangeContext(d.t.Context(), query, d.at.String())
		if err == nil {
			return response
		}
		last = err
	}
	d.t.Fatalf("%s by %s: %v", name, d.net, last)
	return nil
}

// short is "RCODE: addresses", and the text of an extended error.
func (d dig) short(name string) string {
	d.t.Helper()
	response := d.exchange(name, dns.TypeA)
	parts := []string{dns.RcodeToString[response.Rcode] + ":"}
	for _, r := range response.Answer {
		if a, ok := r.(*dns.A); ok {
			parts = append(parts, a.A.String())
		}
	}
	if opt := response.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if e, ok := o.(*dns.EDNS0_EDE); ok {
				parts = append(parts, fmt.Sprintf("(%s)", dns.ExtendedErrorCodeToString[e.InfoCode]))
			}
		}
	}
	return strings.Join(parts, " ")
}

const ordersName = "orders.shop.isthmus.internal"

func TestDNSAnswersByTheViewOfWhoAsks(t *testing.T) {
	cfg := answering(t, "['127.0.0.1:0', {address: '127.0.0.1:0', as: shop/checkout}, {address: '127.0.0.1:0', as: shop/cart}]",
		"dns: {forwarders: 127.0.0.9}\n")
	west := start(t, cfg, nil)
	west.apply(selectsOrders + "---\n" + strings.ReplaceAll(strings.ReplaceAll(selectsOrders, "checkout", "cart"), "app: orders", "app: ledger"))
	west.sidecar(orders, "127.0.0.21:50002")
	west.sidecar(checkout, "127.0.0.22:50002")
	west.sidecar(catalog.App{Namespace: "shop", ID: "cart"}, "127.0.0.23:50002")
	any, asCheckout, asCart := west.listeners.Sockets("dns").Addr(0), west.listeners.Sockets("dns").Addr(1), west.listeners.Sockets("dns").Addr(2)
	const holds, blocked, prohibited = "NOERROR: 127.0.0.21", "NXDOMAIN: (Blocked)", "NXDOMAIN: (Prohibited)"
	for _, protocol := range []string{"", "tcp"} {
		for _, c := range []struct {
			who  string
			dig  dig
			want string
		}{
			{"a listener of checkout's own", dig{at: asCheckout}, holds},
			{"a listener of cart's own", dig{at: asCart}, blocked},
			{"the address of checkout", dig{at: any, from: "127.0.0.22"}, holds},
			{"the address of cart", dig{at: any, from: "127.0.0.23"}, blocked},
			{"a stranger", dig{at: any, from: "127.0.0.77"}, prohibited},
			{"a forwarder for checkout", dig{at: any, from: "127.0.0.9", ecs: "127.0.0.22"}, holds},
			{"a forwarder for cart", dig{at: any, from: "127.0.0.9", ecs: "127.0.0.23"}, blocked},
			{"a stranger who claims to be checkout", dig{at: any, from: "127.0.0.77", ecs: "127.0.0.22"}, prohibited},
		} {
			c.dig.t, c.dig.net = t, protocol
			if got := c.dig.short(ordersName); got != c.want {
				t.Errorf("%s, %s: %s, want %s", c.who, protocol, got, c.want)
			}
		}
	}
}

func TestAChangeIsInTheNextAnswer(t *testing.T) {
	west := start(t, answering(t, "{address: '127.0.0.1:0', as: shop/checkout}", ""), nil)
	d := dig{t: t, at: west.Addr("dns")}
	west.apply(selectsOrders)
	west.sidecar(orders, "127.0.0.21:50002")
	for range 20 {
		if got := d.short(ordersName); got != "NOERROR: 127.0.0.21" {
			t.Fatalf("selected: %s", got)
		}
		west.apply(strings.Replace(selectsOrders, "app: orders", "app: ledger", 1))
		if got := d.short(ordersName); got != "NXDOMAIN: (Blocked)" {
			t.Fatalf("selected no more: %s", got)
		}
		west.apply(selectsOrders)
	}
}

func TestNothingIsDeniedBeforeTheStoreIsRead(t *testing.T) {
	cfg := answering(t, "{address: '127.0.0.1:0', as: shop/checkout}", "store: {etcd: {endpoints: ['127.0.0.1:1']}}\n")
	west := launch(t, cfg, nil)
	d := dig{t: t, at: west.Addr("dns")}
	for _, name := range []string{ordersName, "nowhere.shop.isthmus.internal", "x.y.east.isthmus.internal"} {
		if got := d.short(name); got != "SERVFAIL: (Not Ready)" {
			t.Errorf("%s: %s", name, got)
		}
	}
	if code, _ := west.get("/readyz"); code == http.StatusOK {
		t.Error("ready, without its store")
	}
}

func TestDNSOverTLSTakesANewCertificate(t *testing.T) {
	files := writeCertificate(t, t.TempDir(), "first")
	west := start(t, answering(t, "[{address: '127.0.0.1:0', as: shop/checkout}, {address: '127.0.0.1:0', tls: true, as: shop/checkout}]",
		fmt.Sprintf("dns: {tls: {cert: %s, key: %s}}\n", files.Cert, files.Key)), nil)
	west.sidecar(orders, "127.0.0.21:50002")
	shown := ""
	d := dig{t: t, at: west.listeners.Sockets("dns").Addr(1), net: "tcp-tls", tls: &tls.Config{
		InsecureSkipVerify: true, // the test looks at the certificate itself
		VerifyConnection: func(s tls.ConnectionState) error {
			shown = s.PeerCertificates[0].Subject.CommonName
			return nil
		},
	}}
	if got := d.short(ordersName); got != "NOERROR: 127.0.0.21" || shown != "first" {
		t.Fatalf("%s with the certificate %s", got, shown)
	}
	if err := os.WriteFile(files.Cert, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	west.failing("dns certificate", files.Cert)
	if d.short(ordersName); shown != "first" {
		t.Errorf("with a broken file the certificate %s is shown", shown)
	}
	writeCertificate(t, filepath.Dir(files.Cert), "second")
	west.within("the second certificate", func() bool { d.short(ordersName); return shown == "second" })
	west.renewed("dns certificate")
}

// failing waits until status, readiness and metrics have it that a certificate can't be renewed.
func (r *running) failing(use, why string) {
	r.t.Helper()
	r.within(use+" fails in status", func() bool {
		return slices.ContainsFunc(r.status().GetTrust(), func(c *v1alpha1.TrustStatus) bool {
			return c.GetUse() == use && strings.Contains(c.GetError(), why) && c.GetNotAfterUnixMs() > 0
		})
	})
	r.says("/readyz", "note: "+use+" not renewed: ")
	r.says("/metrics", `isthmus_certificates_failing{peer="",use="`+use+`"} 1`)
}

// renewed waits until they have it no more.
func (r *running) renewed(use string) {
	r.t.Helper()
	r.within(use+" is well", func() bool {
		code, body := r.get("/readyz")
		return code == http.StatusOK && !strings.Contains(body, use)
	})
	r.says("/metrics", `isthmus_certificates_failing{peer="",use="`+use+`"} 0`)
}

func (r *running) says(path, want string) {
	r.t.Helper()
	if code, body := r.get(path); code != http.StatusOK || !strings.Contains(body, want) {
		r.t.Errorf("%s: %d without %q:\n%s", path, code, want, body)
	}
}

// writeCertificate writes a certificate for itself and its key.
func writeCertificate(t *testing.T, dir, name string) dnsedge.TLS {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	files := dnsedge.TLS{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}
	for path, block := range map[string]*pem.Block{files.Key: {Type: "PRIVATE KEY", Bytes: keyDER}, files.Cert: {Type: "CERTIFICATE", Bytes: der}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func TestStatusTellsHowDNSIsAnswered(t *testing.T) {
	upstream := resolverOf(t, map[string]string{"gw.east.example.": "192.0.2.7"})
	cfg := answering(t, "['127.0.0.1:0', {address: '127.0.0.1:0', as: shop/checkout}]", "dns: {forward: '"+upstream+"'}\n")
	west := start(t, cfg, nil)
	const gateways = "apiVersion: isthmus.dev/v1alpha1\nkind: Cluster\nmetadata: {name: east}\nspec: {gateways: [{address: 'GW.east.example:15443'}, {address: 'gone.east.example:15443'}, {address: 'gw.shop.isthmus.internal:1'}]}\n"
	west.apply(gateways)
	hosts := func() (said []string) {
		for _, h := range west.status().GetDns().GetHosts() {
			said = append(said, fmt.Sprint(h.GetName(), " ", h.GetAddresses(), " ", h.GetError()))
		}
		return said
	}
	west.within("all names looked up", func() bool {
		said := strings.Join(hosts(), "\n")
		return strings.Contains(said, "gone.east.example [] lookup gone.east.example") && strings.Contains(said, "gw.east.example [192.0.2.7] ") &&
			strings.Contains(said, "gw.shop.isthmus.internal [] the name is in this server's own domain isthmus.internal")
	})
	said := west.status().GetDns()
	if l := said.GetListeners(); len(l) != 2 || l[0].GetAddress() != west.Addr("dns").String() || l[1].GetAs() != "shop/checkout" || fmt.Sprint(l[0].GetProtocols()) != "[udp tcp]" {
		t.Errorf("listeners %v", l)
	}
	west.within("the upstream up", func() bool { // it is asked again where this machine was slow to answer
		u := west.status().GetDns().GetUpstreams()
		return len(u) == 1 && u[0].GetAddress() == upstream && u[0].GetUp()
	})
	d := dig{t: t, at: west.listeners.Sockets("dns").Addr(1)}
	if got := d.short("orders.shop.east.isthmus.internal"); got != "NOERROR: 192.0.2.7" && !strings.HasPrefix(got, "NXDOMAIN") {
		t.Errorf("orders in east: %s", got)
	}
	stranger := dig{t: t, at: west.Addr("dns")}
	if got := stranger.short("any.app.east.isthmus.internal"); got != "NOERROR: 192.0.2.7" {
		t.Errorf("a gateway's name, for a stranger: %s", got)
	}
	west.within("what is forwarded answered", func() bool { return stranger.short("gw.east.example") == "NOERROR: 192.0.2.7" })
}

// resolverOf is a DNS server for a few names until the test ends.
func resolverOf(t *testing.T, names map[string]string) (address string) {
	t.Helper()
	address = freeAddress(t)
	conn, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	answer := dns.HandlerFunc(func(w dns.ResponseWriter, query *dns.Msg) {
		response := new(dns.Msg).SetReply(query)
		question := query.Question[0]
		response.RecursionAvailable = true
		switch a, ok := names[strings.ToLower(question.Name)]; {
		case !ok:
			response.Rcode = dns.RcodeNameError
		case question.Qtype == dns.TypeA:
			response.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: question.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.ParseIP(a)}}
		}
		_ = w.WriteMsg(response) // the client asks again
	})
	for _, server := range []*dns.Server{{PacketConn: conn, Handler: answer}, {Listener: listener, Handler: answer}} {
		done := make(chan struct{})
		up := make(chan struct{})
		server.NotifyStartedFunc = func() { close(up) }
		go func() { defer close(done); _ = server.ActivateAndServe() }()
		<-up
		t.Cleanup(func() { _ = server.Shutdown(); <-done })
	}
	return address
}

func TestAnAddressForDNSThatIsTakenIsNamed(t *testing.T) {
	west := start(t, answering(t, "127.0.0.1:0", ""), nil)
	taken := west.Addr("dns").String()
	err := New(answering(t, "'"+taken+"'", ""), west.log).Listen()
	if want := "listen.dns: " + taken + " by TCP: address already in use; stop what listens there"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v\nwant %s", err, want)
	}
	err = New(answering(t, "{address: '127.0.0.1:0', tls: true}", "dns: {tls: {cert: /nonexistent/a, key: /nonexistent/b}}\n"), west.log).Listen()
	if err == nil || !strings.HasPrefix(err.Error(), "dns.tls: stat /nonexistent/a: no such file or directory; name a certificate") {
		t.Errorf("got %v", err)
	}
}

// TestTheZoneIsAskedForAsPodsDo has a resolver lead to the service, as CoreDNS does, and to nobody.
func TestTheZoneIsAskedForAsPodsDo(t *testing.T) {
	west := start(t, answering(t, "'127.0.0.1:0'", "dns: {forwarders: 127.0.0.9}\n"), nil)
	if west.cfg.zone(net.DefaultResolver) != nil {
		t.Error("it is asked for outside of Kubernetes")
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
	unforwarded := *west.cfg
	unforwarded.DNS.Forwarders = nil
	if unforwarded.zone(net.DefaultResolver) != nil {
		t.Error("it is asked for though nothing forwards queries")
	}
	through := func(at string) error {
		return west.cfg.zone(&net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, at)
		}})(t.Context())
	}
	if err := through(west.Addr("dns").String()); err != nil {
		t.Errorf("by a resolver that forwards the zone: %v", err)
	}
	if through("127.0.0.1:1") == nil {
		t.Error("the zone is found where nobody answers")
	}
}
