package dns

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/transport"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/zone"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// parse reads what isthmus.yaml has of DNS.
func parse(text []byte) (endpoints, error) {
	var file struct {
		Listen struct {
			DNS []Endpoint `yaml:"dns,single"`
		} `yaml:"listen"`
		DNS Settings `yaml:"dns"`
	}
	doc := strict.Decode("isthmus.yaml", text, &file)
	e := endpoints{file.Listen.DNS, &file.DNS}
	if len(e.all) == 0 {
		e.all = []Endpoint{{Address: DefaultAddress}}
	}
	e.check(doc, "isthmus.internal")
	return e, doc.Err()
}

func TestEveryKeyOfDNSIsTaken(t *testing.T) {
	t.Setenv("ISTHMUS_COOKIES", "000102030405060708090a0b0c0d0e0f")
	cfg, err := parse([]byte(`listen: {dns: ["127.0.0.1:53", {address: "0.0.0.0:853", tls: true}]}
dns:
  ttl: 2s
  gatewayTTL: 1m
  nsid: west-1
  kubernetes: cluster.local
  nameserver: [192.0.2.53, "2001:db8::53"]
  forwarders: [10.0.0.0/8, 192.0.2.1]
  forward: [10.96.0.10, "1.1.1.1:5353", "[2001:db8::1]:53"]
  cache: 0
  tls: {cert: a, key: b}
  cookieSecret: {env: ISTHMUS_COOKIES}
  rateLimit: {responses: 5, slip: 0}
  maxTCP: 10
`))
	if err != nil {
		t.Fatal(err)
	}
	z, err := cfg.zone(zone.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if z.Kubernetes != "cluster.local" || z.TTL != 2*time.Second || z.GatewayTTL != time.Minute ||
		fmt.Sprint(z.Nameserver, z.Forwarders) != "[192.0.2.53 2001:db8::53] [10.0.0.0/8 192.0.2.1/32]" || z.CookieSecret[15] != 15 {
		t.Errorf("zone %+v", z)
	}
	if got := fmt.Sprint(cfg.upstreams()); got != "[10.96.0.10:53 1.1.1.1:5353 [2001:db8::1]:53]" {
		t.Errorf("upstreams %s", got)
	}
	for _, l := range cfg.all {
		if got := cfg.rateLimit(l); got != (transport.RateLimit{Responses: 5}) {
			t.Errorf("%s is limited to %+v", l.Address, got)
		}
	}
}

func TestOnlyListenersThatOthersReachAreLimitedByDefault(t *testing.T) {
	slip := 7
	for _, c := range []struct {
		address string
		limit   *RateLimit
		want    transport.RateLimit
	}{
		{"127.0.0.1:53", nil, transport.RateLimit{}},
		{"127.7.0.1:53", nil, transport.RateLimit{}},
		{"[::1]:53", nil, transport.RateLimit{}},
		{"localhost:53", nil, transport.RateLimit{}},
		{"0.0.0.0:53", nil, transport.RateLimit{Responses: 20, Slip: 2}},
		{":53", nil, transport.RateLimit{Responses: 20, Slip: 2}},
		{"10.0.0.1:53", nil, transport.RateLimit{Responses: 20, Slip: 2}},
		{"10.0.0.1:53", &RateLimit{}, transport.RateLimit{Slip: 2}},
		{"127.0.0.1:53", &RateLimit{Responses: 3, Slip: &slip}, transport.RateLimit{Responses: 3, Slip: 7}},
	} {
		d := Settings{RateLimit: c.limit}
		if got := d.rateLimit(Endpoint{Address: c.address}); got != c.want {
			t.Errorf("%s with %+v: %+v, want %+v", c.address, c.limit, got, c.want)
		}
	}
}

func TestASecretOfCookiesIsRead(t *testing.T) {
	for text, want := range map[string]string{
		"000102030405060708090a0b0c0d0e0f":   "",
		"000102030405060708090A0B0C0D0E0F\n": "",
		"":                                   "dns.cookieSecret: read the secret: ",
		"0001":                               "dns.cookieSecret: is not 16 bytes in hexadecimal; make one with: openssl rand -hex 16",
		"000102030405060708090a0b0c0d0e0f00": "is not 16 bytes",
		"zz0102030405060708090a0b0c0d0e0f":   "is not 16 bytes",
	} {
		path := t.TempDir() + "/secret"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := parse([]byte("dns: {cookieSecret: {file: " + path + "}}"))
		if err != nil {
			t.Fatal(err)
		}
		z, err := cfg.zone(zone.Config{})
		if want == "" && (err != nil || z.CookieSecret[1] != 1) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if err != nil && len(text) > 10 && strings.Contains(err.Error(), text) {
			t.Errorf("the secret is shown: %v", err)
		}
	}
}

func TestAddressesOfTheListenersAreKnown(t *testing.T) {
	cfg, err := parse([]byte("listen: {dns: [':53', '0.0.0.0:54', 'localhost:55', '[::1]:56']}"))
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.AddrPort{netip.MustParseAddrPort("[::]:53"), netip.MustParseAddrPort("0.0.0.0:54"), netip.MustParseAddrPort("[::1]:56")}
	if got := cfg.addresses(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestPort53HasAdviceOfItsOwn(t *testing.T) {
	for _, c := range []struct {
		address string
		err     error
		want    string
	}{
		{"0.0.0.0:53", syscall.EADDRINUSE, "systemd-resolved"},
		{"127.0.0.1:53", syscall.EACCES, "CAP_NET_BIND_SERVICE"},
		{"127.0.0.1:853", syscall.EACCES, "CAP_NET_BIND_SERVICE"},
		{"127.0.0.1:7453", syscall.EADDRINUSE, ""},
		{"192.0.2.1:53", syscall.EADDRNOTAVAIL, ""},
	} {
		if got := advice(c.address, c.err); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s, %v: %s", c.address, c.err, got)
		}
	}
}

func TestTroublesOfDNSAreNotes(t *testing.T) {
	got := troubles(&v1alpha1.DNSStatus{
		Upstreams: []*v1alpha1.DNSUpstream{{Address: "1.1.1.1:53", Error: "timeout"}, {Address: "1.0.0.1:53", Up: true}},
	})
	if want := []string{"dns: forward to 1.1.1.1:53: timeout"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// TestBothFamiliesListenAtOnePort with an address of its own for each, in either order.
func TestBothFamiliesListenAtOnePort(t *testing.T) {
	for _, pair := range [][2]string{{"0.0.0.0", "[::]"}, {"[::]", "0.0.0.0"}, {"127.0.0.1", "[::]"}, {"0.0.0.0", ""}} {
		port, err := sandbox.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		at := func(host string) Listen { return Listen{Address: fmt.Sprint(host, ":", port)} }
		open, err := Open([]Listen{at(pair[0]), at(pair[1])}, Files{}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Errorf("%v: %v", pair, err)
			continue
		}
		open.Close()
	}
}
