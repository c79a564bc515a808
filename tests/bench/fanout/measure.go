package main

import (
	"context"
	"errors"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/tests/bench/fleet"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// result is what was measured over one kind of connections.
type result struct {
	name      string
	ready     time.Duration // from the start of the process until it has everything
	rss, peak uint64        // of the service, with all sidecars connected

	// One value for each change, from when it was sent until so many sidecars saw it.
	first, median, last []time.Duration

	serviceCPU, sidecarsCPU time.Duration // for each change
}

// once measures one service, which it starts and ends.
func once(ctx context.Context, p plan, o occasion) (r result, err error) {
	r.name = o.String()
	p.fleet.Popular = o.callers
	err = measure.WithDirectory(func(dir string) (err error) {
		at := place(dir)
		measure.Progress("writing %d selections and %d instances", p.fleet.Apps, p.fleet.Apps*p.fleet.Instances)
		if err := at.fill(ctx, p.fleet); err != nil {
			return err
		}
		if o.mtls {
			apps := []catalog.App{identity.ServiceApp("", cluster)}
			for i := range p.streams/o.each + 1 {
				apps = append(apps, fleet.App(i))
			}
			if err := at.certificates().Issue(apps...); err != nil {
				return err
			}
		}
		began := time.Now()
		s, err := measure.StartChild(ctx, "service", dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Stop()) }()
		address, err := measure.Ask[string](s, "Address", nil)
		if err != nil {
			return err
		}
		r.ready = time.Since(began)
		return r.connected(ctx, p, o, at, s, address)
	})
	return r, err
}

// connected measures with all sidecars connected.
func (r *result) connected(ctx context.Context, p plan, o occasion, at place, s *measure.Child, address string) error {
	measure.Progress("%s: the service is ready after %s; connecting %d sidecars", r.name, r.ready.Round(time.Millisecond), p.streams)
	f, err := newFlipper(at, address)
	if err != nil {
		return err
	}
	defer f.close()
	if err := f.flip(ctx); err != nil {
		return err
	}
	all, err := connect(ctx, at, address, p.streams, o.each)
	defer all.close()
	if err != nil {
		return err
	}
	reached := all[:o.callers*o.each]
	if err := reached.await(ctx, f.address()); err != nil {
		return err
	}
	time.Sleep(2 * time.Second) // the snapshot of instances is written meanwhile
	measure.Progress("%s: measuring %d changes", r.name, p.changes)
	own := measure.OwnCPU()
	r.serviceCPU, err = measure.Spent(s.PID(), func() error {
		for range p.changes {
			if err := r.change(ctx, f, reached); err != nil {
				return err
			}
		}
		return nil
	})
	r.serviceCPU /= time.Duration(p.changes)
	r.sidecarsCPU = (measure.OwnCPU() - own) / time.Duration(p.changes)
	r.rss, r.peak = measure.Resident(s.PID())
	return err
}

// pause is between two changes.
const pause = 40 * time.Millisecond

func (r *result) change(ctx context.Context, f *flipper, reached sidecars) error {
	began := time.Now()
	if err := f.flip(ctx); err != nil {
		return err
	}
	seen, err := reached.watch(ctx, f.address(), began)
	if err != nil {
		return err
	}
	r.first = append(r.first, measure.Quantile(seen, 0))
	r.median = append(r.median, measure.Median(seen))
	r.last = append(r.last, measure.Quantile(seen, 1))
	time.Sleep(pause)
	return nil
}
