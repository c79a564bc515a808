package resolverservice

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology/destination"
)

// Development has what only a machine for development should have.
type Development struct {
	Loopback bool `yaml:"loopback"` // instances on loopback may be exported
}

// Delegate may register instances that are elsewhere; see [destination.Delegate].
type Delegate struct {
	Networks  []string `yaml:"networks"`
	Apps      []string `yaml:"apps"`
	Addresses []string `yaml:"addresses"`
	Most      int      `yaml:"most"`
}

// mostOfDelegate is how many instances of one app a delegate may register from one source.
const mostOfDelegate = 100_000

func (c checker) checkDestinations() {
	networks(c.doc, "gateway.allow", c.Gateway.Allow)
	for i, d := range c.Instances.Delegates {
		path := fmt.Sprintf("instances.delegates[%d]", i)
		if c.doc.Wrong(path) {
			continue
		}
		if len(networks(c.doc, path+".networks", d.Networks)) == 0 && len(d.Networks) == 0 {
			c.doc.Refuse(path, "has no networks, so it holds for no registration", "write networks: [203.0.113.7/32], which the registrations come from")
		}
		if len(d.Apps) == 0 {
			c.doc.Refuse(path, "has no apps, so it holds for no registration", "write apps: [shop/orders], or [\"shop/*\"] for a namespace, or [\"*\"] for all")
		}
		for j, pattern := range d.Apps {
			if err := checkPattern(pattern); err != nil {
				c.doc.Refuse(fmt.Sprintf("%s.apps[%d]", path, j), err.Error(), "write namespace/app-id, such as shop/orders, or \"shop/*\", or \"*\"")
			}
		}
		networks(c.doc, path+".addresses", d.Addresses)
		if d.Most < 0 || d.Most > mostOfDelegate {
			c.doc.Refuse(path+".most", fmt.Sprintf("%d is out of bounds", d.Most), fmt.Sprintf("write a number from 1 to %d, or leave it out for %d", mostOfDelegate, stream.DefaultMaxInstances))
		}
	}
}

func checkPattern(pattern string) error {
	if pattern == "*" {
		return nil
	}
	if namespace, all := strings.CutSuffix(pattern, "/*"); all {
		return catalog.CheckNamespace(namespace)
	}
	_, err := catalog.ParseApp(pattern)
	return err
}

// networks reads a list of networks, and refuses those that are none.
func networks(doc *strict.Document, path string, texts []string) (all []netip.Prefix) {
	for i, text := range texts {
		p, err := netip.ParsePrefix(text)
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case doc.Wrong(at):
		case err != nil || p.Addr().Is4In6():
			doc.Refuse(at, fmt.Sprintf("%q is no network", text), "write one such as 10.0.0.0/8, or 10.0.0.7/32 for one address")
		case p != p.Masked():
			doc.Refuse(at, fmt.Sprintf("%q has bits set after its first %d", text, p.Bits()), "write "+p.Masked().String())
		default:
			all = append(all, p)
		}
	}
	return all
}

// prefixes are networks that were checked.
func prefixes(texts []string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func (c *Config) delegates() (all destination.Delegates) {
	for _, d := range c.Instances.Delegates {
		all = append(all, destination.Delegate{Networks: prefixes(d.Networks), Apps: d.Apps, Addresses: prefixes(d.Addresses), Most: d.Most})
	}
	return all
}

// destinations say which addresses may be instances, now that it is known where the service listens.
func (c *Config) destinations(listens []netip.AddrPort) *destination.Rules {
	return &destination.Rules{Loopback: c.Development.Loopback, Allow: prefixes(c.Gateway.Allow), Listeners: listens}
}
