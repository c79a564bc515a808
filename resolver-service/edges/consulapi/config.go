package consulapi

import (
	"fmt"
	"log/slog"
	"net"

	"github.com/hashicorp/consul/api"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/settings"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/resolver-service/authz/hostcheck"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Settings are the block "consul" of isthmus.yaml.
type Settings struct {
	Tokens    []Token `yaml:"tokens"`
	Anonymous string  `yaml:"anonymous"` // the app that asks without a token: namespace/app-id
	// ExposeAnonymous says that Anonymous is meant where more than this machine can ask.
	ExposeAnonymous bool `yaml:"exposeAnonymous"`

	Node     string `yaml:"node"`     // of the agent; isthmus-<cluster> by default
	PortMeta string `yaml:"portMeta"` // the key of the port of the sidecar's internal gRPC server

	MaxConnections          int `yaml:"maxConnections"`
	MaxConnectionsPerClient int `yaml:"maxConnectionsPerClient"` // of one address; by IPv6 of one /64

	Hosts []string `yaml:"hosts,single"` // names that requests may have in their Host header

	TLS *TLS `yaml:"tls"`
}

// Token gives an app a token.
type Token struct {
	App   string          `yaml:"app"` // namespace/app-id
	Token settings.Secret `yaml:"token"`
}

// TLS has the server's certificate: files in PEM, which are read again at each handshake.
type TLS struct {
	Cert string `yaml:"cert" file:""`
	Key  string `yaml:"key" file:""`
}

// The defaults of Settings.
const (
	DefaultPortMeta                = "DAPR_PORT" // the stock component's
	versionMeta                    = "version"   // the key of the version of the app
	DefaultMaxConnections          = 10_000
	DefaultMaxConnectionsPerClient = 200 // as a Consul agent's
)

// mostTokens is how many tokens there may be.
const mostTokens = 10_000

// Check finds the mistakes, without reading a secret. The paths are below "consul". address is
// where listen.consul is; empty for nowhere.
func (s *Settings) Check(address string) (wrong strict.Errors) {
	if len(s.Tokens) > mostTokens {
		wrong.Add("tokens", fmt.Sprintf("%d are more than %d", len(s.Tokens), mostTokens), "leave some out")
		return wrong
	}
	for n, t := range s.Tokens {
		if _, err := catalog.ParseApp(t.App); err != nil {
			wrong.Add(fmt.Sprintf("tokens[%d].app", n), err.Error(), "write namespace/app-id, such as shop/checkout")
		}
		if err := t.Token.Check(); err != nil {
			wrong.Add(fmt.Sprintf("tokens[%d].token", n), "does not say where the token is", "write one of {file: /run/secrets/name} and {env: NAME}")
		}
	}
	if _, err := catalog.ParseApp(s.Anonymous); err != nil && s.Anonymous != "" {
		wrong.Add("anonymous", err.Error(), "write namespace/app-id, such as shop/checkout")
	} else if s.Anonymous != "" && address != "" && !loopback(address) && !s.ExposeAnonymous {
		wrong.Add("anonymous", fmt.Sprintf("every client that reaches %s would be %s", address, s.Anonymous),
			"write listen.consul with a loopback address, give each app a token, or write \"exposeAnonymous: true\" if that is meant")
	}
	if address != "" && len(s.Tokens) == 0 && s.Anonymous == "" {
		wrong.Add("tokens", "are missing: listen.consul is there, and nobody could ask",
			"write \"tokens: [{app: shop/checkout, token: {env: CHECKOUT_TOKEN}}]\", or \"anonymous: shop/checkout\"")
	}
	return append(wrong, s.checkRest()...)
}

func (s *Settings) checkRest() (wrong strict.Errors) {
	if s.PortMeta != "" && !metaKey(s.PortMeta) {
		wrong.Add("portMeta", fmt.Sprintf("%q is no key of a service's metadata", s.PortMeta), "write letters, digits, - and _, such as "+DefaultPortMeta)
	}
	for name, n := range map[string]int{"maxConnections": s.MaxConnections, "maxConnectionsPerClient": s.MaxConnectionsPerClient} {
		if n < 0 {
			wrong.Add(name, fmt.Sprintf("%d is out of bounds", n), "write a number from 1 up, or leave it out")
		}
	}
	for n, host := range s.Hosts {
		if err := hostcheck.Check(host); err != nil {
			wrong.Add(fmt.Sprintf("hosts[%d]", n), err.Error(), "write a name without a port, such as isthmus.example.com")
		}
	}
	if s.TLS != nil && (s.TLS.Cert == "" || s.TLS.Key == "") {
		wrong.Add("tls", "cert and key go together", "name both files, or leave tls out")
	}
	return wrong
}

// loopback tells whether only this machine reaches an address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

// Config says what a Server works with.
type Config struct {
	Settings
	// Registering is what registrations are held to. Of what is nil, the server has one of its own, or
	// none.
	edge.Registering
	Cluster string
	// Kubernetes is the cluster domain of Kubernetes; empty: cluster.local.
	Kubernetes string
	Version    string // of the program
	Address    string // where it listens, host:port
	Directory  string // of the files of registered services; empty keeps none
	Topology   *topology.Topology
	// Settled is closed once views have all that they had before the service started, as far
	// as that can be known. Queries wait for it. Nil: views have all already.
	Settled <-chan struct{}
	Log     *slog.Logger
	Metrics prometheus.Registerer // nil for none
}

func (c *Config) portKey() string {
	if c.PortMeta != "" {
		return c.PortMeta
	}
	return DefaultPortMeta
}

// host is the address of the agent's node: where it listens, or loopback where that is
// everywhere.
func (c *Config) host() string {
	host, _, err := net.SplitHostPort(c.Address)
	if ip := net.ParseIP(host); err != nil || ip == nil || ip.IsUnspecified() {
		return "127.0.0.1"
	}
	return host
}

func (c *Config) node() *api.Node {
	name := c.Node
	if name == "" {
		name = "isthmus-" + c.Cluster
	}
	return newNode(name, c.host(), c.Cluster)
}
