package peering

import (
	"context"
	"sync"

	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// channels are the connections of a link.
type channels struct {
	link     *link
	ctx      context.Context
	gateways *gateways
	cancel   context.CancelFunc
	running  sync.WaitGroup

	stopRenewers context.CancelFunc
	renewers     *sync.WaitGroup
}

// startChannels starts the network goroutines.
func (l *link) startChannels(ctx context.Context, object *catalog.Cluster) *channels {
	ctx, cancel := context.WithCancel(ctx)
	c := &channels{link: l, ctx: ctx, cancel: cancel, gateways: newGateways(ways(object)), stopRenewers: func() {}, renewers: &sync.WaitGroup{}}
	l.rest.complete = false
	l.status.setGateways(c.gateways)
	exports := &channel{link: l, gateways: c.gateways, primary: true, onStart: l.freshness.streamStarted}
	exports.open = func(ctx context.Context, conn *grpc.ClientConn) (receiver, error) {
		return l.openExports(ctx, conn, exports.interval, c.gateways.multiple())
	}
	c.running.Go(func() { exports.run(ctx) })
	if l.rest.phase == awake {
		c.startRenewers(object)
	}
	return c
}

// startRenewers starts the channels that only renew the lease. A short lease has three, so that
// packet loss which stalls one connection for seconds does not end it.
func (c *channels) startRenewers(object *catalog.Cluster) {
	ctx, cancel := context.WithCancel(c.ctx)
	c.stopRenewers, c.renewers = cancel, &sync.WaitGroup{}
	number := 1
	if object.StaleAfter < shortLease {
		number = 3
	}
	for range number {
		renewer := &channel{link: c.link, gateways: c.gateways}
		renewer.open = func(ctx context.Context, conn *grpc.ClientConn) (receiver, error) {
			return c.link.openRenewals(ctx, conn, renewer.interval)
		}
		c.renewers.Go(func() { renewer.run(ctx) })
	}
}

// restartRenewers renews the lease at another interval. The primary channel keeps its interval
// until its next connection.
func (c *channels) restartRenewers(object *catalog.Cluster) {
	c.stopRenewers()
	c.renewers.Wait()
	c.startRenewers(object)
}

// stop ends the network goroutines and waits for them.
func (c *channels) stop() {
	c.cancel()
	c.stopRenewers()
	c.running.Wait()
	c.renewers.Wait()
}
