package topology

import (
	"context"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Callee is an app of this cluster with those that may call it here.
type Callee struct {
	App     catalog.App
	Running bool // it has instances here
	Access  *catalog.Access
	Callers []CallerRule // those that an object names, in no particular order
}

// CallerRule is a caller with the object that lets it in. Empty names stand for any.
type CallerRule struct {
	catalog.RemoteCaller // of a caller here, the cluster is [catalog.LocalCluster]
	Rule                 string
}

// Callees tells who may call each of these apps here. A change waits for it, so ask for some
// hundreds at a time. domains has the cluster of each trust domain that one Cluster object alone
// names for its apps. The error is that ctx or the topology has ended.
func (t *Topology) Callees(ctx context.Context, apps []catalog.App) (all []Callee, domains map[string]string, err error) {
	err = t.ask(ctx, func(g *Graph) {
		domains = map[string]string{}
		for name, c := range g.clusters {
			if c.object == nil || c.object.Trust.AppsDomain() == "" {
				continue
			}
			domain := c.object.Trust.AppsDomain()
			if _, other := domains[domain]; other {
				name = ""
			}
			domains[domain] = name
		}
		for _, app := range apps {
			all = append(all, g.accesses.callee(app, g.revision))
		}
	})
	return all, domains, err
}

func (as *accesses) callee(app catalog.App, revision uint64) Callee {
	c := Callee{App: app, Access: as.followed[app]}
	if c.Access == nil {
		c.Access = as.whole(app, revision)
	}
	n := as.apps[app]
	if n == nil {
		return c
	}
	c.Running = len(n.instances) > 0
	for caller, index := range n.callers {
		if index == selfIndex || !as.admits(app, caller.app) {
			continue
		}
		c.Callers = append(c.Callers, CallerRule{
			catalog.RemoteCaller{Cluster: catalog.LocalCluster, Namespace: caller.app.Namespace, App: caller.app.ID},
			catalog.Rule{Selection: caller.selection, Index: index}.String(),
		})
	}
	for _, remote := range c.Access.Remote.All() {
		c.Callers = append(c.Callers, CallerRule{remote, n.export.Source.Of(n.export.Key())})
	}
	return c
}
