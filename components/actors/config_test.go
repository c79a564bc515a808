package actors

import (
	"net"
	"strings"
	"testing"
)

// TestAConfigurationIsCheckedWhole has every mistake of a file named at once.
func TestAConfigurationIsCheckedWhole(t *testing.T) {
	const good = "cluster: west\nnamespace: shop\nidentity: {sentry: {address: '127.0.0.1:50001', trustAnchorsFile: ca.crt}}\nplacement: 127.0.0.1:50005\n"
	for _, c := range []struct {
		name, text string
		says       []string
	}{
		{"a whole one", good, nil},
		{"nothing", "", []string{"cluster: is missing", "namespace: is missing", "placement: \"\" is no host:port", "identity"}},
		{"a URL for placement, as it was", strings.Replace(good, "127.0.0.1:50005", "http://127.0.0.1:8080/placement/state", 1), []string{"placement", "no host:port", "dapr-placement-server.dapr-system.svc.cluster.local:50005"}},
		{"plain text", "cluster: west\nnamespace: shop\nidentity: {insecure: true}\nplacement: 127.0.0.1:50005\n", []string{"identity.insecure", "leaves callers without names"}},
		{"the system's namespace", strings.Replace(good, "shop", "isthmus-system", 1), []string{"is that of Isthmus' own apps"}},
		{"sizes and addresses", good + "maxBodySize: 4GiB\nlisten: here\nmetrics: off\naddress: here\n", []string{"maxBodySize", "listen: \"here\" is no host:port", "address: \"here\" is no IP address"}},
		{"a sidecar's key", good + "daprd: 127.0.0.1:3500\n", []string{"daprd"}},
		{"roots of a ConfigMap with files", strings.Replace(good, "sentry: {address: '127.0.0.1:50001', trustAnchorsFile: ca.crt}", "files: {cert: a, key: b, ca: c}, trustAnchorsFrom: {configMap: dapr-trust-bundle}", 1), []string{"trustAnchorsFrom: names Sentry's roots"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("NAMESPACE", "")
			cfg, err := Parse("actors.yaml", []byte(c.text))
			if (err == nil) != (c.says == nil) {
				t.Fatal(err)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%v; want %q", err, s)
				}
			}
			if err == nil && (cfg.bodySize != 4<<20+roomForHeaders || cfg.Listen != DefaultListen || cfg.Metrics != defaultMetrics) {
				t.Errorf("%+v", cfg)
			}
		})
	}
}

// TestTheAddressIsOneThatOthersReach looks for it where all addresses are listened at.
func TestTheAddressIsOneThatOthersReach(t *testing.T) {
	any, one := &net.TCPAddr{IP: net.IPv4zero, Port: 1}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 9), Port: 1}
	for _, c := range []struct {
		configured, pod string
		listens         net.Addr
		want            string // empty: an error
	}{
		{"", "", one, "10.0.0.9"}, {"10.0.0.1", "", one, "10.0.0.1"}, {"10.0.0.1", "10.0.0.2", any, "10.0.0.1"}, {"", "10.0.0.2", any, "10.0.0.2"}, {"", "", any, ""},
	} {
		t.Setenv("DAPR_HOST_IP", "")
		t.Setenv("POD_IP", c.pod)
		got, err := (&Config{Address: c.configured}).reached(c.listens)
		if got != c.want || (err == nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), "POD_IP") {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}
