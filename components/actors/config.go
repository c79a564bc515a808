// Package actors is the bridge for Dapr's actors between clusters: "isthmus actors". It stands
// behind a sidecar of its own, one for each namespace of a cluster.
//
// For callers of its cluster it hosts the actor types that other clusters own, by Dapr's public API
// for actor hosts, and passes each call on to the bridge of the owner cluster by service
// invocation. For other clusters it calls the actors that this cluster owns, by the actor API of
// its sidecar. docs/explanation/actors.md says why it is built so.
package actors

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// Config is the file of "isthmus actors". docs/how-to/actors.md says what each key does.
type Config struct {
	Cluster           string          `yaml:"cluster"`
	Namespace         string          `yaml:"namespace"`
	Resolver          string          `yaml:"resolver"`
	ResolverNamespace string          `yaml:"resolverNamespace"`
	Identity          identity.Config `yaml:"identity"`
	Listen            string          `yaml:"listen"`    // where the sidecar reaches it: the app port
	Daprd             string          `yaml:"daprd"`     // the sidecar's HTTP API
	Placement         string          `yaml:"placement"` // URL of the placement service's state; empty: nobody asks it
}

// The defaults of a Config. The sidecar's port is Dapr's.
const (
	DefaultResolver = "127.0.0.1:7400"
	DefaultListen   = "127.0.0.1:7460"
	defaultPort     = "3500"
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
	c.Daprd = cmp.Or(c.Daprd, net.JoinHostPort("127.0.0.1", cmp.Or(os.Getenv("DAPR_HTTP_PORT"), defaultPort)))
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
	doc.Merge("identity", c.Identity.Check())
	for path, address := range map[string]string{"listen": c.Listen, "daprd": c.Daprd} {
		if _, _, err := net.SplitHostPort(address); err != nil {
			doc.Refuse(path, fmt.Sprintf("%q is no host:port", address), "write one such as "+DefaultListen)
		}
	}
	if u, err := url.Parse(c.Placement); err != nil || c.Placement != "" && (u.Scheme != "http" || u.Host == "") {
		doc.Refuse("placement", fmt.Sprintf("%q is no URL", c.Placement), "write that of the placement service's state, such as http://dapr-placement-server.dapr-system:8080/placement/state")
	}
}
