package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
	"github.com/isthmus-mesh/isthmus/tests/bench/resolver"
)

// bench is one column while it is measured.
type bench struct {
	plan
	*result
	certificates resolver.Certificates
	child        *measure.Child
	meter        *meter
	peers        []*peer
}

// watched is how many apps of each peer change.
func (b *bench) watched() int { return (b.changes/2 + b.size.Peers - 1) / b.size.Peers }

// measureSize measures one service, which it starts and ends, with its peers.
func measureSize(ctx context.Context, p plan, s size) (*result, error) {
	b := &bench{plan: p, result: &result{size: s}}
	err := measure.WithDirectory(func(dir string) (err error) {
		b.certificates = resolver.Certificates(dir)
		apps := []catalog.App{identity.ServiceApp("", ours), watcher}
		for i := range s.Peers {
			apps = append(apps, identity.ServiceApp("", peerName(i)))
		}
		if err := b.certificates.Issue(apps...); err != nil {
			return err
		}
		if b.child, err = measure.StartChild(ctx, "service", start{b.certificates, exports}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.child.Stop()) }()
		b.meter = &meter{pid: b.child.PID()}

		ctx, cancel := context.WithCancel(ctx)
		defer func() {
			cancel()
			for _, p := range b.peers {
				err = errors.Join(err, p.stop())
			}
		}()
		for _, step := range []func(context.Context) error{
			b.start, b.connect, b.idle, b.change, b.changeOwn, b.reconnect, b.lapse,
		} {
			if err := step(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	return b.result, err
}

// meter tells how much CPU time the service uses beyond what it does at rest, and this
// program with all peers.
type meter struct {
	pid        int
	rest       float64 // of the service, CPU time for each time that passes
	began      time.Time
	used, self time.Duration
}

func (m *meter) start() (err error) {
	m.used, err = measure.CPU(m.pid)
	m.self, m.began = measure.OwnCPU(), time.Now()
	return err
}

func (m *meter) stop() (took, service, peers time.Duration, err error) {
	used, err := measure.CPU(m.pid)
	took = time.Since(m.began)
	service = used - m.used - time.Duration(m.rest*float64(took))
	return took, max(0, service), measure.OwnCPU() - m.self, err
}

// start starts the peers, which ask what is exported to them, and are not asked yet.
func (b *bench) start(ctx context.Context) error {
	measure.Progress("%s: starting", b.size)
	if _, err := measure.Ask[none](b.child, "Fill", [2]int{b.size.Peers, b.watched()}); err != nil {
		return err
	}
	address, err := measure.Ask[string](b.child, "PeerAddress", nil)
	if err != nil {
		return err
	}
	if b.alone, err = measure.Ask[measure.Memory](b.child, "Memory", nil); err != nil {
		return err
	}
	for i := range b.size.Peers {
		p, err := startPeer(ctx, b.certificates, peerName(i), address, b.size.Others)
		if err != nil {
			return err
		}
		b.peers = append(b.peers, p)
	}
	for _, p := range b.peers {
		if err := p.hears(ctx); err != nil {
			return err
		}
	}
	b.asked, err = measure.Ask[measure.Memory](b.child, "Memory", nil)
	return err
}

// connect has the service ask its peers: all but one of them at once, and then that one.
func (b *bench) connect(ctx context.Context) (err error) {
	measure.Progress("%s: connecting", b.size)
	if err := b.meter.start(); err != nil {
		return err
	}
	last := b.peers[len(b.peers)-1]
	var links []link
	for _, p := range b.peers[:len(b.peers)-1] {
		links = append(links, link{p.name, p.PeerAddress()})
	}
	if b.startTook, err = measure.Ask[time.Duration](b.child, "Link", links); err != nil {
		return err
	}
	if _, b.startCPU, _, err = b.meter.stop(); err != nil {
		return err
	}
	if err := b.meter.start(); err != nil {
		return err
	}
	if b.firstTook, err = measure.Ask[time.Duration](b.child, "Link", []link{{last.name, last.PeerAddress()}}); err != nil {
		return err
	}
	if err := measure.Pause(ctx, 100*time.Millisecond); err != nil {
		return err
	}
	b.firstIn, b.firstOut = last.asked.out.load(), last.asked.in.load()
	if _, b.firstCPU, _, err = b.meter.stop(); err != nil {
		return err
	}
	if err := measure.Pause(ctx, time.Second); err != nil {
		return err
	}
	b.linked, err = measure.Ask[measure.Memory](b.child, "Memory", nil)
	return err
}

// traffic is that of all peers.
func (b *bench) traffic() (in, out count) {
	for _, p := range b.peers {
		i, o := p.traffic()
		in, out = in.plus(i), out.plus(o)
	}
	return in, out
}

// idle measures while nothing happens that concerns the service.
func (b *bench) idle(ctx context.Context) error {
	measure.Progress("%s: at rest", b.size)
	if err := measure.Pause(ctx, time.Second); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var elsewhere sync.WaitGroup
	elsewhere.Go(func() { b.changeOthers(ctx) })
	defer elsewhere.Wait()
	defer cancel()
	in, out := b.traffic()
	if err := b.meter.start(); err != nil {
		return err
	}
	if err := measure.Pause(ctx, b.rest); err != nil {
		return err
	}
	took, used, _, err := b.meter.stop()
	if err != nil {
		return err
	}
	inNow, outNow := b.traffic()
	for _, p := range b.peers {
		b.connections += p.connections()
	}
	b.restIn, b.restOut, b.restTook = inNow.less(in), outNow.less(out), took
	b.meter.rest = used.Seconds() / took.Seconds()
	b.restCPU = b.meter.rest
	return nil
}

// othersEvery is how often an app changes that is exported to others only.
const othersEvery = 10 * time.Millisecond

// changeOthers has apps change that are exported to others only, until ctx ends.
func (b *bench) changeOthers(ctx context.Context) {
	for i := 0; b.size.Others > 0 && measure.Pause(ctx, othersEvery) == nil; i++ {
		p := b.peers[i%len(b.peers)]
		n := i / len(b.peers)
		if _, err := p.Topology.Apply(ctx, flip(p.name, exports+n/2%b.size.Others, n%2 == 1)); err != nil {
			return // ctx has ended
		}
	}
}

// ownEvery is how often one of the service's own apps changes.
const ownEvery = 50 * time.Millisecond

// changeOwn has apps of the service change, of which all peers are told.
func (b *bench) changeOwn(ctx context.Context) error {
	measure.Progress("%s: %d changes of our own", b.size, b.own)
	if err := b.meter.start(); err != nil {
		return err
	}
	_, before := b.traffic()
	if _, err := measure.Ask[none](b.child, "Change", changes{b.own, ownEvery}); err != nil {
		return err
	}
	if err := measure.Pause(ctx, 100*time.Millisecond); err != nil {
		return err
	}
	took, used, _, err := b.meter.stop()
	_, out := b.traffic()
	b.ownCPU = used / time.Duration(b.own)
	b.ownOut = max(0, out.less(before).Bytes-b.restBytes(b.restOut, took)) / int64(b.own)
	return err
}

// restBytes are the bytes that would have gone by in a time with nothing happening.
func (b *bench) restBytes(rest count, took time.Duration) int64 {
	return int64(float64(rest.Bytes) * took.Seconds() / b.restTook.Seconds())
}

// lapse has the first peer go, and come back.
func (b *bench) lapse(ctx context.Context) (err error) {
	measure.Progress("%s: a cluster goes, and comes back", b.size)
	p := b.peers[0]
	if b.gone, b.goneSpread, b.goneCPU, err = b.turn(ctx, false, func() error { p.leave(); return nil }); err != nil {
		return err
	}
	if err := measure.Pause(ctx, time.Second); err != nil {
		return err
	}
	b.back, b.backSpread, b.backCPU, err = b.turn(ctx, true, p.comeBack)
	return err
}

// turn does something after which the callers may call all that the first peer exports,
// or none of it. It returns after how long the last could, how long after the first that
// was, and the CPU time of the service until all steps of ramps are over.
func (b *bench) turn(ctx context.Context, ready bool, do func() error) (last, spread, used time.Duration, err error) {
	if err := b.meter.start(); err != nil {
		return 0, 0, 0, err
	}
	var r reached
	var waiting errgroup.Group
	waiting.Go(func() (err error) {
		r, err = measure.Ask[reached](b.child, "Await", ready)
		return err
	})
	if err := measure.Pause(ctx, 50*time.Millisecond); err != nil { // it waits by then
		return 0, 0, 0, err
	}
	began := time.Now().UnixNano()
	if err := errors.Join(do(), waiting.Wait()); err != nil {
		return 0, 0, 0, err
	}
	if err := measure.Pause(ctx, rampUp+200*time.Millisecond); err != nil {
		return 0, 0, 0, err
	}
	_, used, _, err = b.meter.stop()
	return time.Duration(r.Last - began), time.Duration(r.Last - r.First), used, err
}
