package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/nameresolution"
	"github.com/isthmus-mesh/isthmus/tests/bench/fleet"
	"github.com/isthmus-mesh/isthmus/tests/bench/resolver"
)

// sight is that somebody knows whether the caller may call the callee.
type sight struct {
	on bool
	at time.Time
}

// sidecars are that of the caller, which is asked, and that of the callee, which is
// there to be found.
type sidecars struct {
	caller, callee *nameresolution.Resolver
	seen           chan sight // when the caller's decision changes
	end            context.CancelFunc
	asking         sync.WaitGroup
}

// connect connects the sidecars to a service, and begins to ask.
func connect(ctx context.Context, address string) (s *sidecars, err error) {
	s = &sidecars{seen: make(chan sight, 16), end: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.callee, err = sidecar(ctx, address, 3); err != nil {
		return s, err
	}
	if s.caller, err = sidecar(ctx, address, 0); err != nil {
		return s, err
	}
	if err := s.await(ctx); err != nil {
		return s, err
	}
	ctx, s.end = context.WithCancel(ctx)
	s.asking.Go(func() { s.ask(ctx) })
	return s, nil
}

// sidecar is the resolver that the daprd of a fleet's app would have loaded.
func sidecar(ctx context.Context, address string, i int) (*nameresolution.Resolver, error) {
	// The service refuses an address that is not the sender's.
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), fleet.Port+uint16(i))
	return resolver.Sidecar(ctx, cluster, address, identity.Config{Insecure: true}, catalog.Instance{App: fleet.App(i), Address: at})
}

// await waits until the caller's sidecar has a view in which it may not call the callee,
// and the callee has one at all.
func (s *sidecars) await(ctx context.Context) error {
	if _, err := s.callee.ResolveID(ctx, caller); errors.Is(err, catalog.ErrNotReady) {
		return err
	}
	if _, err := s.caller.ResolveID(ctx, callee); !errors.Is(err, catalog.ErrDenied) {
		return fmt.Errorf("the caller's selection does not hold the callee, and a lookup says %w", err)
	}
	return nil
}

// glance is between two lookups, and bounds how exact the times are.
const glance = 50 * time.Microsecond

// ask makes lookups as daprd does for each call, and tells when they end in another way.
func (s *sidecars) ask(ctx context.Context) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for on := false; ctx.Err() == nil; {
		_, err := s.caller.ResolveID(ctx, callee)
		if (err == nil) != on {
			on = !on
			select {
			case s.seen <- sight{on, time.Now()}:
			case <-ctx.Done():
			}
		}
		nap(glance)
	}
}

func (s *sidecars) close() error {
	s.end()
	s.asking.Wait()
	var errs []error
	for _, r := range []*nameresolution.Resolver{s.caller, s.callee} {
		if r != nil {
			errs = append(errs, r.Close())
		}
	}
	return errors.Join(errs...)
}
