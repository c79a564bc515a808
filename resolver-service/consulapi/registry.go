package consulapi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/destination"
	"github.com/isthmus-mesh/isthmus/resolver-service/probe"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/throttle"
)

// Source is the name of this source of instances in the topology.
const Source = "consulapi"

// Bounds of what one app may register.
const (
	mostServices = 1000
	mostChecks   = 64 // of one service
	mostBytes    = 16 << 20
)

// sizeOf is how many bytes a definition takes.
func sizeOf(definition any) int {
	text, _ := json.Marshal(definition) // of types that can be
	return len(text)
}

// size is how many bytes an app has registered. It is called with mu held.
func (o *owned) size() (bytes int) {
	for _, s := range o.services {
		bytes += s.size
		for _, c := range s.checks {
			bytes += c.size
		}
	}
	return bytes
}

// room refuses what does not fit beside what an app has registered, in place of so many bytes
// of that. It is called with mu held.
func (o *owned) room(bytes, instead int) error {
	if o.size()-instead+bytes <= mostBytes {
		return nil
	}
	return &apiError{429, fmt.Sprintf("%s would have more than %d bytes registered here; deregister some, or write less into tags, metadata and checks", o.app, mostBytes)}
}

// Sharer tells other replicas of the service which instances are registered with this one.
// Its methods must not block.
type Sharer interface {
	// Share says that an instance is registered here, or how it is now. restored says that it
	// registered before a restart: then it yields to a later registration with another replica.
	// taken is called, at most once, when another has it.
	Share(i catalog.Instance, restored bool, taken func())
	// Withdraw says that an instance is not registered here any more.
	Withdraw(key topology.InstanceKey)
}

// applier takes changes of instances in. Apply returns once they are published.
type applier interface {
	Apply(ctx context.Context, c topology.Change) (revision uint64, err error)
}

// registry has the services that clients have registered, and runs their checks. Each
// app has its own: the IDs of one mean nothing to another.
type registry struct {
	to     applier
	share  Sharer // nil: there are no other replicas, or they need not be told
	store  *store
	log    *slog.Logger
	often  *throttle.Log // for lines that clients cause
	self   *node
	rules  *destination.Rules // for the addresses of instances
	prober *probe.Prober
	here   func(netip.Addr) bool // tells whether an address is this machine's
	clock  *topology.Clock
	// delegates may register services at other addresses than their own. holder tells which app
	// has an address by a live registration; streams is the source of those with a connection.
	delegates destination.Delegates
	holder    func(ctx context.Context, a netip.AddrPort) (topology.Holder, error)
	streams   string
	portKey   string
	counter   *atomic.Uint64 // of indexes

	// changed counts what is registered, over all apps; appeared the apps themselves.
	changed, appeared live.Value[uint64]

	mu      sync.Mutex           // guards what is below, and what hangs on it; files are written with it
	dirty   map[catalog.App]bool // those that the topology may not have as they are
	running context.Context      // of the checks; nil before Run, and after it
	early   []lost               // those of before Run
	checks  sync.WaitGroup

	telling sync.Mutex // one change of the topology at a time
	lost    chan lost

	unsaved unsaved

	list sync.RWMutex // guards apps: look-ups wait for no file
	apps map[catalog.App]*owned
}

// lost is an instance that has registered with another replica after it did here.
type lost struct {
	key topology.InstanceKey
	at  int64 // when it registered here
}

// owned is what one app has registered.
type owned struct {
	app      catalog.App
	services map[string]*service
	checks   map[string]*check
	roster   live.Value[*roster]
	told     map[string]shared // guarded by telling
}

// roster is what an app has registered, as it was at one moment: immutable.
type roster struct {
	services  []*registered // by ID
	byAddress map[netip.AddrPort]*registered
	// leaving are addresses of what is not registered any more and may be in views yet.
	leaving map[netip.AddrPort]bool
	// pending says that views may not have all that is registered yet.
	pending bool
}

// registered is one service of a roster.
type registered struct {
	service    *nodeService
	checks     []*healthCheck // by ID
	all        []*healthCheck // with the node's own before
	address    netip.AddrPort // of the instance; not valid for one that can't be called
	key        topology.InstanceKey
	since      since
	unverified bool // a delegate registered it from another machine than that of the address
}

// status is that of the service.
func (r *registered) status() string { return status(r.all) }

// service is one that is registered.
type service struct {
	def        *serviceDefinition
	node       *nodeService // replaced, never changed
	sender     netip.Addr   // whence it was registered
	address    netip.AddrPort
	checks     map[string]*check
	file       string
	size       int // of the definition
	since      since
	unverified bool
}

// since is when a service was registered, by the registry's clock, and whether that was before a
// restart.
type since struct {
	at       int64
	restored bool
}

func newRegistry(to applier, share Sharer, st *store, self *node, portKey string, counter *atomic.Uint64, log *slog.Logger) *registry {
	r := &registry{
		to: to, share: share, store: st, log: log, often: throttle.New(log, linesEvery), self: self, here: destination.This.Has, portKey: portKey, counter: counter,
		prober: probe.New(probe.Config{}), clock: &topology.Clock{},
		holder: func(context.Context, netip.AddrPort) (h topology.Holder, err error) { return h, nil },
		apps:   map[catalog.App]*owned{}, dirty: map[catalog.App]bool{},
		lost: make(chan lost, 1), unsaved: unsaved{why: map[topology.InstanceKey]error{}},
	}
	r.changed.Store(0)
	r.appeared.Store(0)
	return r
}

// own is what an app has registered, made where there is nothing yet.
func (r *registry) own(app catalog.App) *owned {
	if o := r.known(app); o != nil {
		return o
	}
	r.list.Lock()
	defer r.list.Unlock()
	o := r.apps[app]
	if o == nil {
		o = &owned{app: app, services: map[string]*service{}, checks: map[string]*check{}}
		o.roster.Store(&roster{})
		r.apps[app] = o
		r.appeared.Store(uint64(len(r.apps)))
	}
	return o
}

// known is what an app has registered; nil if it has not registered anything so far.
func (r *registry) known(app catalog.App) *owned {
	r.list.RLock()
	defer r.list.RUnlock()
	return r.apps[app]
}

// owners are those who have registered something so far, sorted by app.
func (r *registry) owners() []*owned {
	r.list.RLock()
	all := slices.Collect(maps.Values(r.apps))
	r.list.RUnlock()
	slices.SortFunc(all, func(a, b *owned) int { return a.app.Compare(b.app) })
	return all
}

// register takes a service in, which replaces the one of its ID, and returns once views
// have it.
func (r *registry) register(ctx context.Context, app catalog.App, d *serviceDefinition, sender netip.Addr, replaceChecks bool) error {
	address, err := r.instanceAddress(d, sender)
	if err != nil {
		return err
	}
	unverified := false
	if address.IsValid() {
		if unverified, err = r.checkSender(ctx, app, address, sender); err != nil {
			return err
		}
	}
	for _, c := range d.all() {
		if err := r.checkTarget(app, &c.checkFields, d.Address, sender); err != nil {
			return err
		}
	}
	r.mu.Lock()
	o := r.own(app)
	old := o.services[d.ID]
	if old == nil && len(o.services) >= mostServices {
		r.mu.Unlock()
		return &apiError{429, fmt.Sprintf("%s has %d services registered here, and no more fit; deregister some", app, mostServices)}
	}
	s := &service{
		def: d, sender: sender, address: address, checks: map[string]*check{}, size: sizeOf(d), since: since{at: r.clock.Next()}, unverified: unverified,
	}
	instead := 0
	if old != nil {
		instead = old.size
	}
	if err := o.room(s.size, instead); err != nil {
		r.mu.Unlock()
		return err
	}
	s.node = r.nodeService(d, sender, old)
	if err := r.replaceChecks(o, s, old, replaceChecks); err != nil {
		r.mu.Unlock()
		return err
	}
	o.services[d.ID] = s
	r.publish(o)
	r.save(o, s)
	r.mu.Unlock()
	return r.tell(ctx)
}

// instanceAddress is where callers' sidecars find the instance. It is not valid for a
// service that has no port, and can't be called.
func (r *registry) instanceAddress(d *serviceDefinition, sender netip.Addr) (netip.AddrPort, error) {
	host := sender
	if d.Address != "" {
		var err error
		if host, err = netip.ParseAddr(d.Address); err != nil || host.Zone() != "" {
			return netip.AddrPort{}, &apiError{400, "Invalid service address: Isthmus leads calls to IP addresses, and " + quoted(d.Address) + " is none"}
		}
	}
	port := uint64(d.Port)
	if text, ok := d.Meta[r.portKey]; ok {
		var err error
		if port, err = parsePort(text); err != nil {
			return netip.AddrPort{}, &apiError{400, "Invalid Service Meta: " + r.portKey + ": " + quoted(text) + " is no port"}
		}
	}
	if port == 0 {
		return netip.AddrPort{}, nil
	}
	address := netip.AddrPortFrom(host.Unmap(), uint16(port))
	if err := r.rules.Instance(address); err != nil {
		return netip.AddrPort{}, &apiError{400, "Invalid service address: " + err.Error()}
	}
	return address, nil
}

// nodeService is a definition as it is answered. It keeps the index of the service that
// it replaces.
func (r *registry) nodeService(d *serviceDefinition, sender netip.Addr, old *service) *nodeService {
	n := &nodeService{
		ID: d.ID, Service: d.Name, Tags: notNil(d.Tags), Address: d.Address, Meta: d.Meta, Port: d.Port,
		Weights: weights{1, 1}, EnableTagOverride: d.EnableTagOverride, TaggedAddresses: maps.Clone(d.TaggedAddresses),
	}
	if n.Address == "" && sender.String() != r.self.Address {
		n.Address = sender.String() // the node's is another
	}
	if d.Weights != nil {
		n.Weights = *d.Weights
	}
	tag(n)
	index := r.counter.Add(1)
	n.indexes = indexes{index, index}
	if old != nil {
		n.CreateIndex = old.node.CreateIndex
		if n.same(old.node) {
			n.ModifyIndex = old.node.ModifyIndex
		}
	}
	return n
}

// tag fills in the addresses that Consul derives from the service's own.
func tag(n *nodeService) {
	ip, err := netip.ParseAddr(n.Address)
	if err != nil {
		return
	}
	kind := "ipv6"
	if ip.Is4() || ip.Is4In6() {
		kind = "ipv4"
	}
	if n.TaggedAddresses == nil {
		n.TaggedAddresses = map[string]serviceAddress{}
	}
	for _, name := range []string{"lan_" + kind, "wan_" + kind} {
		if _, there := n.TaggedAddresses[name]; !there {
			n.TaggedAddresses[name] = serviceAddress{n.Address, n.Port}
		}
	}
}

func (n *nodeService) same(o *nodeService) bool {
	return n.Service == o.Service && slices.Equal(n.Tags, o.Tags) && n.Address == o.Address && n.Port == o.Port &&
		n.Weights == o.Weights && n.EnableTagOverride == o.EnableTagOverride &&
		maps.Equal(n.Meta, o.Meta) && maps.Equal(n.TaggedAddresses, o.TaggedAddresses)
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
	return r.tell(ctx)
}

// remove is called with mu held.
func (r *registry) remove(o *owned, s *service) {
	for id, c := range s.checks {
		c.end()
		delete(o.checks, id)
	}
	delete(o.services, s.def.ID)
	r.unsaved.forget(topology.InstanceKey{App: o.app, ID: s.def.ID})
	if err := r.store.remove(s); err != nil {
		r.often.Error("file "+o.app.String(), "the file of a service that is deregistered can't be removed; a restart of the service would bring it back", "app", o.app.String(), "service", s.def.ID, "err", err)
	}
	r.publish(o)
}

// publish shows what an app has registered by now. It is called with mu held.
func (r *registry) publish(o *owned) {
	before, _ := o.roster.Load()
	next := &roster{byAddress: map[netip.AddrPort]*registered{}, leaving: maps.Clone(before.leaving), pending: true}
	for _, s := range o.services {
		next.services = append(next.services, r.shown(o, s))
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
	o.roster.Store(next)
	r.dirty[o.app] = true
	count, _ := r.changed.Load()
	r.changed.Store(count + 1)
}

// shown is a service as it is answered.
func (r *registry) shown(o *owned, s *service) *registered {
	shown := &registered{service: s.node, address: s.address, key: topology.InstanceKey{App: o.app, ID: s.def.ID}, since: s.since, unverified: s.unverified}
	for _, c := range s.checks {
		shown.checks = append(shown.checks, c.shown)
	}
	slices.SortFunc(shown.checks, func(a, b *healthCheck) int { return strings.Compare(a.CheckID, b.CheckID) })
	shown.all = append([]*healthCheck{serfHealth(r.self)}, shown.checks...)
	return shown
}

// serfHealth is the check that Consul has of each node.
func serfHealth(n *node) *healthCheck {
	return &healthCheck{
		Node: n.Node, CheckID: "serfHealth", Name: "Serf Health Status", Status: passing, Output: "Agent alive and reachable",
		ServiceTags: []string{}, indexes: n.indexes,
	}
}

// quoted is a client's text, safe in an answer.
func quoted(s string) string {
	const most = 100
	if len(s) > most {
		s = s[:most] + "…"
	}
	return fmt.Sprintf("%q", s)
}
