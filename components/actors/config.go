// Package actors is the bridge for Dapr's actors between clusters: "isthmus actors", one for each
// namespace of a cluster.
//
// To the sidecars of its cluster it is a host of the actor types that other clusters own. It passes
// each call on to the bridge of the owner cluster, through that one's gateway. That bridge knows from
// Dapr's placement service which sidecar hosts the actor, and calls it.
// docs/explanation/actors.md says why it is built so.
package actors

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/resolver-service/authz/trustbundle"
	"github.com/isthmus-mesh/isthmus/tracing/otlp"
)

// Config is the file of "isthmus actors". docs/how-to/actors.md says what each key does.
type Config struct {
	Cluster           string               `yaml:"cluster"`
	Namespace         string               `yaml:"namespace"`
	Resolver          string               `yaml:"resolver"`
	ResolverNamespace string               `yaml:"resolverNamespace"`
	Identity          trustbundle.Identity `yaml:"identity"`
	Listen            string               `yaml:"listen"`      // for sidecars of this cluster, and through the gateway for other bridges
	Address           string               `yaml:"address"`     // the IP by which sidecars reach it
	Advertise         string               `yaml:"advertise"`   // as the sidecar's key: host:port by which the gateway reaches it, if that differs
	Placement         string               `yaml:"placement"`   // host:port of Dapr's placement service
	MaxBodySize       string               `yaml:"maxBodySize"` // as daprd's --max-body-size
	Metrics           string               `yaml:"metrics"`     // host:port of /metrics, /healthz and /readyz; "off": nowhere
	Tracing           otlp.Config          `yaml:"tracing"`

	bodySize int // of MaxBodySize, in bytes, with room for headers
}

// The defaults of a Config.
const (
	DefaultResolver = "127.0.0.1:7400"
	DefaultListen   = "127.0.0.1:7460"
	defaultMetrics  = "127.0.0.1:7461"
	defaultBodySize = "4Mi" // Dapr's
	noMetrics       = "off"
	roomForHeaders  = 64 << 10
)

// App is the app that the bridge is.
func (c *Config) App() catalog.App { return catalog.BridgeApp(c.Namespace, c.Cluster) }

// Load reads and checks a file. The error has a line for each mistake.
func Load(path string) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w; name the file with -c, and let this user read it", err)
	}
	return Parse(path, text)
}

// Parse is [Load] for a text that was read already.
func Parse(file string, text []byte) (*Config, error) {
	c := &Config{}
	doc := strict.Decode(file, text, c)
	c.Resolver, c.Listen = cmp.Or(c.Resolver, DefaultResolver), cmp.Or(c.Listen, DefaultListen)
	c.Namespace = cmp.Or(c.Namespace, os.Getenv("NAMESPACE"))
	c.ResolverNamespace = cmp.Or(c.ResolverNamespace, identity.SystemNamespace)
	c.Metrics, c.MaxBodySize = cmp.Or(c.Metrics, defaultMetrics), cmp.Or(c.MaxBodySize, defaultBodySize)
	strict.Place(c, filepath.Dir(file))
	c.check(doc)
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Config) check(doc *strict.Document) {
	if c.Cluster == "" {
		doc.Refuse("cluster", "is missing", "write the name of this cluster, as its resolver service has it")
	} else {
		doc.Merge("cluster", catalog.CheckCluster(c.Cluster))
	}
	switch {
	case c.Namespace == "":
		doc.Refuse("namespace", "is missing, and so is NAMESPACE in the environment", "write the namespace of the apps that call and host actors")
	case c.Namespace == c.ResolverNamespace:
		doc.Refuse("namespace", "is that of Isthmus' own apps", "write the namespace of the apps that call and host actors")
	default:
		doc.Merge("namespace", catalog.CheckNamespace(c.Namespace))
	}
	if c.Identity.Insecure {
		doc.Refuse("identity.insecure", "leaves callers without names, and the bridge calls in their names", "write identity: {sentry: {address: …}} or identity: {files: {cert: …, key: …, ca: …}}")
	} else {
		own, err := c.Identity.Followed(slog.New(slog.DiscardHandler))
		if err == nil {
			err = own.Check()
		}
		doc.Merge("identity", err)
	}
	for path, address := range map[string]string{"listen": c.Listen, "placement": c.Placement, "metrics": c.Metrics} {
		if _, _, err := net.SplitHostPort(address); err != nil && !(path == "metrics" && address == noMetrics) {
			doc.Refuse(path, fmt.Sprintf("%q is no host:port", address), "write one such as "+hints[path])
		}
	}
	if c.Address != "" && net.ParseIP(c.Address) == nil {
		doc.Refuse("address", fmt.Sprintf("%q is no IP address", c.Address), "write that by which this cluster's sidecars reach the bridge")
	}
	size, err := resource.ParseQuantity(c.MaxBodySize)
	if n := size.Value(); err != nil || n <= 0 || n > maxBodySize {
		doc.Refuse("maxBodySize", fmt.Sprintf("%q is no size from 1 to 1Gi", c.MaxBodySize), "write that of the sidecars' --max-body-size, such as 4Mi")
	} else {
		c.bodySize = int(n) + roomForHeaders
	}
	doc.Merge("tracing", c.Tracing.Check())
}

// hints are addresses as errors propose them.
var hints = map[string]string{"listen": DefaultListen, "metrics": defaultMetrics + ", or off", "placement": "dapr-placement-server.dapr-system.svc.cluster.local:50005"}

// maxBodySize is a bound on what one call may take of the memory.
const maxBodySize = 1 << 30

// reached is the IP by which sidecars reach the bridge that listens at an address.
func (c *Config) reached(at net.Addr) (string, error) {
	if ip := at.(*net.TCPAddr).IP; c.Address == "" && !ip.IsUnspecified() {
		return ip.String(), nil
	}
	address := cmp.Or(c.Address, os.Getenv("DAPR_HOST_IP"), os.Getenv("POD_IP"))
	if address == "" {
		return "", fmt.Errorf("listen is %s, all addresses of this machine: write the one by which this cluster's sidecars reach the bridge in address, or set POD_IP in the environment", c.Listen)
	}
	return address, nil
}
