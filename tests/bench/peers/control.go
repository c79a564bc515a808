package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
	"github.com/isthmus-mesh/isthmus/tests/bench/resolver"
)

// control answers what the benchmark asks of the service.
type control struct {
	*resolver.Service
	ctx    context.Context
	sights sights
	told   told
}

type none = measure.None

func (c *control) methods() map[string]measure.Method {
	return map[string]measure.Method{
		"Address":     measure.Typed(func(none) (string, error) { return c.Address(), nil }),
		"PeerAddress": measure.Typed(func(none) (string, error) { return c.PeerAddress(), nil }),
		"Await":       measure.Typed(c.await),
		"Change":      measure.Typed(c.change),
		"Fill":        measure.Typed(c.fill),
		"Link":        measure.Typed(c.link),
		"Memory":      measure.Typed(func(none) (measure.Memory, error) { return measure.Settled(), nil }),
		"Seen":        measure.Typed(func(none) ([]sight, error) { return c.sights.take(), nil }),
		"Told":        measure.Typed(func(none) (sent, error) { return c.told.load(), nil }),
	}
}

// fill tells the topology of the service's own cluster, and of its callers, of which the
// watcher may call so many apps of each of so many peers.
func (c *control) fill(watched [2]int) (none, error) {
	w := &catalog.AppEndpoints{App: watcher}
	for i := range watched[0] {
		for j := range watched[1] {
			w.Endpoints = append(w.Endpoints, catalog.Endpoint{App: appOf(peerName(i), j)})
		}
	}
	objects := []catalog.Object{w}
	for i := range exports / callees {
		s := &catalog.AppEndpoints{App: caller(i)}
		for j := range callees {
			s.Endpoints = append(s.Endpoints, catalog.Endpoint{App: appOf(peerName(0), i*callees+j)})
		}
		objects = append(objects, s)
	}
	var clusters []*catalog.Cluster // that may ask, and are not asked yet
	for i := range watched[0] {
		cluster := &catalog.Cluster{Name: peerName(i), StaleAfter: catalog.DefaultStaleAfter, RampUp: rampUp}
		clusters = append(clusters, cluster)
		objects = append(objects, cluster)
	}
	c.Clusters.Store(clusters)
	_, err := c.Topology.Apply(c.ctx, fill(ours, "*", 0, objects...))
	return none{}, err
}

// link is another cluster and its gateway.
type link struct{ Cluster, Gateway string }

// rampUp is how long a cluster takes to have its traffic back, in steps.
const rampUp = time.Second

// link adds links to clusters, and answers how long it took until each of them had said
// all that it exports, and could be relied on.
func (c *control) link(links []link) (took time.Duration, err error) {
	began := time.Now()
	all, _ := c.Clusters.Load()
	all = slices.Clone(all)
	var objects topology.ObjectChange
	linked := 0
	for i, cluster := range all {
		for _, l := range links {
			if l.Cluster == cluster.Name {
				asked := *cluster
				asked.Gateways = []string{l.Gateway}
				all[i] = &asked
				objects.Put = append(objects.Put, all[i])
			}
		}
		linked += len(all[i].Gateways)
	}
	if _, err := c.Topology.Apply(c.ctx, topology.Change{Objects: &objects}); err != nil {
		return 0, err
	}
	c.Clusters.Store(all)
	err = measure.Await(c.ctx, "all clusters are heard", time.Millisecond, func() error { return heard(c.ctx, c.Topology, linked) })
	took = time.Since(began)
	c.Topology.Settle()
	return took, err
}

var errNotHeard = errors.New("not all clusters are heard")

// heard fails unless so many clusters are heard.
func heard(ctx context.Context, t *topology.Topology, clusters int) error {
	report, err := t.Inventory().Report(ctx, watcher, watcher)
	for _, s := range report.Clusters {
		if s.Heard {
			clusters--
		}
	}
	if err == nil && clusters != 0 {
		err = errNotHeard
	}
	return err
}

// await waits until the callers may call all that the first peer exports, or none of it.
func (c *control) await(ready bool) (r reached, err error) {
	ctx, cancel := context.WithTimeout(c.ctx, measure.Patience)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	each := make([]reached, exports/callees)
	for i := range each {
		group.Go(func() (err error) {
			each[i], err = await(ctx, c.Topology, caller(i), ready)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return r, fmt.Errorf("callers wait for the first peer's apps to be ready (%t): %w", ready, err)
	}
	r = each[0]
	for _, e := range each {
		r.First, r.Last = min(r.First, e.First), max(r.Last, e.Last)
	}
	return r, nil
}

// change has so many of the service's own apps change, one every so often.
func (c *control) change(how changes) (none, error) {
	for i := range how.Count {
		began := time.Now()
		if _, err := c.Topology.Apply(c.ctx, flip(ours, i/2, i%2 == 1)); err != nil {
			return none{}, err
		}
		time.Sleep(how.Every - time.Since(began))
	}
	return none{}, nil
}

// changes are so many, one every so often.
type changes struct {
	Count int
	Every time.Duration
}
