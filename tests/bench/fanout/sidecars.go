package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/nameresolution"
	"github.com/isthmus-mesh/isthmus/tests/bench/fleet"
)

// sidecars are the resolvers that daprd would have loaded.
type sidecars []*nameresolution.Resolver

// connect makes so many sidecars, of the apps from 1 on, so many for each. They connect
// by themselves.
func connect(ctx context.Context, at place, address string, count, each int) (all sidecars, err error) {
	for i := range count {
		own := fleet.Instance(1+i/each, i%each)
		r := nameresolution.New(nameresolution.Options{Logger: slog.New(slog.DiscardHandler)})
		all = append(all, r)
		configuration := map[string]any{
			"resolver": address, "cluster": cluster, "identity": settings(at.identity(own.App)), "resolveTimeout": "1m",
		}
		self := nameresolution.Instance{App: own.App, Address: own.Address.Addr().String(), Port: fleet.Port}
		if err := r.Init(ctx, configuration, self); err != nil {
			return all, fmt.Errorf("sidecar %s: %w", own.App, err)
		}
	}
	return all, nil
}

// settings is an identity as a user writes it.
func settings(cfg identity.Config) map[string]any {
	if cfg.Insecure {
		return map[string]any{"insecure": true}
	}
	return map[string]any{"files": map[string]any{"cert": cfg.Files.Cert, "key": cfg.Files.Key, "ca": cfg.Files.CA}}
}

func (all sidecars) close() {
	for _, r := range all {
		_ = r.Close() // a resolver without a local one has nothing to fail with
	}
}

// await waits until every sidecar is connected and has the address.
func (all sidecars) await(ctx context.Context, address string) error {
	limit := time.Now().Add(patience)
	for _, r := range all {
		for {
			got, err := r.ResolveID(ctx, fleet.App(0))
			if got == address {
				break
			}
			if time.Now().After(limit) {
				return fmt.Errorf("a sidecar does not get its view: %w", err)
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// glance is between two looks at the sidecars. It bounds how exact the times are.
const glance = 200 * time.Microsecond

// patience is how long all sidecars may take.
const patience = 30 * time.Second

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
		if time.Since(began) > patience {
			return nil, fmt.Errorf("%w: %d are without %s after %s", errUnseen, len(waiting), address, patience)
		}
		time.Sleep(glance)
	}
}
