package resolverservice

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
)

// checker finds the mistakes in a configuration that the syntax of its document can't tell.
type checker struct {
	*Config
	doc *strict.Document
}

// check adds to the document what its syntax can't tell.
func (c checker) check() {
	c.checkNames()
	c.checkStore()
	c.checkInstances()
	c.checkReplicas()
	c.checkListen()
	for _, e := range c.edges() {
		if e.Check != nil {
			e.Check(c.doc)
		}
	}
	c.checkIdentity()
	c.checkDestinations()
	oneOf(c.doc, "defaultSelection", c.DefaultSelection, selectLocal, selectNone)
	oneOf(c.doc, "guard", c.Guard, catalog.GuardOff.String(), catalog.GuardObserve.String(), catalog.GuardEnforce.String())
	oneOf(c.doc, "locality", c.Locality, catalog.NoLocality.String(), catalog.PreferZone.String())
	oneOf(c.doc, "log.level", c.Log.Level, "debug", "info", "warn", "error")
	oneOf(c.doc, "log.format", c.Log.Format, "text", "json")
	c.doc.Merge("policies", c.Policies.Check())
	if k := c.Policies.Kubernetes; k != nil && !c.doc.Wrong("policies.kubernetes") {
		c.doc.Merge("policies.kubernetes", apiserver.Config{Kubeconfig: k.Kubeconfig, Context: k.Context}.Look())
	}
	if k := c.Instances.Kubernetes; c.Policies.Kubernetes.NeedsAccounts() && (k == nil || !k.ServiceAccounts) {
		c.doc.Refuse("policies.kubernetes.kinds", "istio and linkerd name callers by service accounts, which nothing reads", "write instances: {kubernetes: {serviceAccounts: true}}")
	}
	c.doc.Merge("tracing", c.Tracing.Check())
}

func (c checker) checkNames() {
	if c.Cluster == "" {
		if !c.doc.Has("cluster") {
			c.doc.Refuse("cluster", "is missing", "name this cluster as other clusters' Cluster objects name it: \"cluster: west\"")
		}
	} else if err := catalog.CheckCluster(c.Cluster); err != nil {
		c.doc.Refuse("cluster", err.Error(), "give the cluster another name")
	}
	if err := catalog.CheckDomain(c.Domain); err != nil {
		c.doc.Refuse("domain", err.Error(), "write a domain such as "+catalog.DefaultDomain)
	}
	for i, s := range c.Operators {
		if _, err := catalog.ParseApp(s); err != nil && s != "" {
			c.doc.Refuse(fmt.Sprintf("operators[%d]", i), err.Error(), "write namespace/app-id, such as "+identity.CLIApp("").String())
		}
	}
}

func (c checker) checkListen() {
	if c.Listen.empty() && !c.doc.Wrong("listen") {
		c.doc.Refuse("listen", "nothing would run", "name resolver, dns, gateway, consul, admin or debug with an address, or leave listen out for all of them")
	}
	for _, e := range c.edges() {
		for _, l := range e.Listen {
			if path, ok := edge.UnixPath(l.Address); ok && (l.Name == "resolver" || l.Name == "operator") {
				if !filepath.IsAbs(path) {
					c.doc.Refuse("listen."+l.Name, fmt.Sprintf("%q has no absolute path", l.Address), "write unix:///path/to/socket")
				}
			} else if l.Name == "operator" {
				c.doc.Refuse("listen.operator", fmt.Sprintf("%q is no unix socket", l.Address), "write unix:///path/to/socket, or "+operatorOff)
			} else if e.Open == nil && l.Address != "" {
				edge.CheckAddress(c.doc, "listen."+l.Name, l.Address, cmp.Or(e.Example, DefaultResolver))
			}
		}
	}
}

func (c checker) checkIdentity() {
	if err := catalog.CheckNamespace(c.Identity.Namespace); err != nil {
		c.doc.Refuse("identity.namespace", err.Error(), "give the namespace another name")
	}
	if !c.doc.Wrong("identity.trustAnchorsFrom") {
		own, err := c.Identity.Followed(slog.New(slog.DiscardHandler))
		if err == nil {
			err = own.Check()
		}
		c.doc.Merge("identity", err)
	}
	for i, d := range c.Identity.TrustDomains {
		if err := identity.CheckTrustDomain(d); err != nil && d != "" {
			c.doc.Refuse(fmt.Sprintf("identity.trustDomains[%d]", i), err.Error(), "write a trust domain such as shop.example")
		}
	}
	at := c.Listen.Resolver
	if _, unix := edge.UnixPath(at); c.Identity.Insecure && !c.Identity.InsecureExposed && at != "" && !unix && !edge.OnLoopback(at) {
		c.doc.Refuse("identity.insecure", "without certificates everybody who reaches listen.resolver, "+at+", is an operator",
			"listen on 127.0.0.1, give the service a certificate, or write insecureExposed: true beside it")
	}
}

// checkGateway adds to the document what is wrong with the gateway and listen.apps.
func (c checker) checkGateway() {
	c.checkApps()
	checkCounts(c.doc, "gateway", map[string]int{
		"maxConnections": c.Gateway.MaxConnections, "maxPerSource": c.Gateway.MaxPerSource, "maxHellos": c.Gateway.MaxHellos,
	})
	c.checkAddresses("gateway.advertise", c.Gateway.Advertise, "other clusters")
	c.checkAddresses("gateway.internal", c.Gateway.Internal, "callers of this cluster")
	if g := c.Gateway; g.MaxConnections > 0 && g.MaxPerSource > g.MaxConnections {
		c.doc.Refuse("gateway.maxPerSource", fmt.Sprintf("%d is more than gateway.maxConnections", g.MaxPerSource), "write at most that, or leave it out for half of it")
	}
}

// checkAddresses refuses what is no address of the gateway.
func (c checker) checkAddresses(path string, addresses []string, whose string) {
	for i, address := range addresses {
		if _, err := catalog.CheckGateway(address); err != nil {
			c.doc.Refuse(fmt.Sprintf("%s[%d]", path, i), err.Error(), "write host:port at which "+whose+" reach the gateway")
		}
	}
}

// checkCounts refuses counts below a block of settings that are less than one.
func checkCounts(doc *strict.Document, block string, counts map[string]int) {
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		if n, path := counts[key], block+"."+key; n < 0 || n == 0 && doc.Has(path) && !doc.Wrong(path) {
			doc.Refuse(path, fmt.Sprintf("%d is out of bounds", n), "write a number from 1 up, or leave it out")
		}
	}
}

func oneOf(doc *strict.Document, path, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		doc.Refuse(path, fmt.Sprintf("%q is not known here", value), "write "+strings.Join(allowed, " or "))
	}
}

// unusableFiles checks the configuration as at the start, with the files as they are now, and reads
// all secrets.
func (c *Config) unusableFiles() (all []identity.Trusted) {
	add := func(path string, err error) {
		all = append(all, identity.Trusted{Use: identity.ConfiguredFile, Subject: path, Err: err})
	}
	if c.text != nil {
		_, err := Parse(c.file, c.text)
		var mistakes strict.Errors
		if errors.As(err, &mistakes) {
			for _, m := range mistakes {
				add(m.Path, m)
			}
		}
	}
	strict.Each(c, func(path string, part any) {
		if file, ok := part.(interface{ Look() error }); ok {
			if err := file.Look(); err != nil {
				add(path, strict.Below(path, err))
			}
		}
	})
	return all
}
