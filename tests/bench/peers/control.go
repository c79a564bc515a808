package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// Control is what the benchmark asks of the service. Its methods are called by net/rpc.
type Control struct {
	ctx    context.Context
	parts  *parts
	sights sights

	mu        sync.Mutex
	profiling *os.File
}

// None is an argument, or an answer, that says nothing.
type None struct{}

// Fill tells the topology of the service's own cluster, and of its callers, of which the
// watcher may call so many apps of each of so many peers.
func (c *Control) Fill(watched [2]int, _ *None) error {
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
	_, err := c.parts.topology.Apply(c.ctx, fill(ours, "*", 0, objects...))
	return err
}

// Address is where the service listens.
func (c *Control) Address(_ None, address *string) error {
	*address = c.parts.listener.Addr().String()
	return nil
}

// Link is another cluster and its gateway.
type Link struct{ Cluster, Gateway string }

// rampUp is how long a cluster takes to have its traffic back, in steps.
const rampUp = time.Second

// Link adds links to clusters, and answers how long it took until each of them had said
// all that it exports, and could be relied on.
func (c *Control) Link(links []Link, took *time.Duration) error {
	began := time.Now()
	all, _ := c.parts.clusters.Load()
	var objects topology.ObjectChange
	for _, l := range links {
		cluster := &catalog.Cluster{Name: l.Cluster, Gateways: []string{l.Gateway}, StaleAfter: catalog.DefaultStaleAfter, RampUp: rampUp}
		all = append(all[:len(all):len(all)], cluster)
		objects.Put = append(objects.Put, cluster)
	}
	if _, err := c.parts.topology.Apply(c.ctx, topology.Change{Objects: &objects}); err != nil {
		return err
	}
	c.parts.clusters.Store(all)
	for !c.heard(len(all)) {
		if time.Since(began) > patience {
			return fmt.Errorf("not all of %d clusters were heard within %s: %v", len(all), patience, c.parts.links.Status())
		}
		time.Sleep(time.Millisecond)
	}
	*took = time.Since(began)
	c.parts.topology.Settle()
	return nil
}

// heard tells whether so many clusters are heard.
func (c *Control) heard(clusters int) bool {
	told, err := c.parts.topology.Report(c.ctx, watcher, watcher)
	n := 0
	for _, s := range told.Clusters {
		if s.Heard {
			n++
		}
	}
	return err == nil && n == clusters
}

// Memory is what the process holds.
func (c *Control) Memory(_ None, m *measure.Memory) error {
	*m = measure.Settled()
	return nil
}

// CPU is the CPU time that the process has used.
func (c *Control) CPU(_ None, used *time.Duration) (err error) {
	*used, err = cpu()
	return err
}

// cpu is the CPU time that this process has used.
func cpu() (time.Duration, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}

// Seen takes what has changed in the watcher's view.
func (c *Control) Seen(_ None, all *[]Sight) error {
	*all = c.sights.take()
	return nil
}

// Await waits until the callers may call all that the first peer exports, or none of it.
func (c *Control) Await(ready bool, r *Reached) error {
	ctx, cancel := context.WithTimeout(c.ctx, patience)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	each := make([]Reached, exports/callees)
	for i := range each {
		group.Go(func() (err error) {
			each[i], err = await(ctx, c.parts.topology, caller(i), ready)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("callers wait for the first peer's apps to be ready (%t): %w", ready, err)
	}
	*r = each[0]
	for _, e := range each {
		r.First, r.Last = min(r.First, e.First), max(r.Last, e.Last)
	}
	return nil
}

// Told is what the service has told its peers so far.
type Told struct{ Exports, Firsts int64 }

// Told counts what the service has told its peers so far.
func (c *Control) Told(_ None, t *Told) error {
	*t = Told{c.parts.told.exports.Load(), c.parts.told.firsts.Load()}
	return nil
}

// Change has so many of the service's own apps change, one every so often.
func (c *Control) Change(how Changes, _ *None) error {
	for i := range how.Count {
		began := time.Now()
		if _, err := c.parts.topology.Apply(c.ctx, flip(ours, i/2, i%2 == 1)); err != nil {
			return err
		}
		time.Sleep(how.Every - time.Since(began))
	}
	return nil
}

// Changes are so many, one every so often.
type Changes struct {
	Count int
	Every time.Duration
}

// Profile begins to profile the CPU into a file, and ends the profile before. An empty
// path only ends it.
func (c *Control) Profile(path string, _ *None) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.profiling != nil {
		pprof.StopCPUProfile()
		if err := c.profiling.Close(); err != nil {
			return err
		}
		c.profiling = nil
	}
	if path == "" {
		return nil
	}
	if c.profiling, err = os.Create(filepath.Clean(path)); err != nil {
		return err
	}
	return pprof.StartCPUProfile(c.profiling)
}

// Heap profiles what is alive into a file.
func (c *Control) Heap(path string, _ *None) error {
	f, err := os.Create(filepath.Clean(path))
	if err != nil {
		return err
	}
	defer f.Close()
	runtime.GC()
	return pprof.WriteHeapProfile(f)
}
