package topology

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// exportableInstances is what of an app's ready instances may be exported.
type exportableInstances struct {
	ready             []string
	zones, versions   *catalog.Labels
	tokens, versioned []uint32 // of ready, see catalog.VersionTokens; nil before they are asked for
	kept              Kept
}

// Kept are addresses that the rules keep from being used, where an operator would expect them.
type Kept struct {
	First []error // why, for the first few; each names its address
	Count int
}

// maxKept is how many addresses a Kept names.
const maxKept = 3

func (k *Kept) add(why error) {
	if k.Count++; k.Count <= maxKept {
		k.First = append(k.First, why)
	}
}

// String is why, for the first few, and how many more there are.
func (k *Kept) String() string {
	var b strings.Builder
	for i, why := range k.First {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(why.Error())
	}
	if more := k.Count - len(k.First); more > 0 {
		fmt.Fprintf(&b, "; and %d more like that", more)
	}
	return b.String()
}

// exportable are the ready instances of an app that the gateway and peers may be told of:
// mostly all, and then the same slice. It is asked for exported apps alone.
func (x *exportTables) exportable(n *node) []string { return x.exportableOf(n).ready }

// names are what the instances are called, for everyone the same slices.
func (e *exportableInstances) names() (tokens, versioned []uint32) {
	if e.tokens == nil {
		e.tokens = catalog.InstanceTokens(e.ready)
		if e.versioned = catalog.VersionTokens(e.tokens, e.versions); e.versioned == nil {
			e.tokens = nil
		}
	}
	return e.tokens, e.versioned
}

func (x *exportTables) exportableOf(n *node) *exportableInstances {
	if n.exportable != nil {
		return n.exportable
	}
	out := &exportableInstances{ready: n.ready}
	for i, text := range n.ready {
		a, err := netip.ParseAddrPort(text)
		if err == nil {
			err = x.cfg.Destinations.Exported(a)
		}
		switch {
		case err != nil && out.kept.Count == 0:
			out.ready = slices.Clone(n.ready[:i])
			fallthrough
		case err != nil:
			out.kept.add(err)
		case out.kept.Count > 0:
			out.ready = append(out.ready, text)
		}
	}
	out.zones, out.versions = labelsLeft(n.zones, n.ready, out.ready), labelsLeft(n.versions, n.ready, out.ready)
	n.exportable = out
	return out
}

// keptOf are the instances of an exported app that other clusters do not reach.
func (x *exportTables) keptOf(app catalog.App) Kept {
	if n := x.apps[app]; n != nil && x.exported(n) {
		return x.exportableOf(n).kept
	}
	return Kept{}
}

// warning is an exported app with instances that other clusters do not reach.
type warning struct {
	app  catalog.App
	kept Kept
}

// warnKept has somebody told, if an exported app has such instances.
func (x *exportTables) warnKept(n *node) {
	if n == nil || !x.exported(n) || x.saved != nil || len(x.warnings) >= maxTakeovers {
		return
	}
	if kept := x.exportableOf(n).kept; kept.Count > 0 {
		x.warnings = append(x.warnings, warning{n.app, kept})
	}
}

// refusesDirect tells why an address that a peer names can't be called without a gateway.
func (im *imports) refusesDirect(c *cluster, a netip.AddrPort) error {
	if err := im.cfg.Destinations.Direct(a); err != nil {
		return err
	}
	ranges := c.object.NetworkRanges
	if len(ranges) == 0 || slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a.Addr()) }) {
		return nil
	}
	return fmt.Errorf("address %s is in none of spec.networkRanges of the Cluster object %s; add its network there if instances of that cluster are meant to be in it", a, c.name)
}

// refusedOf are the addresses of an app in another cluster that can't be called without a
// gateway.
func (im *imports) refusedOf(c *cluster, export *imported) (refused Kept) {
	if export.refused == 0 || !im.onNetwork(c) {
		return Kept{}
	}
	for _, text := range export.Addresses {
		if a, ok := canonical(text); ok {
			if err := im.refusesDirect(c, a); err != nil {
				refused.add(err)
			}
		}
	}
	return refused
}

// Refusal is an app with addresses that may not be used.
type Refusal struct {
	App     catalog.App
	Cluster string // that names them; empty for an exported app of this one
	Kept
}

// Refusals are the apps with addresses that may not be used: those of exported apps here that
// other clusters don't reach, and those that peers on the same network name. They are the
// first so many, sorted.
func (v Inventory) Refusals(ctx context.Context, most int) (all []Refusal, err error) {
	err = v.t.ask(ctx, func(g *Graph) { all = g.refusals() })
	slices.SortFunc(all, func(a, b Refusal) int { return cmp.Or(strings.Compare(a.Cluster, b.Cluster), a.App.Compare(b.App)) })
	return all[:min(most, len(all))], err
}

func (g *Graph) refusals() (all []Refusal) {
	for app := range g.exports.gateway.Backends.All() {
		if kept := g.exports.keptOf(app); kept.Count > 0 {
			all = append(all, Refusal{App: app, Kept: kept})
		}
	}
	for name, c := range g.clusters {
		if !g.onNetwork(c) {
			continue
		}
		for n := range c.exports {
			if refused := g.imports.refusedOf(c, n.remote.of(name)); refused.Count > 0 {
				all = append(all, Refusal{App: n.app, Cluster: name, Kept: refused})
			}
		}
	}
	return all
}
