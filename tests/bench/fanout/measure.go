package main

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
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

// served is a server with its sidecars, and what was measured of it.
type served struct {
	result
	server *measure.Child
	changer
	all, reached sidecars
}

// changer changes the address of the one instance of app 0.
type changer interface {
	flip(context.Context) error // returns as soon as the change is on its way
	address() string            // since the last flip
	close()
}

// once measures one service, which it starts and ends, and by turns a bare server.
func once(ctx context.Context, p plan, o occasion) (r, floor result, err error) {
	service, bare := &served{result: result{name: o.String()}}, &served{result: result{name: "the same, a bare gRPC server"}}
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
		defer func() { err = errors.Join(err, service.close(), bare.close()) }()
		address, err := service.start(ctx, "service", dir)
		if err != nil {
			return err
		}
		measure.Progress("%s: the service is ready after %s; connecting %d sidecars", service.name, service.ready.Round(time.Millisecond), p.streams)
		if service.changer, err = newFlipper(at, address); err != nil {
			return err
		}
		if err := service.connect(ctx, p, o, at, address); err != nil {
			return err
		}
		if address, err = bare.start(ctx, "bare", bareArgument{at, o.callers}); err != nil {
			return err
		}
		bare.changer = &bareFlipper{server: bare.server}
		if err := bare.connect(ctx, p, o, at, address); err != nil {
			return err
		}
		return byTurns(ctx, p, service, bare)
	})
	return service.result, bare.result, err
}

// start starts a server, and returns its address once it is ready.
func (s *served) start(ctx context.Context, role string, argument any) (address string, err error) {
	began := time.Now()
	if s.server, err = measure.StartChild(ctx, role, argument); err != nil {
		return "", err
	}
	address, err = measure.Ask[string](s.server, "Address", nil)
	s.ready = time.Since(began)
	return address, err
}

// connect connects the sidecars, and waits until those that a change reaches have seen one.
func (s *served) connect(ctx context.Context, p plan, o occasion, at place, address string) (err error) {
	if err := s.flip(ctx); err != nil {
		return err
	}
	if s.all, err = connect(ctx, at, address, p.streams, o.each); err != nil {
		return err
	}
	s.reached = s.all[:o.callers*o.each]
	return s.reached.await(ctx, s.address())
}

func (s *served) close() error {
	s.all.close()
	if s.changer != nil {
		s.changer.close()
	}
	if s.server == nil {
		return nil
	}
	return s.server.Stop()
}

// collectEvery is after how many changes the garbage of this process is collected.
const collectEvery = 10

// byTurns measures the changes of several servers, one after the other. The sidecars are 1,000
// processes elsewhere. Here they are one, whose collector would stop all of them for one's garbage.
// So it works between changes, when nothing is measured.
func byTurns(ctx context.Context, p plan, servers ...*served) error {
	time.Sleep(2 * time.Second) // the snapshot of instances is written meanwhile
	measure.Progress("%s: measuring %d changes", servers[0].name, p.changes)
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for n := range p.changes {
		if n%collectEvery == 0 {
			runtime.GC()
		}
		for _, s := range servers {
			if err := s.change(ctx); err != nil {
				return err
			}
		}
	}
	for _, s := range servers {
		s.serviceCPU /= time.Duration(p.changes)
		s.sidecarsCPU /= time.Duration(p.changes)
		s.rss, s.peak = measure.Resident(s.server.PID())
	}
	return nil
}

// pause is between two changes.
const pause = 40 * time.Millisecond

func (s *served) change(ctx context.Context) error {
	own := measure.OwnCPU()
	spent, err := measure.Spent(s.server.PID(), func() error {
		began := time.Now()
		if err := s.flip(ctx); err != nil {
			return err
		}
		seen, err := s.reached.watch(ctx, s.address(), began)
		if err != nil {
			return err
		}
		s.first = append(s.first, measure.Quantile(seen, 0))
		s.median = append(s.median, measure.Median(seen))
		s.last = append(s.last, measure.Quantile(seen, 1))
		time.Sleep(pause)
		return nil
	})
	s.serviceCPU += spent
	s.sidecarsCPU += measure.OwnCPU() - own
	return err
}
