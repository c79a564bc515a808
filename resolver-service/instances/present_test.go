package instances

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// An instance that registers once more, where nothing of it is new to the source, has its
// address again from whoever another source has named there since. One that is only said
// again, or drains, has not.
func TestWhoRegistersOnceMoreHasTheAddressAgain(t *testing.T) {
	const address = "10.0.0.1:50002"
	billing, stock, drains := at("billing", "1", address), at("stock", "1", address), at("billing", "1", address)
	drains.Draining = true
	for what, c := range map[string]struct {
		said Change
		want string
	}{
		"registers":          {Change{Put: []catalog.Instance{billing}, Present: []topology.InstanceKey{keyed("billing", "1")}}, "billing"},
		"is said again":      {Change{Put: []catalog.Instance{billing}}, "stock"},
		"drains":             {Change{Put: []catalog.Instance{drains}}, "stock"},
		"another registers":  {Change{Put: []catalog.Instance{billing}, Present: []topology.InstanceKey{keyed("billing", "2")}}, "stock"},
		"is in a set again":  {full(billing), "stock"},
		"registers in a set": {Change{Full: true, Put: []catalog.Instance{billing}, Present: []topology.InstanceKey{keyed("billing", "1")}}, "billing"},
	} {
		g := topology.NewGraph(topology.Config{Cluster: "west", Domain: catalog.DefaultDomain, Open: true})
		owner := ""
		tell := func(changes ...topology.InstanceChange) {
			for _, u := range g.Apply(topology.Change{Instances: changes}) {
				if u.Callers != nil {
					a, _ := u.Callers.Get(netip.MustParseAddr("10.0.0.1"))
					owner = a.App.ID
				}
			}
		}
		g.Apply(topology.Change{Objects: &topology.ObjectChange{Full: true}})
		s := newStanding(10)
		s.apply(full(billing))
		tell(s.flush("etcd", true)...)
		tell(topology.InstanceChange{Source: "consul", Put: []catalog.Instance{stock}})
		if owner != "stock" {
			t.Fatalf("it is with %q at first; want stock", owner)
		}
		s.apply(c.said)
		tell(s.flush("etcd", false)...)
		if owner != c.want {
			t.Errorf("billing %s: the address is with %s, want %s", what, owner, c.want)
		}
		if again := s.flush("etcd", false); len(again) > 0 {
			t.Errorf("billing %s: %d changes are told twice", what, len(again))
		}
	}
}

// registered is a change of those that have registered now.
func registered(all ...catalog.Instance) Change {
	c := Change{Put: all}
	for i := range all {
		c.Present = append(c.Present, topology.KeyOf(&all[i]))
	}
	return c
}

// presence is what a topology was told, with a "!" behind one that says so of itself.
type presence struct{ said }

func (p *presence) Apply(ctx context.Context, c topology.Change) (uint64, error) {
	for n := range c.Instances {
		put := append([]catalog.Instance(nil), c.Instances[n].Put...)
		for i := range put {
			if c.Instances[n].Present {
				put[i].ID += "!"
			}
		}
		c.Instances[n].Put = put
	}
	return p.said.Apply(ctx, c)
}

// What registers is told apart from the rest and in its order, whatever becomes one change
// while the topology is busy.
func TestWhatRegistersIsToldAsThat(t *testing.T) {
	one, two, three := at("orders", "1", "10.0.0.1:1"), at("orders", "2", "10.0.0.1:2"), at("billing", "3", "10.0.0.1:3")
	drains := one
	drains.Draining = true
	put := func(all ...catalog.Instance) Change { return Change{Put: all} }
	gone := Change{Delete: []topology.InstanceKey{keyed("orders", "1")}}
	for _, c := range []struct {
		what    string
		slow    time.Duration
		changes []Change
		want    string
	}{
		{"one by one", 0, []Change{full(one, two), registered(one), put(two), put(drains)}, "orders/1= orders/2= | orders/1! | orders/1"},
		{"before the source was heard", 0, []Change{{Full: true, Put: []catalog.Instance{one}, Present: []topology.InstanceKey{keyed("orders", "1")}}}, "orders/1="},
		{"among others", 5 * time.Second, []Change{full(one, two), registered(two), put(three), registered(one)}, "orders/1= orders/2= | orders/2! billing/3 orders/1!"},
		{"it drains after that", 5 * time.Second, []Change{full(one), put(two), registered(one), put(drains)}, "orders/1= | orders/2 orders/1!"},
		{"it goes after that", 5 * time.Second, []Change{full(one), put(two), registered(one), gone}, "orders/1= | -orders/1 orders/2"},
		{"it goes, and is back by registering", 5 * time.Second, []Change{full(one), put(two), gone, registered(one)}, "orders/1= | orders/2 orders/1!"},
		{"it goes, and is written again", 5 * time.Second, []Change{full(one), put(two), gone, put(one)}, "orders/1= | orders/2"},
	} {
		synctest.Test(t, func(t *testing.T) {
			to := &presence{said{slow: c.slow}}
			tells(t, to, &script{name: "a", watches: []func(func(Change) error) error{says(nil, c.changes...)}})
			if got := strings.Join(to.words, " "); got != c.want {
				t.Errorf("%s: %q, want %q", c.what, got, c.want)
			}
		})
	}
}

// So many that register at once are told in portions, each once.
func TestManyThatRegisterAtOnceComeInPortions(t *testing.T) {
	var all []catalog.Instance
	for n := range 2*portion + 1 {
		address := netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
		all = append(all, at("orders", address.String(), address.String()+":1"))
	}
	s := newStanding(len(all))
	s.apply(full(all...))
	_ = s.flush("a", true)
	s.apply(registered(all...))
	told := 0
	changes := s.flush("a", false)
	for _, c := range changes {
		if !c.Present || len(c.Put) > portion {
			t.Errorf("a portion of %d, present %t", len(c.Put), c.Present)
		}
		told += len(c.Put)
	}
	if len(changes) != 3 || told != len(all) {
		t.Errorf("%d in %d portions; want %d in 3", told, len(changes), len(all))
	}
}
