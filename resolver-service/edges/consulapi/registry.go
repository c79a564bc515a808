package consulapi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/probe"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology/destination"
)

// Source is the name of this source of instances in the topology.
const Source = topology.ConsulAPI

// Bounds of what one app may register.
const (
	mostServices = 1000
	mostChecks   = 64 // of one service
	mostBytes    = 16 << 20
)

// registry has the services that clients have registered, and runs their checks. Each app has
// its own: the IDs of one mean nothing to another.
type registry struct {
	to      applier
	share   edge.Sharer // nil: there are no other replicas, or they need not be told
	store   *store
	log     *slog.Logger
	often   *throttle.Log // for lines that clients cause
	self    *api.Node
	targets *targets
	clock   *topology.Clock
	counter *atomic.Uint64 // of indexes

	// delegates may register services at other addresses than their own. holder tells which app
	// has an address by a live registration; streams is the source of those with a connection.
	delegates destination.Delegates
	holder    func(ctx context.Context, a netip.AddrPort) (topology.Holder, error)
	streams   string

	// changed counts changes of registrations, over all apps; appeared counts apps.
	changed, appeared live.Value[uint64]

	mu      sync.Mutex           // guards the fields below, and inventories; files are written with it
	dirty   map[catalog.App]bool // apps whose latest state the topology may not have
	running context.Context      // of the checks; nil before Run, and after it
	early   []lost               // those of before Run
	checks  sync.WaitGroup

	publishing sync.Mutex // one change of the topology at a time
	lost       chan lost

	list sync.RWMutex // guards apps: lookups wait for no file
	apps map[catalog.App]*inventory
}

// lost is an instance that has registered with another replica after it did here.
type lost struct {
	key topology.InstanceKey
	at  int64 // when it registered here
}

// inventory is what one app has registered. The registry's mu guards it.
type inventory struct {
	app       catalog.App
	services  map[string]*service
	checks    map[string]*check // of all services
	roster    live.Value[*roster]
	published map[string]publication // guarded by publishing
}

// service is one that is registered.
type service struct {
	def        *api.AgentServiceRegistration
	node       *api.AgentService // replaced, never changed
	sender     netip.Addr        // whence it was registered
	address    netip.AddrPort    // of the instance; not valid for a service that nobody can call
	checks     map[string]*check
	size       int // of the definition, in bytes
	since      since
	unverified bool // a delegate registered it from another machine than that of the address
}

// since is when a service was registered, by the registry's clock, and whether that was before a
// restart.
type since struct {
	at       int64
	restored bool
}

// roster is what an app has registered, as it was at one moment: immutable.
type roster struct {
	services  []*registered // by ID
	byAddress map[netip.AddrPort]*registered
	// leaving are addresses that are deregistered, and may be in views yet.
	leaving map[netip.AddrPort]bool
	// pending says that views may not have all that is registered yet.
	pending bool
}

// registered is one service of a roster.
type registered struct {
	service    *api.AgentService
	checks     api.HealthChecks // the node's own, and then by ID
	address    netip.AddrPort
	since      since
	unverified bool
}

func (r *registered) status() string { return r.checks.AggregatedStatus() }

func newRegistry(to applier, share edge.Sharer, st *store, self *api.Node, portKey string, counter *atomic.Uint64, log *slog.Logger) *registry {
	r := &registry{
		to: to, share: share, store: st, log: log, often: throttle.New(log, throttle.Interval), self: self, counter: counter,
		targets: &targets{prober: probe.New(probe.Config{}), portKey: portKey},
		clock:   &topology.Clock{}, holder: func(context.Context, netip.AddrPort) (h topology.Holder, err error) { return h, nil },
		apps: map[catalog.App]*inventory{}, dirty: map[catalog.App]bool{}, lost: make(chan lost, 1),
	}
	r.changed.Store(0)
	r.appeared.Store(0)
	return r
}

// own is what an app has registered, made if that is nothing yet.
func (r *registry) own(app catalog.App) *inventory {
	if o := r.known(app); o != nil {
		return o
	}
	r.list.Lock()
	defer r.list.Unlock()
	o := r.apps[app]
	if o == nil {
		o = &inventory{app: app, services: map[string]*service{}, checks: map[string]*check{}}
		o.roster.Store(&roster{})
		r.apps[app] = o
		r.appeared.Store(uint64(len(r.apps)))
	}
	return o
}

// known is what an app has registered; nil if it has not registered anything so far.
func (r *registry) known(app catalog.App) *inventory {
	r.list.RLock()
	defer r.list.RUnlock()
	return r.apps[app]
}

// all are the inventories of all apps that have registered something so far.
func (r *registry) all() []*inventory {
	r.list.RLock()
	defer r.list.RUnlock()
	return slices.Collect(maps.Values(r.apps))
}

// register takes a service in, which replaces the one of its ID, and returns once views have
// it. A check that the service had before keeps its status.
func (r *registry) register(ctx context.Context, app catalog.App, d *api.AgentServiceRegistration, sender netip.Addr) error {
	specs, err := readService(d)
	if err != nil {
		return err
	}
	address, err := r.targets.instance(d, sender)
	if err != nil {
		return err
	}
	s := &service{def: d, sender: sender, address: address}
	if address.IsValid() {
		if s.unverified, err = r.checkSender(ctx, app, address, sender); err != nil {
			return err
		}
	}
	for _, c := range specs {
		if err := r.targets.check(app, c, d.Address, sender); err != nil {
			return err
		}
	}
	r.mu.Lock()
	o := r.own(app)
	if err := o.fits(s, specs); err != nil {
		r.mu.Unlock()
		return err
	}
	s.since = since{at: r.clock.Next()}
	var before map[string]*check
	if old := o.services[d.ID]; old != nil {
		before = old.checks
	}
	r.put(o, s, specs, before)
	r.store.save(app, s)
	r.mu.Unlock()
	return r.publish(ctx)
}

// fits refuses what has no room beside what the app has registered. It is called with mu held.
func (o *inventory) fits(s *service, specs []*checkSpec) error {
	old := o.services[s.def.ID]
	if old == nil && len(o.services) >= mostServices {
		return &apiError{429, fmt.Sprintf("%s has %d services registered here, and no more fit; deregister some", o.app, mostServices)}
	}
	text, _ := json.Marshal(s.def) // of a type that can be
	s.size = len(text)
	bytes := s.size
	for _, other := range o.services {
		if other != old {
			bytes += other.size
		}
	}
	if bytes > mostBytes {
		return &apiError{429, fmt.Sprintf("%s would have more than %d bytes registered here; deregister some, or write less into tags, metadata and checks", o.app, mostBytes)}
	}
	for _, spec := range specs {
		if c := o.checks[spec.CheckID]; c != nil && c.service != old {
			return badRequest("Invalid check: the ID %s is that of a check of service %s", quoted(spec.CheckID), quoted(c.service.def.ID))
		}
	}
	return nil
}

// put replaces a service, and starts its checks. A check keeps the status that it had before.
// It is called with mu held.
func (r *registry) put(o *inventory, s *service, specs []*checkSpec, before map[string]*check) {
	old := o.services[s.def.ID]
	s.node = r.agentService(s, old)
	s.checks = map[string]*check{}
	if old != nil {
		o.drop(old)
	}
	o.services[s.def.ID] = s
	for _, spec := range specs {
		c := r.newCheck(o, s, spec, before[spec.CheckID])
		s.checks[spec.CheckID], o.checks[spec.CheckID] = c, c
		c.start()
	}
	r.refresh(o)
}

// drop forgets a service with its checks.
func (o *inventory) drop(s *service) {
	for id, c := range s.checks {
		c.end()
		delete(o.checks, id)
	}
	delete(o.services, s.def.ID)
}

// agentService is a service as clients read it, with the index of the one that it replaces.
func (r *registry) agentService(s, old *service) *api.AgentService {
	d := s.def
	n := &api.AgentService{
		ID: d.ID, Service: d.Name, Tags: append([]string{}, d.Tags...), Address: d.Address, Meta: maps.Clone(d.Meta), Port: d.Port,
		Weights: api.AgentWeights{Passing: 1, Warning: 1}, EnableTagOverride: d.EnableTagOverride, TaggedAddresses: maps.Clone(d.TaggedAddresses),
	}
	if n.Address == "" && s.sender.String() != r.self.Address {
		n.Address = s.sender.String() // the node has another one
	}
	if d.Weights != nil {
		n.Weights = *d.Weights
	}
	if n.Meta == nil {
		n.Meta = map[string]string{}
	}
	tagAddresses(n)
	if old != nil {
		n.CreateIndex, n.ModifyIndex = old.node.CreateIndex, old.node.ModifyIndex
		if reflect.DeepEqual(n, old.node) {
			return n
		}
	}
	n.ModifyIndex = r.counter.Add(1)
	n.CreateIndex = cmp.Or(n.CreateIndex, n.ModifyIndex)
	return n
}

// tagAddresses fills in the addresses that Consul derives from the service's own.
func tagAddresses(n *api.AgentService) {
	names := addressTags(n.Address)
	if n.TaggedAddresses == nil && len(names) > 0 {
		n.TaggedAddresses = map[string]api.ServiceAddress{}
	}
	for _, name := range names {
		if _, set := n.TaggedAddresses[name]; !set {
			n.TaggedAddresses[name] = api.ServiceAddress{Address: n.Address, Port: n.Port}
		}
	}
}

// addressTags are Consul's tags for an IP address; none for a host name.
func addressTags(address string) []string {
	switch ip, err := netip.ParseAddr(address); {
	case err != nil:
		return nil
	case ip.Is4() || ip.Is4In6():
		return []string{"lan_ipv4", "wan_ipv4"}
	}
	return []string{"lan_ipv6", "wan_ipv6"}
}

// deregister removes a service with its checks, and returns once no view has it.
func (r *registry) deregister(ctx context.Context, app catalog.App, id string) error {
	r.mu.Lock()
	o := r.own(app)
	s := o.services[id]
	if s == nil {
		r.mu.Unlock()
		return &apiError{404, fmt.Sprintf("Unknown service ID %q. Ensure that the service ID is passed, not the service name.", id)}
	}
	r.remove(o, s)
	r.mu.Unlock()
	return r.publish(ctx)
}

// remove is called with mu held.
func (r *registry) remove(o *inventory, s *service) {
	o.drop(s)
	r.store.remove(o.app, s.def.ID)
	r.refresh(o)
}

// update takes in what a client says of a TTL check.
func (r *registry) update(ctx context.Context, app catalog.App, id, status, output string) error {
	r.mu.Lock()
	c := r.own(app).checks[id]
	var err error
	switch {
	case c == nil:
		err = &apiError{404, fmt.Sprintf("Unknown check ID %q. Ensure that the check ID is passed, not the check name.", id)}
	case c.spec.kind != "ttl":
		err = badRequest("CheckID %q does not have associated TTL", id)
	default:
		c.renew(status, output)
	}
	r.mu.Unlock()
	if err != nil {
		return err
	}
	return r.publish(ctx)
}

// refresh shows what an app has registered by now. It is called with mu held.
func (r *registry) refresh(o *inventory) {
	before, _ := o.roster.Load()
	next := &roster{byAddress: map[netip.AddrPort]*registered{}, leaving: maps.Clone(before.leaving), pending: true}
	for _, s := range o.services {
		next.services = append(next.services, r.shown(s))
	}
	slices.SortFunc(next.services, func(a, b *registered) int { return strings.Compare(a.service.ID, b.service.ID) })
	for _, s := range next.services {
		if _, taken := next.byAddress[s.address]; !taken && s.address.IsValid() {
			next.byAddress[s.address] = s
			delete(next.leaving, s.address)
		}
	}
	for address := range before.byAddress {
		if next.byAddress[address] == nil {
			if next.leaving == nil {
				next.leaving = map[netip.AddrPort]bool{}
			}
			next.leaving[address] = true
		}
	}
	r.dirty[o.app] = true
	r.show(o, next)
}

func (r *registry) show(o *inventory, next *roster) {
	o.roster.Store(next)
	count, _ := r.changed.Load()
	r.changed.Store(count + 1)
}

// shown is a service as clients read it now.
func (r *registry) shown(s *service) *registered {
	shown := &registered{service: s.node, address: s.address, since: s.since, unverified: s.unverified}
	for _, c := range s.checks {
		shown.checks = append(shown.checks, c.shown)
	}
	slices.SortFunc(shown.checks, func(a, b *api.HealthCheck) int { return strings.Compare(a.CheckID, b.CheckID) })
	shown.checks = slices.Insert(shown.checks, 0, nodeCheck(r.self))
	return shown
}

// nodeCheck is the check that Consul has of each node.
func nodeCheck(n *api.Node) *api.HealthCheck {
	return &api.HealthCheck{
		Node: n.Node, CheckID: "serfHealth", Name: "Serf Health Status", Status: passing, Output: "Agent alive and reachable",
		ServiceTags: []string{}, CreateIndex: n.CreateIndex, ModifyIndex: n.ModifyIndex,
	}
}
