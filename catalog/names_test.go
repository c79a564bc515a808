package catalog

import (
	"strings"
	"testing"
)

func TestNamesThatCanBeCarried(t *testing.T) {
	long := strings.Repeat("a", 63)
	tests := []struct {
		check func(string) error
		name  string
		ok    bool
	}{
		{CheckAppID, "Orders", true},
		{CheckAppID, "my_app-", true},
		{CheckAppID, long[:60], true},
		{CheckAppID, strings.Repeat("a", 129), false},
		{CheckAppID, "orders.shop", false}, // nor does daprd take it
		{CheckAppID, "", false},
		{CheckAppID, "a b", false},
		{CheckAppID, "café", false}, // nor can a SPIFFE ID have it
		{CheckHostAppID, "orders", true},
		{CheckHostAppID, "orders-2", true},
		{CheckHostAppID, "2", true},
		{CheckHostAppID, "Orders", false},      // daprd tells case apart, DNS does not
		{CheckHostAppID, "my_app", false},      // no underscore in a host name
		{CheckHostAppID, "orders.shop", false}, // daprd reads app.namespace
		{CheckHostAppID, "-orders", false},     //
		{CheckHostAppID, "orders-", false},     //
		{CheckHostAppID, "", false},            //
		{CheckHostAppID, "café", false},        //
		{CheckHostAppID, "a b", false},         //
		{CheckHostAppID, long[:58], true},      // Dapr's service is <app-id>-dapr
		{CheckHostAppID, long[:59], false},     //
		{CheckNamespace, long, true},           //
		{CheckNamespace, long + "a", false},    //
		{CheckCluster, "east", true},           //
		{CheckCluster, "local", false},         // stands for the caller's own
		{CheckCluster, "cli", false},           // isthmus-cli is the command line
		{CheckCluster, long[:50], true},        // isthmus-<cluster> is an app-id
		{CheckCluster, long[:51], false},       //
		{CheckCluster, "east.example", false},  //
		{CheckDomain, "isthmus.internal", true},
		{CheckDomain, "mesh", true},
		{CheckDomain, "", false},
		{CheckDomain, "mesh.", false},
		{CheckDomain, "a..b", false},
		{CheckDomain, strings.Repeat("a.", 64) + "a", false},
	}
	for _, test := range tests {
		if err := test.check(test.name); (err == nil) != test.ok {
			t.Errorf("%q: %v, want carried: %v", test.name, err, test.ok)
		}
	}
	if err := Domain(DefaultDomain).CheckHost(App{long, long[:58]}, long[:50]); err != nil {
		t.Errorf("the longest names do not fit the default domain: %v", err)
	}
	if err := Domain(strings.Repeat("a.", 60)+"a").CheckHost(App{long, long[:58]}, long); err == nil {
		t.Error("a host name of over 253 characters passed")
	}
}

func TestHostNames(t *testing.T) {
	d := Domain(DefaultDomain)
	orders := App{"shop", "orders"}
	for host, ok := range map[string]bool{
		"orders.shop.east.isthmus.internal":     true,
		"ORDERS.Shop.east.Isthmus.INTERNAL":     true,
		"orders.shop.east.isthmus.internal.":    true,
		"orders.shop.isthmus.internal":          false,
		"1.orders.shop.east.isthmus.internal":   false,
		"orders.shop.east.isthmus.internal..":   false,
		"orders.shop.eastisthmus.internal":      false,
		"orders..east.isthmus.internal":         false,
		".orders.shop.east.isthmus.internal":    false,
		"_resolver.east.isthmus.internal":       false,
		"orders.shop.east.isthmus.internal.io":  false,
		"orders\xff.shop.east.isthmus.internal": false,
		"\u212a.shop.east.isthmus.internal":     false, // the Kelvin sign, a k in lower case
		"":                                      false,
	} {
		app, cluster, got := d.ParseHost(host)
		if got != ok || ok && (app != orders || cluster != "east") {
			t.Errorf("%q: %v, %q, %v, want %v", host, app, cluster, got, ok)
		}
	}
	if host := d.Host(orders, "east"); host != "orders.shop.east.isthmus.internal" {
		t.Errorf("host name %q", host)
	}
}

func FuzzParseHost(f *testing.F) {
	f.Add("orders.shop.east.isthmus.internal")
	f.Add("_resolver.east.isthmus.internal")
	f.Add("..isthmus.internal")
	f.Fuzz(func(t *testing.T, host string) {
		d := Domain(DefaultDomain)
		app, cluster, ok := d.ParseHost(host)
		if !ok {
			return
		}
		if again, c, ok := d.ParseHost(d.Host(app, cluster)); !ok || again != app || c != cluster {
			t.Errorf("%q reads as %v in %q, which does not read back", host, app, cluster)
		}
	})
}

func TestGatewayAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"203.0.113.7:15443":                      "203.0.113.7:15443",
		"203.0.113.7":                            "203.0.113.7:15443",
		"gw.east.example":                        "gw.east.example:15443",
		"gw.east.example:443":                    "gw.east.example:443",
		"[2001:db8::1]:443":                      "[2001:db8::1]:443",
		"2001:db8::1":                            "[2001:db8::1]:15443",
		"gw.east.example:0":                      "",
		"gw.east.example:https":                  "",
		"gw.east.example:70000":                  "",
		"http://gw.east":                         "",
		":15443":                                 "",
		"":                                       "",
		"gw east:15443":                          "",
		"[2001:DB8::1]:0443":                     "[2001:db8::1]:443", // and so it is seen that two are one
		"gw.east.example:0443":                   "gw.east.example:443",
		"[203.0.113.7]:443":                      "203.0.113.7:443",
		"fe80::1":                                "[fe80::1]:15443",
		"fe80::1%eth0":                           "",
		"[fe80::1%eth0]:443":                     "",
		"[fe80::1%\x7f]:443":                     "",
		"fe80::1%a]b":                            "",
		"gw:" + strings.Repeat("0", 300) + "443": "",
	} {
		got, err := CheckGateway(address)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", address, got, err, want)
		}
		if again, err := CheckGateway(got); want != "" && again != got {
			t.Errorf("%q is read again as %q, %v", got, again, err)
		}
	}
}

// FuzzGateway checks that an accepted gateway address is unchanged when parsed again, and is
// short, printable ASCII.
func FuzzGateway(f *testing.F) {
	for _, address := range []string{"203.0.113.7", "gw.East.example.:0443", "[2001:DB8::1]:443", "::ffff:203.0.113.7", "[fe80::1%\u0085]:443", "fe80::1%a]b", "[fe80::1%" + strings.Repeat("x", 300) + "]:1"} {
		f.Add(address)
	}
	f.Fuzz(func(t *testing.T, address string) {
		got, err := CheckGateway(address)
		if err != nil {
			return
		}
		if again, err := CheckGateway(got); again != got {
			t.Errorf("%q is taken for %q, and that for %q, %v", address, got, again, err)
		}
		if strings.ContainsFunc(got, func(c rune) bool { return c <= ' ' || c > '~' }) || len(got) > maxGateway {
			t.Errorf("%q is taken for %q", address, got)
		}
	})
}
