package topology

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Callee is an app of this cluster with those that may call it here.
type Callee struct {
	App     catalog.App
	Running bool // it has instances here
	Access  *catalog.Access
	Callers []CallerRule // those that an object names, in no particular order

	sources    []string // where its instances are registered
	consents   func(caller catalog.App) bool
	undeclared *catalog.AppSet // also those that the callee does not consent to
}

// CallerRule is a caller with the object that lets it in. Empty names stand for any.
type CallerRule struct {
	catalog.RemoteCaller // of a caller here, the cluster is [catalog.LocalCluster]
	Rule                 string
	Refused              bool // the rule is a selection, and the callee does not consent to the caller
}

// Elsewhere tells whether the app has instances that are registered, all by other sources than one.
func (c *Callee) Elsewhere(source string) bool {
	return len(c.sources) > 0 && !slices.Contains(c.sources, source)
}

// Lacks tells what an app of this cluster lacks that is not let in, for people.
func (c *Callee) Lacks(caller catalog.App) string {
	var lacks []string
	if !c.undeclared.Has(caller) && !slices.ContainsFunc(c.Callers, func(r CallerRule) bool {
		return r.Cluster == catalog.LocalCluster && r.Namespace == caller.Namespace && r.App == caller.ID
	}) {
		lacks = append(lacks, fmt.Sprintf("no AppEndpoints %s here holds %s with a route here", caller, c.App))
	}
	if !c.consents(caller) {
		lacks = append(lacks, fmt.Sprintf("no AppExport %s here allows {cluster: local, namespace: %s, app: %s}, which a caller of another namespace needs", c.App, caller.Namespace, caller.ID))
	}
	return strings.Join(lacks, ", and ")
}

// Callees tells who may call each of these apps here. A change waits for it, so ask for some
// hundreds at a time. The error is that ctx or the topology has ended.
func (v Inventory) Callees(ctx context.Context, apps []catalog.App) (all []Callee, domains Domains, err error) {
	err = v.t.ask(ctx, func(g *Graph) {
		domains = Domains{}
		for name, c := range g.clusters {
			if c.object != nil {
				domains[name] = c.object.Trust.AppsDomain()
			}
		}
		for _, app := range apps {
			all = append(all, g.accesses.callee(app, g.revision))
		}
	})
	return all, domains, err
}

// Domains are the trust domains of other clusters' apps, by the name of the Cluster object that
// says so; empty for any.
type Domains map[string]string

// Cluster is the only cluster whose object names a trust domain; empty where several do, or none.
func (d Domains) Cluster(domain string) (found string) {
	for name, of := range d {
		if of != domain || domain == "" {
			continue
		}
		if found != "" {
			return ""
		}
		found = name
	}
	return found
}

func (as *accesses) callee(app catalog.App, revision uint64) Callee {
	c := Callee{App: app, Access: as.followed[app], undeclared: as.undeclared.all, consents: as.consenting(app)}
	if c.Access == nil {
		c.Access = as.whole(app, revision)
	}
	n := as.apps[app]
	if n == nil {
		return c
	}
	c.Running = len(n.instances) > 0
	for i := range n.instances {
		if in := &n.instances[i]; in.rank == Live && !slices.Contains(c.sources, in.origin.Value().source) {
			c.sources = append(c.sources, in.origin.Value().source)
		}
	}
	for caller, index := range n.callers {
		if index == selfIndex || !as.selects(app, caller.app) {
			continue
		}
		c.Callers = append(c.Callers, CallerRule{
			catalog.RemoteCaller{Cluster: catalog.LocalCluster, Namespace: caller.app.Namespace, App: caller.app.ID},
			catalog.Rule{Selection: caller.selection, Index: index}.String(), !c.consents(caller.app),
		})
	}
	for _, remote := range c.Access.Remote.All() {
		_, rule := as.remoteRule(n, remote.Cluster)
		c.Callers = append(c.Callers, CallerRule{remote, rule, false})
	}
	return c
}
