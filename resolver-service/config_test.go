package resolverservice

import (
	"errors"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/admin"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns"
)

func TestAConfigurationOfThreeLinesIsEnough(t *testing.T) {
	cfg, err := Parse("isthmus.yaml", []byte("cluster: west\nidentity: {insecure: true}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Domain != "isthmus.internal" || cfg.DefaultSelection != "local" || cfg.Store.Embedded.Path != filepath.Join("data", "isthmus.db") ||
		!reflect.DeepEqual(cfg.Listen, Listen{Resolver: DefaultResolver, DNS: []dns.Endpoint{{Address: dns.DefaultAddress}}, Gateway: DefaultGateway, Admin: admin.DefaultAddress, Debug: admin.DefaultDebugAddress}) || cfg.Operators[0] != "isthmus-system/isthmus-cli" ||
		cfg.Log != (Log{"info", "text"}) || !reflect.DeepEqual(cfg.Gateway, Gateway{}) || cfg.Development.Loopback {
		t.Errorf("got %+v", cfg)
	}
}

func TestTheOperatorSocketIsWhereNothingElseIsSaid(t *testing.T) {
	dir := t.TempDir()
	for listen, want := range map[string]string{
		"": "unix:///srv/west/operator-west.sock", "operator: off": "", "operator: 'off'": "", "operator: unix:///run/o.sock": "unix:///run/o.sock",
	} {
		cfg, err := Parse(filepath.Join(dir, "isthmus.yaml"), []byte("cluster: west\nidentity: {insecure: true}\ndataDir: /srv/west\nlisten:\n  resolver: 127.0.0.1:0\n  "+listen+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		if got := cfg.operatorAddress(); got != want {
			t.Errorf("%q: the socket is at %q, want %q", listen, got, want)
		}
	}
	if _, err := Parse("isthmus.yaml", []byte("cluster: west\nidentity: {insecure: true}\nlisten: {operator: off}\n")); err == nil || !strings.Contains(err.Error(), "nothing would run") {
		t.Errorf("an operator socket alone: %v", err)
	}
	long := &Config{Cluster: "west", DataDir: "/" + strings.Repeat("long/", 30)}
	if got := long.operatorAddress(); got != "" {
		t.Errorf("a path that no system takes is used: %s", got)
	}
}

func TestEveryKeyIsTaken(t *testing.T) {
	cfg, err := Parse("isthmus.yaml", []byte(`
cluster: west
domain: mesh.example
network: net-1
defaultSelection: none
dataDir: /var/lib/isthmus
store: {embedded: {path: /srv/objects.db}}
listen:
  resolver: unix:///run/isthmus.sock
  gateway: 0.0.0.0:15443
identity:
  namespace: mesh
  sentry: {address: "127.0.0.1:50001", trustAnchorsFile: /etc/ca.crt}
operators: [ops/alice, ops/bob]
gateway:
  plaintext: true
  allow: [10.0.0.0/8, "2001:db8::/32"]
  maxConnections: 100
  maxPerSource: 50
  maxHellos: 10
  helloTimeout: 1s
  dialTimeout: 2s
  drainTimeout: 3s
  stallTimeout: 4s
  answerTimeout: 5s
  advertise: ["gw.east.example:15443"]
  internal: ["gateway.isthmus:15443"]
tracing: {otlp: {endpoint: "127.0.0.1:4317"}, sampleRatio: 0.5}
development: {loopback: true}
instances:
  delegates:
  - {networks: [203.0.113.7/32], apps: [shop/orders, "finance/*"], addresses: [10.1.0.0/16], most: 100}
  - {networks: ["::/0"], apps: ["*"]}
log: {level: debug, format: json}
`))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(cfg.Listen, Listen{Resolver: "unix:///run/isthmus.sock", Gateway: "0.0.0.0:15443"}) {
		t.Errorf("what listen does not name runs: %+v", cfg.Listen)
	}
	if !reflect.DeepEqual(cfg.Gateway, Gateway{true, []string{"10.0.0.0/8", "2001:db8::/32"}, 100, 50, 10, time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second, 5 * time.Second, []string{"gw.east.example:15443"}, []string{"gateway.isthmus:15443"}}) {
		t.Errorf("gateway %+v", cfg.Gateway)
	}
	if d := cfg.delegates(); len(d) != 2 || d[0].Most != 100 || d[0].Addresses[0].String() != "10.1.0.0/16" || d[0].Apps[1] != "finance/*" || !cfg.Development.Loopback {
		t.Errorf("delegates %+v, development %+v", d, cfg.Development)
	}
	if cfg.Store.Embedded.Path != "/srv/objects.db" || *cfg.Tracing.SampleRatio != 0.5 || cfg.Identity.Sentry.Address != "127.0.0.1:50001" {
		t.Errorf("got %+v", cfg)
	}
	if len(cfg.operators()) != 2 || cfg.operators()[1].String() != "ops/bob" {
		t.Errorf("operators %v", cfg.operators())
	}
}

func TestAMistakeInTheConfigurationSaysWhereAndWhatToDo(t *testing.T) {
	const good = "cluster: west\nidentity: {insecure: true}\n"
	for text, want := range map[string]string{
		"identity: {insecure: true}":                                           `isthmus.yaml:1:1: cluster: is missing; name this cluster`,
		"cluster: West\nidentity: {insecure: true}":                            `isthmus.yaml:1:10: cluster: cluster name "West" has 'W'`,
		"cluster: local\nidentity: {insecure: true}":                           `isthmus.yaml:1:10: cluster: cluster name "local" is reserved`,
		"cluster: " + strings.Repeat("a", 60) + "\nidentity: {insecure: true}": `at most 50 fit`,
		"cluster: west": `identity: nothing configured; write one of files, sentry and insecure: true`,
		"cluster: west\nidentity: {insecure: true, files: {cert: a, key: b, ca: c}}": `isthmus.yaml:2:11: identity: files and insecure exclude each other; keep one`,
		"cluster: west\nidentity: {files: {cert: a}}":                                `isthmus.yaml:2:19: identity.files: key and ca missing`,
		"cluster: west\nidentity: {files: {crt: a}}":                                 `isthmus.yaml:2:20: identity.files.crt: unknown field; did you mean "cert"?`,
		"cluster: west\nidentity: {insecure: true, namespace: A}":                    `isthmus.yaml:2:39: identity.namespace: namespace "A"`,
		good + "domain: a..b":                                                                       `isthmus.yaml:3:9: domain: a label of domain "a..b" is empty`,
		good + "defaultSelection: all":                                                              `isthmus.yaml:3:19: defaultSelection: "all" is not known here; write local or none`,
		good + "listen: {gatewy: 1:1}":                                                              `isthmus.yaml:3:10: listen.gatewy: unknown field; did you mean "gateway"?`,
		good + `listen: {gateway: "15444"}`:                                                         `isthmus.yaml:3:19: listen.gateway: "15444" is no address; write host:port, such as 0.0.0.0:15444`,
		good + "listen: {ads: 127.0.0.1:53}":                                                        `isthmus.yaml:3:10: listen.ads: unknown field; `,
		good + "listen: {}":                                                                         `isthmus.yaml:3:9: listen: nothing would run`,
		good + "listen: {resolver: 7400}":                                                           `isthmus.yaml:3:20: listen.resolver: "7400" is no address; write host:port`,
		good + "listen: {resolver: 'unix://run/x'}":                                                 `isthmus.yaml:3:20: listen.resolver: "unix://run/x" has no absolute path; write unix:///path/to/socket`,
		good + "listen: {gateway: 'unix:///run/x'}":                                                 `isthmus.yaml:3:19: listen.gateway: "unix:///run/x" is no address`,
		good + "listen: {admin: 'localhost:http'}":                                                  `isthmus.yaml:3:17: listen.admin: "localhost:http" is no address`,
		good + "store: {embedded: {path: a}, file: {path: b}}":                                      `isthmus.yaml:3:8: store: embedded and file exclude each other`,
		good + "store: {file: {}}":                                                                  `isthmus.yaml:3:15: store.file.path: is missing; name the directory`,
		good + "operators: [alice]":                                                                 `isthmus.yaml:3:13: operators[0]: app "alice": want namespace/app-id`,
		good + "gateway: {maxConnections: 0}":                                                       `isthmus.yaml:3:27: gateway.maxConnections: 0 is out of bounds`,
		good + "gateway: {allow: [10.0.0.1]}":                                                       `isthmus.yaml:3:19: gateway.allow[0]: "10.0.0.1" is no network; write one such as 10.0.0.0/8, or 10.0.0.7/32 for one address`,
		good + "gateway: {allow: [10.0.0.0/8, 10.0.0.1/24]}":                                        `gateway.allow[1]: "10.0.0.1/24" has bits set after its first 24; write 10.0.0.0/24`,
		good + "instances: {delegates: [{apps: [shop/orders]}]}":                                    `instances.delegates[0]: has no networks, so it holds for no registration`,
		good + "instances: {delegates: [{networks: [10.0.0.7/32]}]}":                                `instances.delegates[0]: has no apps, so it holds for no registration`,
		good + "instances: {delegates: [{networks: [10.0.0.7/32], apps: [orders]}]}":                `instances.delegates[0].apps[0]: `,
		good + "instances: {delegates: [{networks: [10.0.0.7/32], apps: [\"*\"], most: -1}]}":       `instances.delegates[0].most: -1 is out of bounds; write a number from 1 to 100000, or leave it out for 64`,
		good + "instances: {delegates: [{networks: [10.0.0.7/32], apps: [\"*\"], addresses: [x]}]}": `instances.delegates[0].addresses[0]: "x" is no network`,
		good + "gateway: {maxHellos: -1}":                                                           `isthmus.yaml:3:22: gateway.maxHellos: -1 is out of bounds`,
		good + "gateway: {helloTimeout: fast}":                                                      `isthmus.yaml:3:25: gateway.helloTimeout: "fast" does not fit; write a length of time`,
		good + "tracing: {sampleRatio: 2}":                                                          `isthmus.yaml:3:24: tracing.sampleRatio: 2 is out of bounds`,
		good + "log: {level: loud}":                                                                 `isthmus.yaml:3:14: log.level: "loud" is not known here; write debug or info or warn or error`,
		good + "gateway: {maxPerSource: 0}":                                                         `isthmus.yaml:3:25: gateway.maxPerSource: 0 is out of bounds`,
		good + "gateway: {maxPerSource: 9, maxConnections: 8}":                                      `isthmus.yaml:3:25: gateway.maxPerSource: 9 is more than gateway.maxConnections; write at most that`,
		good + "gateway: {answerTimeout: -1s}":                                                      `gateway.answerTimeout: `,
		good + "gateway: {answerTimeout: 0s}":                                                       `isthmus.yaml:3:26: gateway.answerTimeout: "0s" does not fit; write a length of time`,
	} {
		_, err := Parse("isthmus.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
}

func TestAFileThatIsNotThereIsNamed(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "isthmus.yaml"))
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "name the file with -c") {
		t.Errorf("got %v", err)
	}
}
