package main

import (
	"context"
	"errors"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// settled is how long after a reconnect it is still measured: all that it costs is spent
// by then, renewals included that came along.
const settled = 300 * time.Millisecond

// reconnect cuts all connections between a peer and the service, both ways, again and
// again: first when nothing has changed meanwhile, then once when one app has.
func (b *bench) reconnect(ctx context.Context) error {
	measure.Progress("%s: %d reconnects", b.size, b.reconnects)
	for i := range b.reconnects {
		if err := b.reconnectOnce(ctx, b.peers[i%len(b.peers)]); err != nil {
			return err
		}
	}
	p := b.peers[len(b.peers)-1]
	before, release := p.told.exports.Load(), p.hold()
	p.cut()
	_, err := p.Topology.Apply(ctx, flip(p.name, exports-1, false))
	firsts := p.told.firsts.Load()
	release()
	if err := errors.Join(err, b.again(ctx, p, firsts, -1)); err != nil {
		return err
	}
	b.againChanged = p.told.exports.Load() - before
	return nil
}

func (b *bench) reconnectOnce(ctx context.Context, p *peer) error {
	told, err := measure.Ask[sent](b.child, "Told", nil)
	if err != nil {
		return err
	}
	exports, firsts := p.told.exports.Load(), p.told.firsts.Load()
	in, out := p.traffic()
	if err := b.meter.start(); err != nil {
		return err
	}
	p.cut()
	if err := b.again(ctx, p, firsts, told.Firsts); err != nil {
		return err
	}
	b.reTook = append(b.reTook, time.Since(b.meter.began))
	if err := measure.Pause(ctx, settled); err != nil {
		return err
	}
	took, used, peers, err := b.meter.stop()
	if err != nil {
		return err
	}
	inNow, outNow := p.traffic()
	each := int64(len(b.peers))
	b.reIn += inNow.less(in).Bytes - b.restBytes(b.restIn, took)/each
	b.reOut += outNow.less(out).Bytes - b.restBytes(b.restOut, took)/each
	b.reCPU += used
	b.rePeersCPU += peers
	now, err := measure.Ask[sent](b.child, "Told", nil)
	b.again0 += p.told.exports.Load() - exports + now.Exports - told.Exports
	return err
}

// again waits until the service has been told all by a peer, more often than so many
// times, and the peer by the service; the latter not where it is -1.
func (b *bench) again(ctx context.Context, p *peer, firsts, told int64) error {
	return measure.Await(ctx, p.name+" and the service are connected again", 5*time.Millisecond, func() error {
		if p.told.firsts.Load() <= firsts {
			return errNotHeard
		}
		if told < 0 {
			return nil
		}
		now, err := measure.Ask[sent](b.child, "Told", nil)
		if err == nil && now.Firsts <= told {
			err = errNotHeard
		}
		return err
	})
}
