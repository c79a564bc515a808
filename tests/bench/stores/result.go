package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// result is what was measured of one store, which is still up.
type result struct {
	name    string
	subject *subject
	service *service
	series  []*series
	ready   []time.Duration
	rss     uint64
	at      [2]count // before and after the rest
}

// once measures a store. What it returns has to be closed.
func once(ctx context.Context, dir string, p plan, k kind) (r *result, err error) {
	r = &result{name: k.name}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
			r = nil
		}
	}()
	dir = filepath.Join(dir, strings.ReplaceAll(k.name, "/", "-"))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return r, err
	}
	measure.Progress("%s: starting the server", k.name)
	if r.subject, err = k.start(ctx, dir); err != nil {
		return r, err
	}
	measure.Progress("%s: writing %d objects", k.name, p.objects)
	began := time.Now()
	if err := r.subject.fill(ctx, objects(p.objects)); err != nil {
		return r, fmt.Errorf("fill: %w", err)
	}
	measure.Progress("%s: written in %s; starting the service", k.name, time.Since(began).Round(10*time.Millisecond))
	for range p.starts {
		if r.service != nil {
			if err := r.service.stop(); err != nil {
				return r, err
			}
		}
		if r.service, err = startService(ctx, dir, r.subject.settings); err != nil {
			return r, err
		}
		r.ready = append(r.ready, r.service.ready)
	}
	if err := r.settle(ctx); err != nil {
		return r, err
	}
	return r, r.follow(ctx, p)
}

// settle waits until the service leaves the store alone but for its heartbeats.
func (r *result) settle(ctx context.Context) error {
	if r.subject.requests == nil {
		return nil
	}
	const window, few, most = 2 * time.Second, 5, time.Minute
	last := -1
	for began := time.Now(); ; time.Sleep(window) {
		now, err := r.subject.requests(ctx)
		if err != nil {
			return fmt.Errorf("count requests: %w", err)
		}
		if last >= 0 && now-last < few {
			return nil
		}
		if last = now; time.Since(began) > most {
			return fmt.Errorf("%w: the service still asks the store after %s", errBusy, most)
		}
	}
}

var errBusy = errors.New("does not come to rest")

// follow measures changes.
func (r *result) follow(ctx context.Context, p plan) (err error) {
	m := &meter{}
	if m.sidecars, err = connect(ctx, r.service.address); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.sidecars.close()) }()
	var end func() error
	if m.bare, end, err = watchBare(ctx, r.subject); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	a, err := newApplier(r.service.address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.conn.Close()) }()
	if n, err := a.objects(ctx); err != nil || n != p.objects {
		return errors.Join(fmt.Errorf("the service has %d objects, not %d", n, p.objects), err)
	}
	for _, way := range []struct {
		by  string
		put func(context.Context, catalog.Object) error
	}{{"isthmus apply", a.put}, {"by hand", r.subject.put}} {
		if way.put == nil {
			continue
		}
		measure.Progress("%s: measuring %d changes, %s", r.name, p.changes, way.by)
		s, err := m.measure(ctx, way.by, p.changes, way.put)
		if err != nil {
			return err
		}
		r.series = append(r.series, s)
	}
	return nil
}

func (r *result) close() error {
	var errs []error
	if r.service != nil {
		errs = append(errs, r.service.stop())
	}
	if r.subject != nil {
		errs = append(errs, r.subject.close())
	}
	return errors.Join(errs...)
}
