package resolverservice

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/identity"
)

// Replicas says that this is one of several resolver services of one cluster, which
// behave as one.
type Replicas struct {
	Name string `yaml:"name"` // this one's; the name of its host by default
	// Addresses are listen.resolver of the others, with this one's among them or not. A name stands for
	// all its addresses.
	Addresses []string `yaml:"addresses"`
}

// longestName is how long a replica's name may be: as that of a host.
const longestName = 253

// replica is the name of this replica; empty where there is one service.
func (c *Config) replica() string {
	if c.Replicas == nil {
		return ""
	}
	return c.Replicas.Name
}

func (c *Config) defaultReplica() {
	if c.Replicas != nil && c.Replicas.Name == "" {
		c.Replicas.Name, _ = os.Hostname() // refused by checkReplicas where there is none
	}
}

// sharedSettings is what all replicas of one cluster have in common, and those of another cluster
// that has its name by mistake most likely have not.
func (c *Config) sharedSettings(own *identity.Source) map[string]string {
	all := map[string]string{
		"domain": c.Domain, "network": c.Network, "defaultSelection": c.DefaultSelection, "guard": c.Guard,
		"selectionIsConsent": fmt.Sprint(c.SelectionIsConsent),
		"declared":           fmt.Sprintf("annotations: %t, sidecars: %t", c.Declared.Annotations, c.Declared.Sidecars), "store": c.Store.Name(),
	}
	if own.Insecure() {
		all["identity"] = "insecure"
		return all
	}
	all["identity"] = "by certificate"
	if id, ok := own.ID(); ok {
		all["trust domain"] = id.TrustDomain
	}
	var roots []string
	for _, t := range own.Own() {
		if t.Use == identity.OwnRoot {
			roots = append(roots, t.Fingerprint[:min(len(t.Fingerprint), 16)])
		}
	}
	if slices.Sort(roots); len(roots) > 0 {
		all["set of roots"] = "SHA-256 " + strings.Join(roots, ", ")
	}
	return all
}

// ownStores are the stores that replicas can't share, and why.
var ownStores = map[string]string{
	"embedded": "is a file of one process: what is applied to this replica, the others would never know",
	"file":     "tells only the machine that it is on of changes, so that replicas elsewhere would not follow",
}

// checkReplicas refuses what several replicas can't do as one.
func (c checker) checkReplicas() {
	if c.Replicas == nil {
		if c.Instances.Etcd != nil {
			c.doc.Refuse("instances.etcd", "is where replicas share what sidecars register, and this is the only service",
				"write \"replicas: {name: a}\", with another name in each, or leave instances.etcd out")
		}
		return
	}
	name := c.Replicas.Name
	if name == "" || len(name) > longestName || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		c.doc.Refuse("replicas.name", fmt.Sprintf("%q is no name", name), "write one such as resolver-1")
	}
	for i, address := range c.Replicas.Addresses {
		if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
			c.doc.Refuse(fmt.Sprintf("replicas.addresses[%d]", i), fmt.Sprintf("%q is no address", address), "write host:port, such as \"resolver-2:7400\"")
		}
	}
	if why, own := ownStores[c.Store.Name()]; own {
		c.doc.Refuse("replicas", fmt.Sprintf("store %s %s", c.Store.Name(), why),
			"keep the objects in consul, etcd, kubernetes or dapr, or leave replicas out and run one service")
	}
	if i := c.Instances; i.Kubernetes == nil && i.Consul == nil && i.Etcd == nil {
		c.doc.Refuse("replicas", "no source of instances is shared: a sidecar that registers with one replica would be unknown to the others",
			"write \"instances: {etcd: {endpoints: [\"127.0.0.1:2379\"]}}\", or kubernetes or consul where every sidecar is known to it")
	}
}
