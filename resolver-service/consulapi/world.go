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

	"github.com/isthmus-mesh/isthmus/catalog"
)

// world is what one caller may see at one moment: its view, and what is registered here.
type world struct {
	s      *Server
	caller *caller
	view   *catalog.View
}

// app is the app that a service's name means to the caller: its app-id in the caller's
// own namespace, or app-id.namespace, in any case.
func (w *world) app(name string) catalog.App {
	id, namespace, ok := strings.Cut(strings.ToLower(name), ".")
	if !ok {
		namespace = w.caller.app.Namespace
	}
	return catalog.App{Namespace: namespace, ID: id}
}

// name is the service's name for an app.
func (w *world) name(app catalog.App) string {
	if app.Namespace == w.caller.app.Namespace {
		return app.ID
	}
	return app.ID + "." + app.Namespace
}

// service has the instances of a service as the caller may see them, by their IDs. dc is
// a cluster that it wants them from, or empty: then they are those that its calls are
// shared out among, each as often as its share asks for.
func (w *world) service(name, dc string) []*entry {
	app := w.app(name)
	local, registered := w.registered(app)
	b := &builder{w: w, app: app, name: w.name(app), registered: registered}
	if e, ok := w.view.Entries.Get(app); ok {
		b.routes(e, dc)
		local = local || hasLocal(e)
	}
	if local && (dc == "" || dc == w.s.cfg.Cluster) {
		b.remaining(app == w.caller.app)
	}
	slices.SortFunc(b.entries, func(x, y *entry) int {
		return cmp.Or(cmp.Compare(x.Node.Node, y.Node.Node), cmp.Compare(x.Service.ID, y.Service.ID))
	})
	return b.entries
}

func hasLocal(e *catalog.Entry) bool {
	return slices.ContainsFunc(e.Routes, func(r catalog.Route) bool { return r.Local && r.Weight > 0 })
}

// registered is what an app has registered here, and whether that is the caller itself.
func (w *world) registered(app catalog.App) (own bool, all *roster) {
	all = nothing
	if o := w.s.registry.known(app); o != nil {
		all, _ = o.roster.Load()
	}
	return app == w.caller.app, all
}

// nothing is what an app has registered that has registered nothing: always the same, by
// which answers are known to stand.
var nothing = &roster{}

// names are the names of the services that the caller may see, sorted.
func (w *world) names() (names []string) {
	for app, e := range w.view.Entries.All() {
		if e.Outcome() == catalog.OK || len(w.rosterOf(app).services) > 0 && hasLocal(e) {
			names = append(names, w.name(app))
		}
	}
	if own := w.caller.app; len(w.rosterOf(own).services) > 0 {
		names = append(names, own.ID)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (w *world) rosterOf(app catalog.App) *roster {
	_, all := w.registered(app)
	return all
}

// builder puts the instances of one service together.
type builder struct {
	w          *world
	app        catalog.App
	name       string
	registered *roster
	entries    []*entry
	shown      map[*registered]bool
}

// routes adds what a plan's lookups fall on.
func (b *builder) routes(e *catalog.Entry, dc string) {
	b.shown = map[*registered]bool{}
	if dc != "" {
		for i := range e.Routes {
			if r := &e.Routes[i]; r.Cluster == dc && r.Weight > 0 && len(r.Addresses) > 0 {
				b.route(r, evenly(1, len(r.Addresses)))
				return
			}
		}
		return
	}
	shares := e.Shares()
	for n, copies := range apportion(shares) {
		b.route(shares[n].Route, copies)
	}
}

// route adds each address of a route as often as copies has it.
func (b *builder) route(r *catalog.Route, copies []int) {
	for n, address := range r.Addresses {
		if r.Local {
			b.local(address, copies[n])
			continue
		}
		b.add(b.other(r, address), copies[n])
	}
}

// add adds an instance as often as its share asks for. Each has an ID of its own, since
// Consul never shows one twice.
func (b *builder) add(e *entry, copies int) {
	for n := range copies {
		if n == 0 {
			b.entries = append(b.entries, e)
			continue
		}
		again := *e.Service
		again.ID += "~" + strconv.Itoa(n+1)
		b.entries = append(b.entries, &entry{Node: e.Node, Service: &again, Checks: copied(e.Checks, func(c *healthCheck) {
			if c.ServiceID != "" {
				c.ServiceID = again.ID
			}
		})})
	}
}

// local adds a ready instance of this cluster: as it was registered here, if it was.
func (b *builder) local(address string, copies int) {
	at, err := netip.ParseAddrPort(address)
	if err != nil || b.registered.leaving[at] {
		return
	}
	if r := b.registered.byAddress[at]; r != nil {
		b.shown[r] = true
		b.add(b.asRegistered(r), copies)
		return
	}
	b.add(b.made(b.w.s.node, "", address), copies)
}

func (b *builder) asRegistered(r *registered) *entry {
	r = r.named(b.name)
	return &entry{Node: b.w.s.node, Service: r.service, Checks: r.all}
}

// remaining adds what is registered here and is not ready, or not in views yet; of the
// caller's own app also what is ready.
func (b *builder) remaining(own bool) {
	for _, r := range b.registered.services {
		if !b.shown[r] && (own || b.registered.pending || r.status() != passing) {
			b.add(b.asRegistered(r), 1)
		}
	}
}

// other is the entry of an instance in another cluster, or of its gateway there.
func (b *builder) other(r *catalog.Route, address string) *entry {
	return b.made(b.w.s.clusterNode(b.w.view, r.Cluster), r.Cluster, address)
}

// made is the entry of an instance that was not registered here. Its ID has its address,
// since clients go by the ID to see that something is different.
func (b *builder) made(n *node, cluster, address string) *entry {
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	port, _ := strconv.Atoi(portText)
	id := b.app.ID + "-" + host + "-" + portText
	tags := []string{}
	if cluster != "" {
		tags = append(tags, "cluster="+cluster)
	}
	s := &nodeService{
		ID: id, Service: b.name, Tags: tags, Address: host, Port: port, Weights: weights{1, 1},
		Meta: map[string]string{b.w.s.cfg.portKey(): portText},
	}
	tag(s)
	return &entry{Node: n, Service: s, Checks: []*healthCheck{serfHealth(n), {
		Node: n.Node, CheckID: "service:" + id, Name: "Isthmus readiness", Status: passing, Output: "ready in the view of the caller",
		ServiceID: id, ServiceName: b.name, ServiceTags: tags, Type: "isthmus",
	}}}
}

// newNode is a node of a cluster. Its ID is made of its name, as Consul's are random.
func newNode(name, address, cluster string) *node {
	sum := sha256.Sum256([]byte("isthmus node " + cluster + " " + name))
	tagged := map[string]string{"lan": address, "wan": address}
	if ip, err := netip.ParseAddr(address); err == nil {
		kind := "ipv6"
		if ip.Is4() {
			kind = "ipv4"
		}
		tagged["lan_"+kind], tagged["wan_"+kind] = address, address
	}
	return &node{
		ID:   fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]),
		Node: name, Address: address, Datacenter: cluster, TaggedAddresses: tagged,
		Meta:    map[string]string{"consul-network-segment": "", "consul-version": consulVersion},
		indexes: indexes{1, 1},
	}
}

// clusterNode is the node that stands for another cluster: its gateway.
func (s *Server) clusterNode(v *catalog.View, cluster string) *node {
	address := ""
	if all := v.Gateways.Addresses[cluster]; len(all) > 0 {
		if host, _, err := net.SplitHostPort(all[0]); err == nil {
			address = host
		}
	}
	return newNode("gateway-"+cluster, address, cluster)
}

func parsePort(s string) (uint64, error) {
	port, err := strconv.ParseUint(s, 10, 16)
	if err == nil && port == 0 {
		err = strconv.ErrRange
	}
	return port, err
}
