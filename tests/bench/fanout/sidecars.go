package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-mesh/isthmus/nameresolution"
	"github.com/isthmus-mesh/isthmus/tests/bench/fleet"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
	"github.com/isthmus-mesh/isthmus/tests/bench/resolver"
)

// sidecars are the resolvers that daprd would have loaded.
type sidecars []*nameresolution.Resolver

// connect makes so many sidecars, of the apps from 1 on, so many for each. They connect
// by themselves.
func connect(ctx context.Context, at place, address string, count, each int) (all sidecars, err error) {
	for i := range count {
		own := fleet.Instance(1+i/each, i%each)
		r, err := resolver.Sidecar(ctx, cluster, address, at.certificates().Identity(own.App), own)
		if err != nil {
			return all, err
		}
		all = append(all, r)
	}
	return all, nil
}

func (all sidecars) close() {
	for _, r := range all {
		_ = r.Close() // a resolver without a local one has nothing to fail with
	}
}

// await waits until every sidecar is connected and has the address.
func (all sidecars) await(ctx context.Context, address string) error {
	for _, r := range all {
		err := measure.Await(ctx, "a sidecar gets its view", time.Millisecond, func() error {
			got, err := r.ResolveID(ctx, fleet.App(0))
			if err == nil && got != address {
				err = errUnseen
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// glance is between two looks at the sidecars. It bounds how exact the times are.
const glance = 200 * time.Microsecond

var errUnseen = errors.New("not every sidecar has seen the change")

// watch asks the sidecars, as daprd asks them for each call, until all of them answer
// with the address. It returns how long after began each did.
func (all sidecars) watch(ctx context.Context, address string, began time.Time) ([]time.Duration, error) {
	seen := make([]time.Duration, 0, len(all))
	waiting := append(sidecars(nil), all...)
	for {
		for i := 0; i < len(waiting); {
			got, err := waiting[i].ResolveID(ctx, fleet.App(0))
			if err != nil {
				return nil, err
			}
			if got != address {
				i++
				continue
			}
			seen = append(seen, time.Since(began))
			waiting[i] = waiting[len(waiting)-1]
			waiting = waiting[:len(waiting)-1]
		}
		if len(waiting) == 0 {
			return seen, nil
		}
		if time.Since(began) > measure.Patience {
			return nil, fmt.Errorf("%w: %d are without %s after %s", errUnseen, len(waiting), address, measure.Patience)
		}
		time.Sleep(glance)
	}
}
