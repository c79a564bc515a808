package simulation

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// put stores an object in a cluster.
func (w *world) put(cluster string, o catalog.Object) {
	w.cluster(cluster).objects.edit(func(all map[catalog.Key]catalog.Object) { all[o.Key()] = o })
	w.exportsNow(cluster)
}

func (w *world) remove(cluster string, key catalog.Key) {
	w.cluster(cluster).objects.edit(func(all map[catalog.Key]catalog.Object) { delete(all, key) })
	w.exportsNow(cluster)
}

func (w *world) know(cluster string, c *catalog.Cluster) { w.put(cluster, c) }

// object is a Cluster object.
func object(name string, staleAfter time.Duration, gateways []int, rampUp time.Duration, network string) *catalog.Cluster {
	c := &catalog.Cluster{Name: name, StaleAfter: staleAfter, RampUp: rampUp, Network: network, Trust: catalog.Trust{AppDomain: domainOf(name)}}
	for _, i := range gateways {
		if i < replicasOf[name] {
			c.Gateways = append(c.Gateways, gatewayAddress(name, i))
		}
	}
	return c
}

// gatewayAddress is that of a cluster's gateway in Cluster objects.
func gatewayAddress(cluster string, i int) string {
	return fmt.Sprintf("192.0.2.%d:%s", 10*slices.Index(clusterNames, cluster)+i+1, gatewayPort)
}

// knows changes a Cluster object: the order of its gateways, its network, or whether it exists.
func (m maker) knows() (string, func(*world)) {
	in := one(m, clusterNames)
	of := one(m, slices.DeleteFunc(slices.Clone(clusterNames), func(name string) bool { return name == in }))
	if m.chance(25) {
		return in + " knows " + of + " no more", func(w *world) { w.remove(in, catalog.Key{Kind: catalog.KindCluster, Name: of}) }
	}
	gateways := one(m, [][]int{{0, 1}, {0, 1}, {1, 0}, {0}})
	rampUp := one(m, []time.Duration{0, 2 * time.Second, 10 * time.Second})
	network := one(m, []string{"", networkOf[of]})
	return fmt.Sprintf("%s knows %s by gateways %v, network %q, rampUp %s", in, of, gateways, network, rampUp), func(w *world) {
		w.know(in, object(of, w.cluster(of).staleAfter, gateways, rampUp, network))
	}
}

func (m maker) selects() (string, func(*world)) { return m.selectsIn(one(m, clusterNames)) }

func (m maker) selectsIn(in string) (string, func(*world)) {
	caller := one(m, apps)
	if m.chance(12) {
		return fmt.Sprintf("%s in %s: no more", caller, in), func(w *world) {
			w.remove(in, (&catalog.AppEndpoints{App: caller}).Key())
		}
	}
	s := &catalog.AppEndpoints{App: caller, Actors: []catalog.ActorEndpoint{{Type: actorType}}}
	var text []string
	for _, a := range apps {
		if a == caller || m.chance(40) {
			continue
		}
		e := catalog.Endpoint{App: a, Line: 3}
		if m.chance(30) {
			e.WhenStale = catalog.Serve
		}
		for _, route := range append([]string{catalog.LocalCluster}, clusterNames...) {
			if route != in && m.chance(50) {
				e.Routes = append(e.Routes, catalog.RouteSpec{Cluster: route, Priority: uint32(m.IntN(3)), Weight: uint32(m.IntN(4))})
			}
		}
		if m.chance(40) {
			e.Routes = nil
		}
		s.Endpoints = append(s.Endpoints, e)
		text = append(text, fmt.Sprintf("%s %v %s", a.ID, e.Routes, e.WhenStale))
	}
	return fmt.Sprintf("%s in %s: %s", caller, in, strings.Join(text, "; ")), func(w *world) { w.put(in, s) }
}

func (m maker) exported() (string, func(*world)) { return m.exportedBy(one(m, clusterNames)) }

func (m maker) exportedBy(by string) (string, func(*world)) {
	a := one(m, apps)
	if m.chance(20) {
		return fmt.Sprintf("%s by %s: no more", a, by), func(w *world) { w.remove(by, (&catalog.AppExport{App: a}).Key()) }
	}
	e := &catalog.AppExport{App: a}
	for range m.IntN(3) {
		allow := catalog.Allow{Cluster: one(m, append([]string{"*", ""}, clusterNames...)), Namespace: one(m, []string{"", "*", "shop", "other"})}
		if m.chance(60) {
			allow.App = one(m, apps).ID
		}
		e.Allow = append(e.Allow, allow)
	}
	return fmt.Sprintf("%s by %s to %v", a, by, e.Allow), func(w *world) { w.put(by, e) }
}

func (m maker) moves() (string, func(*world)) {
	if m.chance(30) {
		return m.handsOver()
	}
	return m.movesIn(one(m, clusterNames))
}

// handsOver gives one of three addresses on the shared network to an app, which may take it from
// another.
func (m maker) handsOver() (string, func(*world)) {
	in, a, n := one(m, []string{"north", "west"}), one(m, apps), m.IntN(3)
	draining, gone := m.chance(20), m.chance(10)
	address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, 0, byte(n)}), 50002)
	text := fmt.Sprintf("%s on net-1 is %s in %s", address, a, in)
	if draining {
		text += ", draining"
	}
	if gone {
		text = fmt.Sprintf("%s on net-1 is gone", address)
	}
	return text, func(w *world) {
		for _, c := range w.clusters {
			_, running, _ := c.instances.newest()
			if there := at(running, address); len(there) > 0 || c.name == in && !gone {
				c.instances.edit(func(all map[topology.InstanceKey]catalog.Instance) {
					for _, key := range there {
						delete(all, key)
					}
					if c.name == in && !gone {
						c.runs(all, catalog.Instance{ID: fmt.Sprint("n", n), App: a, Address: address, Draining: draining})
					}
				})
			}
		}
	}
}

// at are the instances at an address.
func at(all map[topology.InstanceKey]catalog.Instance, address netip.AddrPort) (keys []topology.InstanceKey) {
	for key, i := range all {
		if i.Address == address {
			keys = append(keys, key)
		}
	}
	return keys
}

// runs adds an instance to a cluster.
func (c *cluster) runs(all map[topology.InstanceKey]catalog.Instance, i catalog.Instance) {
	c.ever[placed{i.App, i.Address.String()}] = true
	all[topology.InstanceKey{App: i.App, ID: i.ID}] = i
}

// movesIn changes an instance of a cluster. There are eight addresses, each with one app at a
// time.
func (m maker) movesIn(in string) (string, func(*world)) {
	n, a, draining, gone := m.IntN(8), one(m, apps), m.chance(25), m.chance(25)
	address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(slices.Index(clusterNames, in)), 0, byte(n)}), 50002)
	text := fmt.Sprintf("%s in %s is %s", address, in, a)
	if draining {
		text += ", draining"
	}
	if gone {
		text = fmt.Sprintf("%s in %s is gone", address, in)
	}
	return text, func(w *world) {
		c := w.cluster(in)
		c.instances.edit(func(all map[topology.InstanceKey]catalog.Instance) {
			for _, key := range at(all, address) {
				delete(all, key)
			}
			if !gone {
				c.runs(all, catalog.Instance{ID: fmt.Sprint("i", n), App: a, Address: address, Draining: draining})
			}
		})
	}
}

// allowed is one version of an export: whom it lets call. Nil is no export.
type allowed []catalog.Allow

// lets tells whether an app of a cluster may call, by the words of DESIGN: an omitted
// field, like "*", means any.
func (a allowed) lets(cluster string, caller catalog.App) bool {
	is := func(want, got string) bool { return want == "" || want == "*" || want == got }
	for _, one := range a {
		if is(one.Cluster, cluster) && is(one.Namespace, caller.Namespace) && is(one.App, caller.ID) {
			return true
		}
	}
	return false
}

// exportsNow notes the newest version of each export of a cluster, and what it says of actors.
func (w *world) exportsNow(cluster string) {
	w.claimsNow(cluster)
	_, all, _ := w.cluster(cluster).objects.newest()
	for _, a := range apps {
		var now allowed
		if o, ok := all[(&catalog.AppExport{App: a}).Key()].(*catalog.AppExport); ok {
			now = append(allowed{}, o.Allow...)
		}
		of := export{cluster, a}
		versions := w.exports[of]
		if !slices.Equal(versions[len(versions)-1], now) {
			w.exports[of] = append(versions, now)
		}
	}
}
