package resolverservice

import (
	"reflect"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns"
)

const least = "cluster: west\nidentity: {insecure: true}\n"

func TestListenersForDNSMayBeWrittenInThreeWays(t *testing.T) {
	for text, want := range map[string][]dns.Endpoint{
		"listen: {dns: '127.0.0.1:53'}":                          {{Address: "127.0.0.1:53"}},
		"listen: {dns: {address: '10.0.0.1:53', as: shop/cart}}": {{Address: "10.0.0.1:53", As: "shop/cart"}},
		"listen: {dns: ['127.0.0.1:53', {address: '[::1]:853', tls: true}, ':5353']}\ndns: {tls: {cert: a, key: b}}": {
			{Address: "127.0.0.1:53"}, {Address: "[::1]:853", TLS: true}, {Address: ":5353"}},
		"listen: {admin: '127.0.0.1:1'}": nil,
		"":                               {{Address: dns.DefaultAddress}},
	} {
		cfg, err := Parse("isthmus.yaml", []byte(least+text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if !reflect.DeepEqual(cfg.Listen.DNS, want) {
			t.Errorf("%q: %+v, want %+v", text, cfg.Listen.DNS, want)
		}
	}
}

func TestAMistakeAboutDNSSaysWhereAndWhatToDo(t *testing.T) {
	for text, want := range map[string]string{
		"listen: {dns: 7453}":                                              `isthmus.yaml:3:15: listen.dns: "7453" is no address; write host:port, such as 127.0.0.1:7453`,
		"listen: {dns: 'unix:///run/x'}":                                   `isthmus.yaml:3:15: listen.dns: "unix:///run/x" is no address`,
		"listen: {dns: []}":                                                `isthmus.yaml:3:15: listen.dns: names no listener; write an address`,
		"listen: {dns: ''}":                                                `isthmus.yaml:3:15: listen.dns: is empty`,
		"listen: {dns: {as: shop/checkout}}":                               `isthmus.yaml:3:15: listen.dns: has no address; write {address:`,
		"listen: {dns: {address: x}}":                                      `isthmus.yaml:3:25: listen.dns.address: "x" is no address`,
		"listen: {dns: {adress: x}}":                                       `isthmus.yaml:3:16: listen.dns.adress: unknown field; did you mean "address"?`,
		"listen: {dns: [':1', {address: ':2', as: checkout}]}":             `isthmus.yaml:3:42: listen.dns[1].as: app "checkout": want namespace/app-id; write namespace/app-id, such as shop/checkout`,
		"listen: {dns: [':1', {address: ':2', as: Shop/x}]}":               `listen.dns[1].as: namespace "Shop"`,
		"listen: {dns: [':1', ':1']}":                                      `isthmus.yaml:3:22: listen.dns[1]: :1 is there twice; give each listener an address or a port of its own`,
		"listen: {dns: {address: ':853', tls: true}}":                      `isthmus.yaml:3:38: listen.dns.tls: there is no certificate for it; write dns: {tls: {cert: …, key: …}}`,
		"dns: {tls: {cert: a, key: b}}":                                    `isthmus.yaml:3:12: dns.tls: no listener has TLS; write listen:`,
		"listen: {dns: {address: ':1', tls: true}}\ndns: {tls: {cert: a}}": `isthmus.yaml:4:12: dns.tls: cert and key go together; name both files, in PEM`,
		"dns: {ttl: 0s}":                                                   `isthmus.yaml:3:12: dns.ttl: "0s" does not fit`,
		"dns: {gatewayTTL: 2h}":                                            `isthmus.yaml:3:19: dns.gatewayTTL: 2h0m0s is out of bounds`,
		"dns: {nsid: \"a\\nb\"}":                                           `isthmus.yaml:3:13: dns.nsid: is no short text in ASCII; write at most 128 characters`,
		"dns: {kubernetes: Cluster.local}":                                 `isthmus.yaml:3:19: dns.kubernetes: a label of domain`,
		"dns: {kubernetes: isthmus.internal}":                              `dns.kubernetes: the services of Kubernetes below`,
		"dns: {kubernetes: svc.cluster.local}":                             `isthmus.yaml:3:19: dns.kubernetes: "svc.cluster.local" begins with the label of services, which is put before it; write cluster.local`,
		"dns: {nameserver: [0.0.0.0]}":                                     `isthmus.yaml:3:20: dns.nameserver[0]: "0.0.0.0" is no address that others could ask; write an IP address such as 192.0.2.53`,
		"dns: {forwarders: [10.0.0.0/33]}":                                 `isthmus.yaml:3:20: dns.forwarders[0]: "10.0.0.0/33" is no network; write one such as 10.0.0.0/8`,
		"dns: {forwarders: ['::ffff:10.0.0.0/104']}":                       `is no network`,
		"dns: {forward: [dns.google]}":                                     `isthmus.yaml:3:17: dns.forward[0]: "dns.google" is no address of a server; write an IP address`,
		"dns: {forward: ['1.1.1.1:0']}":                                    `dns.forward[0]: "1.1.1.1:0" is no address of a server`,
		"dns: {forward: []}":                                               `isthmus.yaml:3:16: dns.forward: names no server; write one such as 10.96.0.10`,
		"dns: {forward: 0.0.0.0}":                                          `isthmus.yaml:3:16: dns.forward[0]: "0.0.0.0" is no address of a server`,
		"dns: {forward: '127.0.0.1:7453'}":                                 `isthmus.yaml:3:16: dns.forward: forward to 127.0.0.1:7453 would send queries back to this server, which listens at 127.0.0.1:7453; give another resolver`,
		"listen: {dns: ':53'}\ndns: {forward: 127.0.0.1}":                  `isthmus.yaml:4:16: dns.forward: forward to 127.0.0.1:53 would send queries back to this server`,
		"dns: {cache: -1}":                                                 `isthmus.yaml:3:14: dns.cache: -1 is out of bounds; write a number from 0 to 10000000, or leave it out`,
		"dns: {maxTCP: 0}":                                                 `isthmus.yaml:3:15: dns.maxTCP: 0 is out of bounds`,
		"dns: {cookieSecret: abc}":                                         `isthmus.yaml:3:21: dns.cookieSecret: a secret does not stand here itself`,
		"dns: {cookieSecret: {file: a, env: b}}":                           `isthmus.yaml:3:21: dns.cookieSecret: does not say where the secret is; write one of {file`,
		"dns: {rateLimit: {slip: 2}}":                                      `isthmus.yaml:3:18: dns.rateLimit: does not say how many; write {responses: 20, slip: 2}`,
		"dns: {rateLimit: {responses: -1}}":                                `isthmus.yaml:3:30: dns.rateLimit.responses: -1 is out of bounds`,
		"dns: {rateLimit: {responses: 1, slip: 101}}":                      `dns.rateLimit.slip: 101 is out of bounds`,
		"dns: {rateLimit: 20}":                                             `isthmus.yaml:3:18: dns.rateLimit: is 20 where a mapping is wanted`,
	} {
		_, err := Parse("isthmus.yaml", []byte(least+text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q:\n%v\nwant %s", text, err, want)
		}
	}
}

func TestWhatIsSaidOfAListenerThatIsNotThereIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"listen: {resolver: 'localhost:1'}\ndns: {ttl: 5s}":                            `isthmus.yaml:4:12: dns.ttl: nobody listens for DNS; write listen: {dns: "127.0.0.1:7453"}, beside the other parts that are to run, or leave it out`,
		"listen: {resolver: 'localhost:1'}\ndns: {forward: 192.0.2.1}":                 "isthmus.yaml:4:16: dns.forward: nobody listens for DNS",
		"listen: {resolver: 'localhost:1'}\ndns: {rateLimit: {slip: 1, responses: 1}}": "isthmus.yaml:4:18: dns.rateLimit: nobody listens for DNS",
		"listen: {resolver: 'localhost:1'}\ndns: {tls: {cert: a, key: b}}":             "isthmus.yaml:4:12: dns.tls: no listener has TLS",
		"listen: {resolver: 'localhost:1'}\nconsul: {anonymous: shop/cart}":            `isthmus.yaml:4:9: consul: nobody listens for it; write listen: {consul: "127.0.0.1:8500"}, beside the other parts that are to run, or leave consul out`,
		"consul: {anonymous: shop/cart}":                                               "isthmus.yaml:3:9: consul: nobody listens for it",
		"listen: {gateway: ':1'}\ndns: {kubernetes: cluster.local}":                    "",
		"listen: {dns: ':1'}\ndns: {ttl: 5s}":                                          "",
		"dns: {ttl: 5s, forward: 192.0.2.1}":                                           "",
	} {
		_, err := Parse("isthmus.yaml", []byte(least+text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%q:\n%v\nwant %s", text, err, want)
		}
	}
}
