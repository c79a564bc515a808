package nameresolution

import (
	"context"
	"slices"
	"strings"
	"time"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
)

// tapPause is how often single calls are told of, while somebody looks.
const tapPause = 250 * time.Millisecond

// takeTap has single calls told of on a channel: some of them, so many a second, or none any more.
func (c *client) takeTap(from *channel, m *pb.TapSidecar) {
	if c.endTap != nil {
		c.endTap()
		c.endTap = nil
	}
	if c.tap == nil || m.GetPerSecond() == 0 {
		return
	}
	ctx, cancel := context.WithCancel(from.life)
	end := c.tap.Set(m.GetPerSecond(), func(call *traffic.Call) bool {
		caller, callee := c.app, call.Peer
		if call.ByCallee {
			caller, callee = callee, caller
		}
		return slices.ContainsFunc(m.GetFilters(), func(f *pb.TapFilter) bool {
			return wire.Passes(f.GetCaller(), caller) && wire.Passes(f.GetCallee(), callee)
		})
	})
	c.endTap = func() {
		end()
		cancel()
	}
	c.running.Go(func() {
		defer end()
		tick := time.NewTicker(tapPause)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if calls, left := c.tap.Take(); len(calls)+int(left) > 0 {
				if from.send(&pb.WatchRequest{Request: &pb.WatchRequest_Tapped{Tapped: c.tapped(calls, left)}}) != nil {
					return
				}
			}
		}
	})
}

// tapped is the message of single calls.
func (c *client) tapped(calls []traffic.Call, left uint64) *pb.TappedCalls {
	m := &pb.TappedCalls{LeftOut: left}
	for i := range calls {
		call := &calls[i]
		t := &pb.TappedCall{
			AtUnixMs: call.At.UnixMilli(), Cluster: call.Cluster, Address: call.Address, ByCallee: call.ByCallee, Attempts: uint32(call.Attempts),
			End: call.End.String(), Code: call.Code, TookUs: call.Took.Microseconds(), TraceId: call.TraceID,
		}
		for _, e := range call.Earlier {
			t.Earlier = append(t.Earlier, &pb.TappedTry{Cluster: e.Cluster, Address: e.Address, Failed: strings.ToValidUTF8(e.Failed, "?")})
		}
		for _, p := range call.Passed {
			t.Passed = append(t.Passed, &pb.TappedRoute{Cluster: p.Cluster, Why: strings.ToValidUTF8(p.Why, "?")})
		}
		if call.Peer != (catalog.App{}) {
			t.Callee = wire.App(call.Peer)
		}
		if call.ByCallee {
			t.Caller, t.Callee, t.CallerCluster, t.Cluster = t.GetCallee(), nil, call.Cluster, ""
		}
		m.Calls = append(m.Calls, t)
	}
	return m
}
