package dial

import (
	"net"
	"net/netip"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// plan is where the calls of an app go, made from its entry in a view. It is immutable.
type plan struct {
	channel *channel
	view    *catalog.View
	entry   *catalog.Entry // nil where the view has none
	zone    string         // the caller's
	refusal error          // why lookups are refused; nil where they are answered

	gateways      *catalog.Gateways
	hostVersion   uint64              // of hosts, when it was made
	hosts         map[string]struct{} // addresses that are looked up
	routes        []route             // those that lookups may answer, by priority
	endpointCount int
}

// route is a route of the plan with all that it leads to.
type route struct {
	catalog.Route
	targets       []target
	lookupPending bool  // a host name is being looked up for the first time
	err           error // why one is not known
}

// target is one instance: by an address of its own or, in another cluster, by each gateway.
type target struct {
	name        string // its host name at a gateway, or "" where it is called by its address
	viewAddress string // that address, as the view has it
	authority   string // "host:port", for gateways that route by it
	outOfZone   bool   // it is not in the caller's zone, which is preferred
	addresses   []string
}

// newPlan makes the plan after another, which is nil before the first.
func newPlan(c *channel, view *catalog.View, entry *catalog.Entry, lookups uint64, before *plan) *plan {
	p := &plan{channel: c, view: view, entry: entry, zone: view.Zone, gateways: view.Gateways, hostVersion: lookups, hosts: map[string]struct{}{}}
	if entry == nil {
		_, p.refusal = view.Resolve(c.app)
		return p
	}
	if entry.Outcome() != catalog.OK {
		p.refusal = entry.Refusal()
		return p
	}
	for _, damped := range []bool{false, true} {
		p.addRoutes(entry, damped, before)
	}
	return p
}

// lastResort comes after every priority that a route can have.
const dampedPriority = catalog.MaxPriority + 1

// take makes the routes that lookups may answer or, after those, the routes to damped
// clusters, for calls that nothing else takes.
func (p *plan) addRoutes(entry *catalog.Entry, damped bool, before *plan) {
	for i := range entry.Routes {
		r := entry.Routes[i]
		if r.Weight == 0 || len(r.Addresses) == 0 || r.Usable() == damped || damped && r.State != catalog.Damped {
			continue
		}
		if damped {
			r.Priority, r.Ramp = dampedPriority, 0
		}
		to := route{Route: r}
		if r.Gateway {
			p.addGatewayTargets(&to, before)
		} else {
			for i, given := range r.Addresses {
				for _, address := range p.resolve(&to, given) {
					to.targets = append(to.targets, target{viewAddress: given, addresses: []string{address}, outOfZone: p.outOfZone(&r, i)})
				}
			}
		}
		for _, t := range to.targets {
			p.endpointCount += len(t.addresses)
		}
		p.routes = append(p.routes, to)
	}
}

// throughGateways makes the targets of a route to another cluster. A gateway whose name
// can't be looked up takes no address away that the cluster had.
func (p *plan) addGatewayTargets(to *route, before *plan) {
	var addresses []string
	if p.gateways != nil {
		for _, gateway := range p.gateways.Addresses[to.Cluster] {
			for _, a := range p.resolve(to, gateway) {
				if !slices.Contains(addresses, a) {
					addresses = append(addresses, a)
				}
			}
		}
	}
	if len(addresses) == 0 && before != nil && (to.lookupPending || to.err != nil) {
		addresses = before.gatewaysOf(to.Cluster)
	}
	if len(addresses) == 0 {
		return
	}
	for _, name := range to.Addresses {
		if host, _, err := net.SplitHostPort(name); err == nil { // a view has no other
			to.targets = append(to.targets, target{name: host, authority: name, addresses: addresses})
		}
	}
	if len(to.Instances) == 0 {
		return
	}
	// By its own name each connection leads to one instance, whatever became of others before.
	_, port, _ := net.SplitHostPort(to.Addresses[0])
	to.targets = to.targets[:0]
	for i, token := range to.Instances {
		host := p.gateways.Domain.InstanceHost(token, p.entry.App, to.Cluster)
		to.targets = append(to.targets, target{name: host, authority: net.JoinHostPort(host, port), addresses: addresses, outOfZone: p.outOfZone(&to.Route, i)})
	}
}

// far tells whether an instance of a route is not in the caller's zone, where that is known
// and preferred.
func (p *plan) outOfZone(r *catalog.Route, instance int) bool {
	return r.Zones != nil && p.zone != "" && r.Zones.At(instance) != p.zone
}

// resolve is what is known of an address by now: itself where it is one, otherwise what its
// host name was looked up to last.
func (p *plan) resolve(to *route, address string) []string {
	if !isHostName(address) {
		return []string{address}
	}
	p.hosts[address] = struct{}{}
	if _, ok := p.channel.hosts[address]; !ok {
		p.channel.dialer.hosts.acquire(address)
		p.channel.hosts[address] = struct{}{}
	}
	resolved, err, asked := p.channel.dialer.hosts.addresses(address)
	to.lookupPending = to.lookupPending || !asked
	if err != nil {
		to.err = err
	}
	return resolved
}

// gatewaysOf are the gateways of a cluster that the plan goes through.
func (p *plan) gatewaysOf(cluster string) []string {
	for i := range p.routes {
		if r := &p.routes[i]; r.Gateway && r.Cluster == cluster && len(r.targets) > 0 {
			return r.targets[0].addresses
		}
	}
	return nil
}

// same tells whether two plans have calls go the same ways.
func (p *plan) equal(o *plan) bool {
	if (p.refusal == nil) != (o.refusal == nil) || p.refusal != nil && p.refusal.Error() != o.refusal.Error() || len(p.routes) != len(o.routes) {
		return false
	}
	for i := range p.routes {
		a, b := &p.routes[i], &o.routes[i]
		if a.Cluster != b.Cluster || a.Priority != b.Priority || a.Weight != b.Weight || a.Ramp != b.Ramp || a.lookupPending != b.lookupPending ||
			!slices.EqualFunc(a.targets, b.targets, func(x, y target) bool {
				return x.name == y.name && x.outOfZone == y.outOfZone && slices.Equal(x.addresses, y.addresses)
			}) {
			return false
		}
	}
	return true
}

// isHostName tells whether an address needs a lookup.
func isHostName(address string) bool {
	_, err := netip.ParseAddrPort(address)
	return err != nil
}

// has tells whether a point is one of the plan's.
func (p *plan) has(name endpointKey) bool {
	for i := range p.routes {
		for _, t := range p.routes[i].targets {
			if t.name == name.name && slices.Contains(t.addresses, name.address) {
				return true
			}
		}
	}
	return false
}
