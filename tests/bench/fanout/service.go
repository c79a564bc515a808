package main

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/configstore/embedded"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/objects"
	"github.com/isthmus-mesh/isthmus/resolver-service/process"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
	"github.com/isthmus-mesh/isthmus/tests/bench/resolver"
)

// rejoinTimeout is how long instances count that do not come back: longer than the program
// runs, since most of the fleet is not there.
const rejoinTimeout = 10 * time.Minute

// service is the resolver service with its store. It answers with its address once it is
// ready.
func service(ctx context.Context, argument []byte) (err error) {
	var at place
	if err := json.Unmarshal(argument, &at); err != nil {
		return err
	}
	store, err := embedded.Open(at.store())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	s, err := resolver.New(ctx, resolver.Config{
		Cluster: cluster, Certificates: at.certificates(),
		Streams: stream.Config{Snapshot: at.snapshot(), RejoinTimeout: rejoinTimeout, MaxStreams: math.MaxInt},
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return s.Run(ctx, objects.NewFeed(store, s.Topology, resolver.Log).Run, func(ctx context.Context) error {
			return process.SaveMemory(ctx, s.Topology.Ready())
		})
	})
	group.Go(func() error {
		defer stop()
		return measure.Answer(map[string]measure.Method{
			"Address": measure.Typed(func(measure.None) (string, error) {
				_, err := s.Topology.Ready().Wait(ctx)
				return s.Address(), err
			}),
		})
	})
	return group.Wait()
}
