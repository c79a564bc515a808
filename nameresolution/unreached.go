package nameresolution

import (
	"context"
	"strings"
	"time"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// Unreached is a gateway of a cluster, or an app behind it, that calls of this sidecar don't
// get to.
type Unreached struct {
	Cluster, Gateway string      // the gateway's address; empty for all of the cluster
	App              catalog.App // zero: whatever is behind the gateway
	Since            time.Time
	Why              string
}

// ReportUnreached tells the resolver service all that this sidecar does not reach, each time
// that it changes; it takes the place of the report before. What a probe still does not reach
// belongs in it also while views lead elsewhere for it: a report without it says that it is
// reached again. It waits for nothing and keeps a copy. Without a service it does nothing.
func (r *Resolver) ReportUnreached(all []Unreached) {
	if r.client == nil {
		return
	}
	m := &pb.Unreached{}
	for _, u := range all[:min(len(all), maxUnreached)] {
		why := catalog.Clip(strings.ToValidUTF8(u.Why, "?"), maxWhy)
		e := &pb.UnreachedGateway{Cluster: u.Cluster, Gateway: u.Gateway, Why: why, ForMs: uint64(max(0, time.Since(u.Since)).Milliseconds())}
		if u.App != (catalog.App{}) {
			e.App = wire.App(u.App)
		}
		m.All = append(m.All, e)
	}
	r.client.reporting.Lock()
	defer r.client.reporting.Unlock()
	r.client.unreached.Store(&report{m, time.Now()})
}

// Bounds of a report, as services take them.
const (
	maxUnreached = 64
	maxWhy       = 250 // bytes
)

// reportPause is the least time between two reports on a stream.
const reportPause = 200 * time.Millisecond

// report is what is not reached, as of a moment.
type report struct {
	*pb.Unreached
	at time.Time
}

// message is the report as of now.
func (r *report) message() *pb.WatchRequest {
	m := &pb.Unreached{}
	for _, e := range r.All {
		m.All = append(m.All, &pb.UnreachedGateway{
			Cluster: e.Cluster, Gateway: e.Gateway, App: e.App, Why: e.Why, ForMs: e.ForMs + uint64(time.Since(r.at).Milliseconds()),
		})
	}
	return &pb.WatchRequest{Request: &pb.WatchRequest_Unreached{Unreached: m}}
}

// reports sends the report that stands, and each that takes its place, until ctx ends or the
// stream does, which Recv tells.
func (c *client) reports(ctx context.Context, ch *channel) {
	for {
		now, _, changed := c.unreached.Follow()
		if now != nil && ch.send(now.message()) != nil {
			return
		}
		select {
		case <-time.After(reportPause):
		case <-ctx.Done():
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
