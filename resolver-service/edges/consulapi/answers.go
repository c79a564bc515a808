package consulapi

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// scope limits an answer to what one caller may see at one moment.
type scope struct {
	server *Server
	caller *caller
	view   *catalog.View
	// dc is another cluster that the caller asks about; empty: all that its calls are shared
	// out among, in this cluster and others.
	dc string
}

// instances are those of an app, by their IDs. Without a dc each is there as often as its share
// of calls asks for.
func (s *scope) instances(app catalog.App) []*api.ServiceEntry {
	b := &builder{scope: s, app: app, name: s.caller.nameOf(app), roster: s.server.registry.rosterOf(app), entries: []*api.ServiceEntry{}, shown: map[*registered]bool{}}
	own := app == s.caller.app
	local := own
	if e, ok := s.view.ByOwnName(app); ok {
		b.routes(e)
		local = local || hasLocal(e)
	}
	if local && s.dc == "" {
		b.remaining(own)
	}
	slices.SortFunc(b.entries, func(x, y *api.ServiceEntry) int {
		return cmp.Or(cmp.Compare(x.Node.Node, y.Node.Node), cmp.Compare(x.Service.ID, y.Service.ID))
	})
	return b.entries
}

// nodes are those that the caller may know of. This cluster is the agent's node; another one
// is its gateway.
func (s *scope) nodes() any {
	nodes := []*api.Node{}
	if s.caller.nobody() {
		return nodes
	}
	if s.dc == "" {
		nodes = append(nodes, s.server.node)
	}
	for cluster := range s.view.Gateways.Addresses {
		if s.dc == "" || s.dc == cluster {
			nodes = append(nodes, s.gateway(cluster))
		}
	}
	slices.SortFunc(nodes, func(a, b *api.Node) int { return strings.Compare(a.Node, b.Node) })
	return nodes
}

// tags are the services that the caller may see, with the tags of each.
func (s *scope) tags() any {
	services := map[string][]string{}
	for _, app := range s.apps() {
		entries := s.instances(app)
		if len(entries) == 0 {
			continue
		}
		tags := []string{}
		for _, e := range entries {
			tags = append(tags, e.Service.Tags...)
		}
		slices.Sort(tags)
		services[s.caller.nameOf(app)] = slices.Compact(tags)
	}
	return services
}

// checks are those of everything that the caller may see.
func (s *scope) checks() any {
	checks := []*api.HealthCheck{}
	if s.dc == "" && !s.caller.nobody() {
		checks = append(checks, nodeCheck(s.server.node))
	}
	for _, app := range s.apps() {
		checks = append(checks, checksOf(s.instances(app))...)
	}
	return sortedChecks(checks)
}

// checksOf are the checks of services among entries, without those of nodes.
func checksOf(entries []*api.ServiceEntry) []*api.HealthCheck {
	checks := []*api.HealthCheck{}
	for _, e := range entries {
		for _, c := range e.Checks {
			if c.ServiceID != "" {
				checks = append(checks, c)
			}
		}
	}
	return checks
}

func sortedChecks(checks []*api.HealthCheck) []*api.HealthCheck {
	slices.SortFunc(checks, func(a, b *api.HealthCheck) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.CheckID, b.CheckID), strings.Compare(a.ServiceName, b.ServiceName), strings.Compare(a.ServiceID, b.ServiceID))
	})
	return checks
}

// builder puts the instances of one service together.
type builder struct {
	*scope
	app     catalog.App
	name    string
	roster  *roster
	entries []*api.ServiceEntry
	shown   map[*registered]bool
}

// routes adds what the lookups of a plan lead to.
func (b *builder) routes(e *catalog.Entry) {
	if b.dc == "" {
		shares := e.Shares()
		for n, copies := range apportion(shares) {
			b.route(shares[n].Route, copies)
		}
		return
	}
	for i := range e.Routes {
		if r := &e.Routes[i]; r.Cluster == b.dc && r.Weight > 0 && len(r.Addresses) > 0 {
			b.route(r, evenly(1, len(r.Addresses)))
			return
		}
	}
}

// route adds each address of a route as often as copies has it.
func (b *builder) route(r *catalog.Route, copies []int) {
	for n, address := range r.Addresses {
		if !r.Local {
			b.add(b.unregistered(b.gateway(r.Cluster), address, "cluster="+r.Cluster), copies[n])
			continue
		}
		at, err := netip.ParseAddrPort(address)
		if err != nil || b.roster.leaving[at] {
			continue
		}
		if r := b.roster.byAddress[at]; r != nil { // shown as it was registered here
			b.shown[r] = true
			b.add(b.registered(r), copies[n])
			continue
		}
		b.add(b.unregistered(b.server.node, address), copies[n])
	}
}

// remaining adds registered instances that are not ready, or not in views yet; of the
// caller's own app also ready ones.
func (b *builder) remaining(own bool) {
	for _, r := range b.roster.services {
		if !b.shown[r] && (own || b.roster.pending || r.status() != passing) {
			b.add(b.registered(r), 1)
		}
	}
}

// add adds an instance as often as its share asks for. Each copy has an ID of its own, since
// Consul never shows one twice.
func (b *builder) add(e *api.ServiceEntry, copies int) {
	for n := range copies {
		if n == 0 {
			b.entries = append(b.entries, e)
			continue
		}
		b.entries = append(b.entries, changed(e, func(s *api.AgentService) { s.ID += "~" + strconv.Itoa(n+1) }))
	}
}

// registered is the entry of an instance that was registered here, with the name that its
// service has for the caller.
func (b *builder) registered(r *registered) *api.ServiceEntry {
	e := &api.ServiceEntry{Node: b.server.node, Service: r.service, Checks: r.checks}
	if r.service.Service == b.name {
		return e
	}
	return changed(e, func(s *api.AgentService) { s.Service = b.name })
}

// changed is an entry with a change to its service, which its checks follow.
func changed(e *api.ServiceEntry, change func(*api.AgentService)) *api.ServiceEntry {
	s := *e.Service
	change(&s)
	next := &api.ServiceEntry{Node: e.Node, Service: &s}
	for _, c := range e.Checks {
		if c.ServiceID != "" {
			again := *c
			again.ServiceID, again.ServiceName = s.ID, s.Service
			c = &again
		}
		next.Checks = append(next.Checks, c)
	}
	return next
}

// unregistered is the entry of an instance that was not registered here, or of a gateway. Its
// ID has its address, since clients compare IDs.
func (b *builder) unregistered(n *api.Node, address string, tags ...string) *api.ServiceEntry {
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	port, _ := strconv.Atoi(portText)
	id := b.app.ID + "-" + host + "-" + portText
	tags = append([]string{}, tags...)
	s := &api.AgentService{
		ID: id, Service: b.name, Tags: tags, Address: host, Port: port, Weights: api.AgentWeights{Passing: 1, Warning: 1},
		Meta: map[string]string{b.server.cfg.portKey(): portText},
	}
	tagAddresses(s)
	return &api.ServiceEntry{Node: n, Service: s, Checks: api.HealthChecks{nodeCheck(n), {
		Node: n.Node, CheckID: "service:" + id, Name: "Isthmus readiness", Status: passing, Output: "ready in the view of the caller",
		ServiceID: id, ServiceName: b.name, ServiceTags: tags, Type: "isthmus",
	}}}
}

// newNode is a node of a cluster. Its ID is made of its name, as Consul's are random.
func newNode(name, address, cluster string) *api.Node {
	sum := sha256.Sum256([]byte("isthmus node " + cluster + " " + name))
	tagged := map[string]string{"lan": address, "wan": address}
	for _, tag := range addressTags(address) {
		tagged[tag] = address
	}
	return &api.Node{
		ID:   fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]),
		Node: name, Address: address, Datacenter: cluster, TaggedAddresses: tagged,
		Meta: map[string]string{"consul-network-segment": "", "consul-version": consulVersion}, CreateIndex: 1, ModifyIndex: 1,
	}
}

// gateway is the node that stands for another cluster.
func (s *scope) gateway(cluster string) *api.Node {
	address := ""
	if all := s.view.Gateways.Addresses[cluster]; len(all) > 0 {
		if host, _, err := net.SplitHostPort(all[0]); err == nil {
			address = host
		}
	}
	return newNode("gateway-"+cluster, address, cluster)
}
