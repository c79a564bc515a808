package kubernetes

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances/instancestest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

func TestSource(t *testing.T) {
	instancestest.Run(t, func(t *testing.T) instancestest.Backend {
		c := theCluster(t)
		b := &backend{cluster: c, have: map[string]map[string]catalog.Instance{}}
		as := func(user string) func(testing.TB) instances.Source {
			return func(t testing.TB) instances.Source { return newSource(t, c.config(t, user)) }
		}
		return instancestest.Backend{
			Open: as("service"), Denied: as("stranger"),
			Put: b.put, Delete: b.remove, Spoil: b.spoil,
			Drain: func(t testing.TB, i catalog.Instance) { i.Draining = true; b.put(t, i) },
			Fail:  c.Link.Fail, Cut: c.Link.Cut, Slow: c.Link.Slow, Restart: c.Restart, Forget: c.Forget,
			Servers: []string{c.Link.Addr()}, Secrets: append(c.Tokens(), serverstest.TokenOf("stranger")),
		}
	})
}

// backend writes slices as the controller of Kubernetes does: of each service one for
// each family of addresses and port, each with all endpoints.
type backend struct {
	*cluster
	have map[string]map[string]catalog.Instance // by slice and ID
}

func nameOf(i catalog.Instance) (slice, family string) {
	family = "IPv4"
	if i.Address.Addr().Is6() {
		family = "IPv6"
	}
	return fmt.Sprintf("%s-dapr-%s-%d", i.App.ID, map[string]string{"IPv4": "4", "IPv6": "6"}[family], i.Address.Port()), family
}

func (b *backend) put(t testing.TB, all ...catalog.Instance) {
	b.change(t, all, func(i catalog.Instance) { // one that has moved may be in another slice
		b.take(i)
		slice, _ := nameOf(i)
		key := i.App.Namespace + "/" + slice
		if b.have[key] == nil {
			b.have[key] = map[string]catalog.Instance{}
		}
		b.have[key][i.ID] = i
	})
}

func (b *backend) remove(t testing.TB, all ...catalog.Instance) { b.change(t, all, b.take) }

func (b *backend) take(i catalog.Instance) {
	for _, slice := range b.have {
		if have, ok := slice[i.ID]; ok && have.App == i.App {
			delete(slice, i.ID)
		}
	}
}

// change writes the slices that a change of some instances touches.
func (b *backend) change(t testing.TB, all []catalog.Instance, f func(i catalog.Instance)) {
	t.Helper()
	touched := map[string]catalog.Instance{}
	touch := func(i catalog.Instance) {
		for key, slice := range b.have {
			if have, ok := slice[i.ID]; ok && have.App == i.App {
				touched[key] = have
			}
		}
	}
	for _, i := range all {
		touch(i)
		f(i)
		touch(i)
	}
	for key, sample := range touched {
		slice, family := nameOf(sample)
		var endpoints []map[string]any
		for _, i := range b.have[key] {
			state := "ready"
			if i.Draining {
				state = "draining"
			}
			endpoints = append(endpoints, endpointOf(i.ID, i.Address.Addr().String(), state))
		}
		slices.SortFunc(endpoints, func(a, b map[string]any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		b.cluster.put(t, slicesOf(sample.App.Namespace).Path, slice,
			sliceOf(sample.App.Namespace, slice, sample.App.ID+serviceSuffix, family, int(sample.Address.Port()), endpoints...))
	}
}

// spoil writes what the API server takes and nobody can call.
func (b *backend) spoil(t testing.TB) (words []string, mend func()) {
	path := slicesOf("shop").Path
	noPort := sliceOf("shop", "a-no-port", "bad-dapr", "IPv4", 50002, endpointOf("x", "10.9.0.1", "ready"))
	noPort["ports"] = []any{map[string]any{"name": "http", "port": 80}}
	bad := map[string]map[string]any{
		"a-no-port": noPort,
		"a-names":   sliceOf("shop", "a-names", "bad-dapr", "FQDN", 50002, map[string]any{"addresses": []string{"host.example"}}),
	}
	for name, body := range bad {
		b.cluster.put(t, path, name, body)
	}
	return []string{"EndpointSlice shop/a-no-port", "dapr-internal", "EndpointSlice shop/a-names", "host names"}, func() {
		for name := range bad {
			b.cluster.remove(t, path, name)
		}
	}
}
