package dial

import (
	"errors"
	"iter"
	"net"
	"net/netip"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// plan says where the calls to an app go. It is made from the app's entry in a view, and immutable.
type plan struct {
	channel *channel
	view    *catalog.View
	entry   *catalog.Entry // nil if the view has none
	zone    string         // the caller's
	refusal error          // of lookups; nil if they are answered

	gateways      *catalog.Gateways
	hostVersion   uint64              // hosts.version when the plan was made
	hosts         map[string]struct{} // host names to keep looked up
	routes        []route             // that lookups may answer, by priority; and those that lack instances
	takes         []take              // in order, before all routes
	endpointCount int
}

// route is a route of the view with its targets.
type route struct {
	catalog.Route
	targets       []target
	lookupPending bool  // the first lookup of a host name has not ended
	err           error // of the last lookup of a host name; or why no call goes there
}

// target is one instance, reached directly or, in another cluster, through each gateway.
type target struct {
	name        string // its host name at the gateways; "" without a gateway
	viewAddress string // its address as the view has it; "" through a gateway
	authority   string // "host:port", for gateways that route by it
	outOfZone   bool   // the view prefers the caller's zone, and the instance is in another
	addresses   []string
}

// newPlan makes the plan that follows before, which is nil for the first.
func newPlan(c *channel, view *catalog.View, entry *catalog.Entry, hostVersion uint64, before *plan) *plan {
	p := &plan{channel: c, view: view, entry: entry, zone: view.Zone, gateways: view.Gateways, hostVersion: hostVersion, hosts: map[string]struct{}{}}
	if entry == nil {
		if _, p.refusal = view.Find(c.callee.name); p.refusal == nil {
			p.refusal = &catalog.Refusal{Outcome: catalog.Unavailable, Reason: c.callee.name.String() + " leads to another app than " + c.app.String() + " now; call again"}
		}
		return p
	}
	p.addTakes(entry, before)
	if entry.Outcome() != catalog.OK {
		p.refusal = entry.Refusal()
		return p
	}
	for _, damped := range []bool{false, true} {
		p.addRoutes(entry, damped, before)
	}
	return p
}

// dampedPriority comes after every priority that a route can have.
const dampedPriority = catalog.MaxPriority + 1

// addRoutes adds the routes that lookups may answer or, if damped, the routes to damped clusters.
// Those come last, for calls that no other route takes.
func (p *plan) addRoutes(entry *catalog.Entry, damped bool, before *plan) {
	for i := range entry.Routes {
		r := entry.Routes[i]
		if !damped && r.Lacks() { // no call goes there, but calls are due to it
			p.routes = append(p.routes, route{Route: r, err: errors.New(r.Why(p.entry.App))})
			continue
		}
		if r.Weight == 0 || len(r.Addresses) == 0 || r.Usable() == damped || damped && r.State != catalog.Damped {
			continue
		}
		if damped {
			r.Priority, r.Ramp, r.MinReady = dampedPriority, 0, 0
		}
		p.routes = append(p.routes, p.routeTo(r, before))
	}
}

// routeTo returns a route with its targets.
func (p *plan) routeTo(r catalog.Route, before *plan) route {
	to := route{Route: r}
	if r.Gateway {
		p.addGatewayTargets(&to, before)
	} else {
		for i, listed := range r.Addresses {
			for _, address := range p.resolve(&to, listed) {
				to.targets = append(to.targets, target{viewAddress: listed, addresses: []string{address}, outOfZone: p.outOfZone(&r, i)})
			}
		}
	}
	for _, t := range to.targets {
		p.endpointCount += len(t.addresses)
	}
	return to
}

// all are the routes of takes, and then the others.
func (p *plan) all() iter.Seq[*route] {
	return func(yield func(*route) bool) {
		for i := range p.takes {
			if !yield(&p.takes[i].route) {
				return
			}
		}
		for i := range p.routes {
			if !yield(&p.routes[i]) {
				return
			}
		}
	}
}

// addGatewayTargets adds the targets of a route to another cluster. While no gateway's name can be
// looked up, the addresses of the plan before stay.
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
		if host, _, err := net.SplitHostPort(name); err == nil { // every name in a view has a port
			to.targets = append(to.targets, target{name: host, authority: name, addresses: addresses})
		}
	}
	if len(to.Instances) == 0 {
		return
	}
	// With the instance's own name each connection leads to that instance or fails.
	_, port, _ := net.SplitHostPort(to.Addresses[0])
	to.targets = to.targets[:0]
	for i, token := range to.Instances {
		host := p.gateways.Domain.InstanceHost(token, p.entry.App, to.Cluster)
		to.targets = append(to.targets, target{name: host, authority: net.JoinHostPort(host, port), addresses: addresses, outOfZone: p.outOfZone(&to.Route, i)})
	}
}

// outOfZone reports whether the view prefers the caller's zone and the instance is in another.
func (p *plan) outOfZone(r *catalog.Route, instance int) bool {
	return r.Zones != nil && p.zone != "" && r.Zones.At(instance) != p.zone
}

// resolve returns an IP address as it is, and for a host name the result of the last lookup.
func (p *plan) resolve(to *route, address string) []string {
	if !isHostName(address) {
		return []string{address}
	}
	p.hosts[address] = struct{}{}
	if _, ok := p.channel.hosts[address]; !ok {
		p.channel.dialer.hosts.acquire(address)
		p.channel.hosts[address] = struct{}{}
	}
	resolved, err, lookedUp := p.channel.dialer.hosts.addresses(address)
	to.lookupPending = to.lookupPending || !lookedUp
	if err != nil {
		to.err = err
	}
	return resolved
}

// gatewaysOf returns the plan's gateway addresses of a cluster.
func (p *plan) gatewaysOf(cluster string) []string {
	for r := range p.all() {
		if r.Gateway && r.Cluster == cluster && len(r.targets) > 0 {
			return r.targets[0].addresses
		}
	}
	return nil
}

// mayReturn reports whether a later plan may have an endpoint through a gateway again: the caller
// may call its cluster, no call goes there for now, and the cluster still has that gateway.
func (p *plan) mayReturn(e *endpoint) bool {
	if p.entry == nil || p.gateways == nil || p.gatewaysOf(e.cluster) != nil {
		return false
	}
	return (p.leadsToGuest(e.cluster) || slices.ContainsFunc(p.entry.Routes, func(r catalog.Route) bool { return r.Cluster == e.cluster })) &&
		slices.ContainsFunc(p.gateways.Addresses[e.cluster], func(listed string) bool { return listed == e.address || isHostName(listed) })
}

// equal reports whether calls go the same way by both plans.
func (p *plan) equal(o *plan) bool {
	if (p.refusal == nil) != (o.refusal == nil) || p.refusal != nil && p.refusal.Error() != o.refusal.Error() || len(p.routes) != len(o.routes) {
		return false
	}
	if p.hash() != o.hash() || !slices.EqualFunc(p.takes, o.takes, func(a, b take) bool { return a.header == b.header && a.equal(&b.route) }) {
		return false
	}
	for i := range p.routes {
		if !p.routes[i].equal(&o.routes[i]) {
			return false
		}
	}
	return true
}

func (r *route) equal(o *route) bool {
	return r.RouteSpec == o.RouteSpec && r.Offer() == o.Offer() && r.lookupPending == o.lookupPending &&
		slices.EqualFunc(r.targets, o.targets, func(x, y target) bool {
			return x.name == y.name && x.outOfZone == y.outOfZone && slices.Equal(x.addresses, y.addresses)
		})
}

// asks is what calls have to be asked for by the plan; nil for nothing.
func (p *plan) asks() *asked {
	a := asked{hash: p.hash()}
	for i := range p.takes {
		if h := p.takes[i].header; h != (catalog.HeaderValue{}) && !slices.Contains(a.headers, h) {
			a.headers = append(a.headers, h)
		}
	}
	if a.hash == (catalog.Hash{}) && a.headers == nil {
		return nil
	}
	return &a
}

// hash says which calls go to the same instance.
func (p *plan) hash() catalog.Hash {
	if p.entry == nil {
		return catalog.Hash{}
	}
	return p.entry.Hash()
}

// isHostName reports whether an address needs a lookup.
func isHostName(address string) bool {
	_, err := netip.ParseAddrPort(address)
	return err != nil
}
