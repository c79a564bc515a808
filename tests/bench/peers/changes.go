package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/nameresolution"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
	"github.com/isthmus-mesh/isthmus/tests/bench/resolver"
)

// changeEvery is how often one of the others' apps changes: 50 a second, of all peers by
// turns.
const changeEvery = 20 * time.Millisecond

// glance is between two looks at a sidecar.
const glance = 250 * time.Microsecond

// made is a change that was made.
type made struct {
	app     string
	ready   bool
	began   time.Time
	sidecar time.Duration // until the sidecar decided by it
}

// change has apps of the peers change at a steady rate: one instance each goes, and all
// of them come back.
func (b *bench) change(ctx context.Context) (err error) {
	measure.Progress("%s: %d changes", b.size, b.changes)
	sidecar, err := b.sidecar(ctx)
	if err != nil {
		return err
	}
	defer sidecar.Close()
	if _, err := measure.Ask[[]sight](b.child, "Seen", nil); err != nil {
		return err
	}
	if err := b.meter.start(); err != nil {
		return err
	}
	all := make([]made, b.changes)
	group, inner := errgroup.WithContext(ctx)
	for k := range all {
		next := time.Now().Add(changeEvery)
		group.Go(func() error { return b.makeChange(inner, sidecar, k, &all[k]) })
		if err := measure.Pause(inner, time.Until(next)); err != nil {
			break // what went wrong comes of Wait
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	_, used, _, err := b.meter.stop()
	if err != nil {
		return err
	}
	b.changeCPU = used / time.Duration(b.changes)
	return b.match(all)
}

// makeChange makes the k-th change, and waits until the sidecar decides by it.
func (b *bench) makeChange(ctx context.Context, sidecar *nameresolution.Resolver, k int, m *made) error {
	half := b.changes / 2
	which := k % half
	p := b.peers[which%len(b.peers)]
	app := appOf(p.name, which/len(b.peers))
	*m = made{app: app.ID, ready: k >= half, began: time.Now()}
	if _, err := p.Topology.Apply(ctx, flip(p.name, which/len(b.peers), m.ready)); err != nil {
		return err
	}
	for {
		_, err := sidecar.ResolveID(ctx, app)
		if m.sidecar = time.Since(m.began); (err == nil) == m.ready {
			return ctx.Err()
		}
		if m.sidecar > measure.Patience {
			return fmt.Errorf("the sidecar has not learned within %s that %s is ready (%t): %w", measure.Patience, app, m.ready, err)
		}
		time.Sleep(glance)
	}
}

// match finds when each change was in the watcher's view.
func (b *bench) match(all []made) error {
	sights, err := measure.Ask[[]sight](b.child, "Seen", nil)
	if err != nil {
		return err
	}
	first := map[made]int64{}
	for _, s := range sights {
		key := made{app: s.App, ready: s.Ready}
		if first[key] == 0 {
			first[key] = s.At
		}
	}
	for _, m := range all {
		at := first[made{app: m.app, ready: m.ready}]
		if at == 0 {
			return fmt.Errorf("the view never had it that %s is ready (%t)", m.app, m.ready)
		}
		b.decided = append(b.decided, time.Duration(at-m.began.UnixNano()))
		b.resolved = append(b.resolved, m.sidecar)
	}
	return nil
}

// sidecar is the watcher's resolver, as daprd would have loaded it, once it has a view.
func (b *bench) sidecar(ctx context.Context) (*nameresolution.Resolver, error) {
	address, err := measure.Ask[string](b.child, "Address", nil)
	if err != nil {
		return nil, err
	}
	self := netip.MustParseAddrPort("10.255.0.1:50002")
	r, err := resolver.Sidecar(ctx, ours, address, b.certificates.Identity(watcher), catalog.Instance{App: watcher, Address: self})
	if err != nil {
		return nil, err
	}
	_, err = r.ResolveID(ctx, appOf(peerName(0), 0))
	return r, err
}
