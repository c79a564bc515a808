package etcd

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

const contested = "10.0.0.1:50002"

func named(app string) catalog.Instance {
	return catalog.Instance{App: catalog.App{Namespace: "shop", ID: app}, ID: "1", Address: netip.MustParseAddrPort(contested)}
}

// service is a replica with its graph: what its streams say, what Consul does, and what it
// hears of other replicas.
type service struct {
	*Source

	mu    sync.Mutex
	graph *topology.Graph
	owner string
}

func (p *place) service(t *testing.T, name, address string) *service {
	t.Helper()
	s := &service{
		Source: p.openLasting(t, name, address),
		graph:  topology.NewGraph(topology.Config{Cluster: "west", Domain: catalog.DefaultDomain, Open: true}),
	}
	s.graph.Apply(topology.Change{Objects: &topology.ObjectChange{Full: true}})
	feed, err := instances.NewFeed(instances.FeedConfig{Sources: []instances.Source{s.Source}}, s, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	run(t, s.Run)
	run(t, feed.Run)
	return s
}

// Apply is that of instances.Applier.
func (s *service) Apply(_ context.Context, c topology.Change) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.graph.Apply(c) {
		if u.Callers != nil {
			a, _ := u.Callers.Get(netip.MustParseAddrPort(contested).Addr())
			s.owner = a.App.ID
		}
	}
	return s.graph.Revision(), nil
}

func (s *service) tell(c topology.InstanceChange) {
	_, _ = s.Apply(context.Background(), topology.Change{Instances: []topology.InstanceChange{c}})
}

// streams has a sidecar register by its stream, as the registry of streams does.
func (s *service) streams(i catalog.Instance) {
	i.Since = s.Clock().Next()
	s.tell(topology.InstanceChange{Source: "stream", Rank: topology.Live, Put: []catalog.Instance{i}})
	s.Register(i, func() {
		s.tell(topology.InstanceChange{Source: "stream", Rank: topology.Live, Delete: []topology.InstanceKey{key(i)}})
	})
}

func (s *service) has() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owner
}

func awaitOwner(t *testing.T, want string, all ...*service) {
	t.Helper()
	for _, s := range all {
		serverstest.Await(t, "the address is with "+want+" at "+s.replica, func() bool { return s.has() == want })
	}
}

// stock has another app register at the address of billing, at all replicas.
func stock(all ...*service) {
	i := since(named("stock"), all[0].Clock().Next())
	for _, s := range all {
		s.Clock().Heard(i.Since)
		s.tell(topology.InstanceChange{Source: "other", Rank: topology.Live, Put: []catalog.Instance{i}})
	}
}

// A sidecar that registers once more has its address back at all replicas, though nothing
// else of what is shared of it is new.
func TestAllReplicasLearnThatASidecarRegistersOnceMore(t *testing.T) {
	t.Parallel()
	p := newPlace(t, &plain)
	first, second, third := p.service(t, "r1", p.Server.Addr()), p.service(t, "r2", p.Link.Addr()), p.service(t, "r3", p.Server.Addr())
	all := []*service{first, second, third}
	first.streams(named("billing"))
	awaitOwner(t, "billing", all...)

	stock(all...)
	awaitOwner(t, "stock", all...)
	first.streams(named("billing"))
	awaitOwner(t, "billing", all...)

	stock(all...)
	third.streams(named("billing")) // it has moved
	awaitOwner(t, "billing", all...)

	// And where one can't hear of it just then.
	stock(all...)
	mend := p.Link.Fail(t)
	third.streams(named("billing"))
	awaitOwner(t, "billing", first, third)
	mend()
	awaitOwner(t, "billing", second)
}

// What is written without a registration takes no address: a sidecar that drains, and what is
// written again.
func TestOnlyARegistrationTakesAnAddress(t *testing.T) {
	t.Parallel()
	p := newPlace(t, &plain)
	first, second := p.service(t, "r1", p.Server.Addr()), p.service(t, "r2", p.Server.Addr())
	billing := named("billing")
	first.streams(billing)
	awaitOwner(t, "billing", first, second)
	stock(first, second)

	written := func(what string, change func()) {
		t.Helper()
		before := p.modified(t, billing)
		change()
		serverstest.Await(t, what+" is written", func() bool { return p.modified(t, billing) > before })
	}
	written("that it drains", func() { first.Drain(key(billing)) })
	written("what is there", first.registered.rewriteAll)
	other := named("other") // is told after that
	other.Address = netip.MustParseAddrPort("10.0.0.2:50002")
	first.streams(other)
	serverstest.Await(t, "what came later is known", func() bool {
		second.mu.Lock()
		defer second.mu.Unlock()
		return second.graph.Stats().Instances == 2
	})
	if owner := second.has(); owner != "stock" {
		t.Errorf("the address is with %q; want stock, which came last", owner)
	}
}

// modified is the revision at which an instance was written.
func (p *place) modified(t *testing.T, i catalog.Instance) int64 {
	t.Helper()
	answer, err := p.Admin.Get(t.Context(), rootOf(p.Prefix, "west")+keyOf(key(i)))
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Kvs) == 0 {
		return 0
	}
	return answer.Kvs[0].ModRevision
}
