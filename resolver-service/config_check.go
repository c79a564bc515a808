package resolverservice

import (
	"fmt"
	"net"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/strict"
)

// check adds to the document what its syntax can't tell.
func (c *Config) check(doc *strict.Document) {
	c.checkNames(doc)
	c.checkStore(doc)
	c.checkInstances(doc)
	c.checkReplicas(doc)
	c.checkListen(doc)
	c.checkDNS(doc)
	c.checkApps(doc)
	c.checkConsul(doc)
	c.checkIdle(doc)
	c.checkAdmin(doc)
	c.checkResolver(doc)
	c.checkIdentity(doc)
	c.checkBounds(doc)
	c.checkDestinations(doc)
	oneOf(doc, "defaultSelection", c.DefaultSelection, selectLocal, selectNone)
	oneOf(doc, "locality", c.Locality, catalog.NoLocality.String(), catalog.PreferZone.String())
	oneOf(doc, "log.level", c.Log.Level, "debug", "info", "warn", "error")
	oneOf(doc, "log.format", c.Log.Format, "text", "json")
	doc.Merge("tracing", c.Tracing.Check())
}

func (c *Config) checkNames(doc *strict.Document) {
	if c.Cluster == "" {
		if !doc.Has("cluster") {
			doc.Refuse("cluster", "is missing", "name this cluster as other clusters' Cluster objects name it: \"cluster: west\"")
		}
	} else if err := catalog.CheckCluster(c.Cluster); err != nil {
		doc.Refuse("cluster", err.Error(), "give the cluster another name")
	}
	if err := catalog.CheckDomain(c.Domain); err != nil {
		doc.Refuse("domain", err.Error(), "write a domain such as "+catalog.DefaultDomain)
	}
	for i, s := range c.Operators {
		if _, err := catalog.ParseApp(s); err != nil && s != "" {
			doc.Refuse(fmt.Sprintf("operators[%d]", i), err.Error(), "write namespace/app-id, such as "+identity.CLIApp("").String())
		}
	}
}

func (c *Config) checkListen(doc *strict.Document) {
	if c.Listen.nothing() && !doc.Wrong("listen") {
		doc.Refuse("listen", "nothing would run", "name resolver, dns, gateway, consul, admin or debug with an address, or leave listen out for all of them")
	}
	for _, l := range c.listens() {
		if path, ok := unixPath(l.address); ok && l.name == "resolver" {
			if !filepath.IsAbs(path) {
				doc.Refuse("listen.resolver", fmt.Sprintf("%q has no absolute path", l.address), "write unix:///path/to/socket")
			}
			continue
		}
		if l.address != "" {
			checkAddress(doc, "listen."+l.name, l.address, DefaultResolver)
		}
	}
}

// checkIdle refuses what is said of a listener that is not there: somebody thinks that it is.
func (c *Config) checkIdle(doc *strict.Document) {
	if doc.Wrong("listen") {
		return
	}
	if doc.Has("consul") && c.Listen.Consul == "" && !doc.Wrong("consul") {
		doc.Refuse("consul", "nobody listens for it", "write listen: {consul: \"127.0.0.1:8500\"}, beside the other parts that are to run, or leave consul out")
	}
	if len(c.Listen.DNS) > 0 {
		return
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[DNS]()) {
		key, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if path := "dns." + key; key != "kubernetes" && doc.Has(path) && !doc.Wrong(path) { // that is the gateway's, too
			doc.Refuse(path, "nobody listens for DNS", "write listen: {dns: \""+DefaultDNS+"\"}, beside the other parts that are to run, or leave it out")
		}
	}
}

func (c *Config) checkIdentity(doc *strict.Document) {
	if err := catalog.CheckNamespace(c.Identity.Namespace); err != nil {
		doc.Refuse("identity.namespace", err.Error(), "give the namespace another name")
	}
	doc.Merge("identity", c.Identity.Check())
	for i, d := range c.Identity.TrustDomains {
		if err := identity.CheckTrustDomain(d); err != nil && d != "" {
			doc.Refuse(fmt.Sprintf("identity.trustDomains[%d]", i), err.Error(), "write a trust domain such as shop.example")
		}
	}
	at := c.Listen.Resolver
	if _, unix := unixPath(at); c.Identity.Insecure && !c.Identity.InsecureExposed && at != "" && !unix && !onLoopback(at) {
		doc.Refuse("identity.insecure", "without certificates everybody who reaches listen.resolver, "+at+", is an operator",
			"listen on 127.0.0.1, give the service a certificate, or write insecureExposed: true beside it")
	}
}

func (c *Config) checkBounds(doc *strict.Document) {
	for _, n := range []struct {
		path  string
		value int
	}{
		{"gateway.maxConnections", c.Gateway.MaxConnections},
		{"gateway.maxPerSource", c.Gateway.MaxPerSource},
		{"gateway.maxHellos", c.Gateway.MaxHellos},
		{"resolver.maxConnections", c.Resolver.MaxConnections},
		{"resolver.maxConnectionsPerClient", c.Resolver.MaxConnectionsPerClient},
	} {
		if n.value < 0 || n.value == 0 && doc.Has(n.path) {
			doc.Refuse(n.path, fmt.Sprintf("%d is out of bounds", n.value), "write a number from 1 up, or leave it out")
		}
	}
	if g := c.Gateway; g.MaxConnections > 0 && g.MaxPerSource > g.MaxConnections {
		doc.Refuse("gateway.maxPerSource", fmt.Sprintf("%d is more than gateway.maxConnections", g.MaxPerSource), "write at most that, or leave it out for half of it")
	}
}

func oneOf(doc *strict.Document, path, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		doc.Refuse(path, fmt.Sprintf("%q is not known here", value), "write "+strings.Join(allowed, " or "))
	}
}

func checkAddress(doc *strict.Document, path, address, such string) {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		doc.Refuse(path, fmt.Sprintf("%q is no address", address), "write host:port, such as "+such)
	}
}

// unixPath is the path in "unix:///path".
func unixPath(address string) (path string, ok bool) {
	return strings.CutPrefix(address, "unix://")
}

type listen struct{ name, address string }

// listens are the listeners, in the order in which they are opened.
func (c *Config) listens() []listen {
	all := []listen{{"resolver", c.Listen.Resolver}, {"gateway", c.Listen.Gateway}, {"consul", c.Listen.Consul}, {"admin", c.Listen.Admin}, {"debug", c.Listen.Debug}}
	for i, l := range c.Listen.Apps {
		all = append(all, listen{appListener(i), l.Address})
	}
	return all
}
