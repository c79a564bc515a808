package resolverservice

import (
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/gateway"
	"github.com/isthmus-mesh/isthmus/resolver-service/process"
)

// TestBoundsFitBelowTheLimitOfOpenFiles for every limit that there may be.
func TestBoundsFitBelowTheLimitOfOpenFiles(t *testing.T) {
	for name, text := range map[string]string{
		"the default":   "",
		"all listeners": "listen: {resolver: '127.0.0.1:1', gateway: '127.0.0.1:2', dns: ['127.0.0.1:3', '127.0.0.1:4'], consul: '127.0.0.1:5', admin: '127.0.0.1:6', debug: '127.0.0.1:7', apps: [{address: '127.0.0.1:8', app: shop/a}]}\nconsul: {anonymous: shop/a}\n",
		"a gateway":     "listen: {gateway: '127.0.0.1:2'}\n",
		"large":         "resolver: {maxConnections: 1000000, maxConnectionsPerClient: 1000000}\ngateway: {maxConnections: 1000000}\n",
		"small":         "resolver: {maxConnections: 100, maxConnectionsPerClient: 100}\ngateway: {maxConnections: 100}\n",
	} {
		cfg, err := Parse("isthmus.yaml", []byte("cluster: west\nidentity: {insecure: true}\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		for _, limit := range []int{1024, 4096, 20_000, 65_536, 1 << 20, 1 << 31} {
			b := process.Fit(cfg.edges(), limit)
			resolver := cfg.Resolver.bounds(b)
			used := 0
			for _, e := range cfg.edges() {
				copies := len(e.Listen)
				if e.Claim.Joint {
					copies = min(copies, 1)
				}
				used += b.Of[e.Name] * copies * max(e.Claim.Cost, 1)
			}
			what := fmt.Sprintf("%s, limit %d: %+v, %+v", name, limit, b.Of, resolver)
			used += gateway.Descriptors(maxPeers(limit), 1+len(cfg.Listen.Apps))
			if used > limit-process.Reserve(limit) {
				t.Errorf("%s: %d descriptors leave no reserve of %d", what, used, process.Reserve(limit))
			}
			if len(b.Reduced) > 0 && (resolver.PerClient > max(b.Of["resolver"]/2, 1)) && name != "small" {
				t.Errorf("%s: one client can have all", what)
			}
			if resolver.Pending > b.Of["resolver"]/2 || resolver.Pending < 1 || b.Of["resolver"] < process.LeastConnections {
				t.Errorf("%s: is of no use", what)
			}
			if limit >= 1<<20 && len(b.Reduced) > 0 && name != "large" {
				t.Errorf("%s: reduced though there is enough", what)
			}
		}
		if name == "small" {
			if b := process.Fit(cfg.edges(), 20_000); b.Of["resolver"] != 100 || cfg.Resolver.bounds(b).PerClient != 100 || b.Of["gateway"] != 100 || len(b.Reduced) != 0 {
				t.Errorf("what is configured and fits became %+v", b.Of)
			}
		}
	}
}

func TestBoundsAreCheckedInTheConfiguration(t *testing.T) {
	good := "cluster: west\nidentity: {insecure: true}\n"
	for text, want := range map[string]string{
		"resolver: {maxConnections: 0}":                                         "resolver.maxConnections",
		"resolver: {maxConnectionsPerClient: -1}":                               "resolver.maxConnectionsPerClient",
		"resolver: {socketMode: '0600'}":                                        "no unix socket",
		"listen: {resolver: 'unix:///r'}\nresolver: {socketMode: '0999'}":       "no mode",
		"listen: {resolver: 'unix:///r'}\nresolver: {socketMode: '01777'}":      "no mode",
		"listen: {debug: '0.0.0.0:7481'}":                                       "listen.debug",
		"listen: {debug: '10.0.0.1:7481'}":                                      "loopback",
		"listen: {debug: '0.0.0.0:7481', debugExposed: true}":                   "",
		"listen: {debug: '[::1]:7481'}":                                         "",
		"listen: {resolver: 'unix:///r'}\nresolver: {socketMode: '0660'}":       "",
		"admin: {hosts: 'isthmus.example.com:80'}":                              "admin.hosts",
		"admin: {hosts: isthmus.example.com}":                                   "",
		"listen: {consul: '127.0.0.1:1'}\nconsul: {anonymous: a/b, hosts: '*'}": "consul.hosts",
	} {
		_, err := Parse("isthmus.yaml", []byte(good+text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
