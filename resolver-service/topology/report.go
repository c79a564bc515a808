package topology

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
)

// ClusterReport is what one other cluster says of an app. It is for operators: a caller is not
// told more than that its lookup is refused.
type ClusterReport struct {
	Cluster  string
	Heard    bool // it has said what it exports
	Exported bool // the app, to this cluster
	Allowed  bool // and to the caller

	Gateways []string // that lead to the app alone, also without a server name
	Direct   bool     // instances there are reached without a gateway
	Guest    bool     // it gets the calls that it takes, and no other
	Shut     bool     // it dials this one, and callers here know no address of the gateway before its tunnels
	Shared   []SharedGateway
	Refused  Kept // addresses there that may not be called without a gateway
}

// SharedGateway is one of the gateways for the app that another cluster's object has, too: it
// leads to one app of one cluster.
type SharedGateway struct {
	Address string
	Cluster string
	App     catalog.App // none: it is there for all apps
}

// Report is what an operator gets to know of an app beside a decision.
type Report struct {
	Clusters   []ClusterReport // those that have a Cluster object, by name
	Everywhere bool            // the caller's selection holds the app without routes: each cluster that exports it is one
	Own        string          // this cluster's name
	Taken      []Taken
	Kept       Kept // of its ready instances here those that other clusters do not reach
	Unnamed    bool // names are answered that callers may dial without a server name
	Callee     Callee
}

// Taken is an instance that a source names, whose address is another app's.
type Taken struct {
	Address netip.AddrPort
	Source  string
	By      catalog.App
	From    string // the source that names the other app there
}

// Report has the facts about an app beside a caller's decision.
func (v Inventory) Report(ctx context.Context, caller, app catalog.App) (report Report, err error) {
	err = v.t.ask(ctx, func(g *Graph) {
		report = Report{Clusters: g.imports.reports(caller, app), Everywhere: g.views.everywhere(caller, app), Own: g.cfg.Cluster, Taken: g.owners.taken(app), Kept: g.exports.keptOf(app), Unnamed: g.cfg.Kubernetes != "", Callee: g.accesses.callee(app, g.revision)}
	})
	return report, err
}

// Holder is an app that has an address by a live registration from that address.
type Holder struct {
	App    catalog.App
	Source string // where it registered
}

// Holder tells which app has an address by a live registration; the zero Holder where none has.
// There a delegate may register no other app. The error is that ctx or the topology has ended.
func (v Inventory) Holder(ctx context.Context, a netip.AddrPort) (h Holder, err error) {
	err = v.t.ask(ctx, func(g *Graph) { h = g.owners.holder(netip.AddrPortFrom(a.Addr().Unmap(), a.Port())) })
	return h, err
}

// Refuse refuses a registration of another app for the address that h has. The log names h's app;
// the error, which the sender gets, does not.
func (h Holder) Refuse(log *throttle.Log, app catalog.App, address netip.AddrPort, sender netip.Addr) error {
	log.Warn("held "+app.String(), "refused a registration: another app has registered that address itself",
		"app", app.String(), "address", address.String(), "from", sender.String(), "holder", h.App.String())
	return fmt.Errorf("%s can't register %s from %s: another app's sidecar has registered that address itself; "+
		"correct the address, or come back once that sidecar has gone", app, address, sender)
}

func (o *ownership) taken(app catalog.App) (all []Taken) {
	n := o.apps[app]
	if n == nil {
		return nil
	}
	for _, i := range n.instances {
		if owner := o.owner(i.address()); owner != n {
			by, _ := owner.claimTo(i.address())
			all = append(all, Taken{i.address(), i.origin.Value().source, owner.app, by.source})
		}
	}
	return all
}

func (im *imports) reports(caller, app catalog.App) []ClusterReport {
	var all []ClusterReport
	exports := im.remotesOf(app)
	for name, c := range im.clusters {
		if c.object == nil || name == im.cfg.Cluster {
			continue
		}
		s := ClusterReport{Cluster: name, Heard: c.heard, Direct: im.onNetwork(c), Guest: c.guest() != nil, Shut: c.tunnelled() && len(im.cfg.Tunnels) == 0}
		for _, own := range c.object.AppGateways {
			if own.App == app {
				s.Gateways = append(s.Gateways, own.Address)
				s.Shared = append(s.Shared, im.sharedGateways(own.Address, name)...)
			}
		}
		if export := exports.of(name); export != nil {
			s.Refused = im.refusedOf(c, export)
			s.Exported, s.Allowed = true, export.allows(im.cfg.Cluster, caller)
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b ClusterReport) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return all
}

func (vs *views) everywhere(caller, app catalog.App) bool {
	n := vs.apps[caller]
	if n == nil || n.selection == nil || caller == app {
		return false
	}
	return slices.ContainsFunc(n.selection.Endpoints, func(e catalog.Endpoint) bool {
		return e.App == app && len(e.Routes) == 0
	})
}

// sharedGateways is where clusters but one list an address, by name.
func (im *imports) sharedGateways(address, but string) (all []SharedGateway) {
	for name, c := range im.clusters {
		if c.object == nil || name == but {
			continue
		}
		if slices.Contains(c.object.Gateways, address) {
			all = append(all, SharedGateway{Address: address, Cluster: name})
		}
		for _, own := range c.object.AppGateways {
			if own.Address == address {
				all = append(all, SharedGateway{Address: address, Cluster: name, App: own.App})
			}
		}
	}
	slices.SortFunc(all, func(a, b SharedGateway) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return all
}
