package main

import (
	"context"
	"encoding/json"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/resolver-service/process"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
	"github.com/isthmus-mesh/isthmus/tests/bench/resolver"
)

// start is what the service that is measured needs to know.
type start struct {
	Certificates resolver.Certificates
	Exports      int
}

// service runs the service that is measured, and answers the benchmark.
func service(ctx context.Context, argument []byte) error {
	var begin start
	if err := json.Unmarshal(argument, &begin); err != nil {
		return err
	}
	exports = begin.Exports
	c := &control{}
	var err error
	c.Service, err = resolver.New(ctx, resolver.Config{Cluster: ours, Certificates: begin.Certificates, Peers: true, Watch: c.told.watch})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	c.ctx = ctx
	group.Go(func() error {
		return c.Run(ctx, func(ctx context.Context) error { return process.SaveMemory(ctx, c.Topology.Ready()) })
	})
	group.Go(func() error { return c.sights.follow(ctx, c.Topology) })
	group.Go(func() error {
		defer stop()
		return measure.Answer(c.methods())
	})
	return group.Wait()
}
