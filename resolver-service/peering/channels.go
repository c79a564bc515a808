package peering

import (
	"context"
	"sync"

	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// talks are the channels of a link.
type channels struct {
	link     *link
	ctx      context.Context
	gateways *gateways
	cancel   context.CancelFunc
	running  sync.WaitGroup

	stopRenewers context.CancelFunc
	renewers     *sync.WaitGroup
}

// startTalking starts the network's part.
func (l *link) startChannels(ctx context.Context, object *catalog.Cluster) *channels {
	ctx, cancel := context.WithCancel(ctx)
	t := &channels{link: l, ctx: ctx, cancel: cancel, gateways: newGateways(object.Gateways)}
	l.status.setGateways(t.gateways)
	exports := &channel{
		link: l, gateways: t.gateways, primary: true, onStart: l.freshness.streamStarted,
	}
	exports.open = func(ctx context.Context, conn *grpc.ClientConn) (receiver, error) {
		return l.openExports(ctx, conn, exports.interval, t.gateways.multiple())
	}
	t.running.Go(func() { exports.run(ctx) })
	t.startRenewers(object)
	return t
}

// startRenewing starts the channels that only renew the lease: three where it is short, so
// that even a path that loses packets, and holds a connection up for seconds, ends none.
func (t *channels) startRenewers(object *catalog.Cluster) {
	ctx, cancel := context.WithCancel(t.ctx)
	t.stopRenewers, t.renewers = cancel, &sync.WaitGroup{}
	number := 1
	if object.StaleAfter < shortLease {
		number = 3
	}
	for range number {
		c := &channel{link: t.link, gateways: t.gateways}
		c.open = func(ctx context.Context, conn *grpc.ClientConn) (receiver, error) {
			return t.link.openRenewals(ctx, conn, c.interval)
		}
		t.renewers.Go(func() { c.run(ctx) })
	}
}

// renew has the peer renew the lease in another rhythm. The channel with the exports
// keeps its own until it is made anew.
func (t *channels) restartRenewers(object *catalog.Cluster) {
	t.stopRenewers()
	t.renewers.Wait()
	t.startRenewers(object)
}

// stop ends the network's part and waits.
func (t *channels) stop() {
	t.cancel()
	t.stopRenewers()
	t.running.Wait()
	t.renewers.Wait()
}
