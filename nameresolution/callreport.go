package nameresolution

import (
	"context"
	"errors"
	"maps"
	"time"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// Reports of calls: how often at most, and how many callers one names.
const (
	callReportPause = 5 * time.Second
	maxCallReport   = 400
	lastReportTime  = 200 * time.Millisecond
)

// callReports tells the service who called since the report before, which lookups were refused, and
// whether the guard is loaded, until ctx ends or the stream does, which Recv tells.
func (c *client) callReports(ctx context.Context, ch *channel) {
	tick := time.NewTicker(callReportPause)
	defer tick.Stop()
	c.reportsOn.Store(ch)
	defer c.reportsOn.CompareAndSwap(ch, nil)
	c.forgetUnderWay()
	for {
		if c.reportCalls(ch) != nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// forgetUnderWay has the next report tell of calls under way that have not changed: a service forgets
// those of a stream with its end.
func (c *client) forgetUnderWay() {
	c.reportingCalls.Lock()
	defer c.reportingCalls.Unlock()
	for _, known := range c.toldMade {
		known.underWay = 0
	}
}

// lastReport tells the service of the calls since the report before, before the stream ends. It takes
// at most lastReportTime, since a service that does not read is no reason to stay.
func (c *client) lastReport() {
	ch := c.reportsOn.Load()
	if ch == nil {
		return
	}
	over := time.NewTimer(lastReportTime)
	defer over.Stop()
	sent := make(chan error, 1)
	c.running.Go(func() { sent <- c.reportCalls(ch) })
	select {
	case err := <-sent:
		if err == nil {
			time.Sleep(lastReportTime / 4) // until gRPC has written it: there is no way to ask
		}
	case <-over.C:
	}
}

func (c *client) reportCalls(ch *channel) error {
	c.reportingCalls.Lock()
	defer c.reportingCalls.Unlock()
	if err := errors.Join(c.reportGuard(ch), c.reportRefusals(ch), c.reportMade(ch)); err != nil {
		return err
	}
	now := c.guard.Calls()
	for len(now) > 0 {
		m := &pb.CallReport{}
		sent := map[callKey]Calls{}
		for len(now) > 0 && len(m.Calls) < maxCallReport {
			calls, key := now[0], callKey{now[0].Principal, now[0].Others}
			now = now[1:]
			if count := calls.since(c.reported[key]); count != nil {
				m.Calls = append(m.Calls, count)
				sent[key] = calls
			}
		}
		if len(m.Calls) == 0 {
			continue
		}
		if err := ch.send(&pb.WatchRequest{Request: &pb.WatchRequest_Calls{Calls: m}}); err != nil {
			return err
		}
		for key, calls := range sent {
			c.reported[key] = calls
		}
	}
	return nil
}

// reportGuard tells once that the guard sees the calls that the app gets; reportingCalls is held.
func (c *client) reportGuard(ch *channel) error {
	if ch.toldGuard || c.unguarded {
		return nil
	}
	ch.toldGuard = true
	return ch.send(&pb.WatchRequest{Request: &pb.WatchRequest_Calls{Calls: &pb.CallReport{GuardLoaded: &ch.toldGuard}}})
}

// reportRefusals tells of lookups; reportingCalls is held.
func (c *client) reportRefusals(ch *channel) error {
	now := c.refusals.take()
	if len(now) == 0 {
		return nil
	}
	m := &pb.CallReport{}
	for what, n := range now {
		l := &pb.RefusedLookups{Outcome: what.outcome.String(), Count: n}
		if what.app != (catalog.App{}) {
			l.Callee = wire.App(what.app)
		}
		m.RefusedLookups = append(m.RefusedLookups, l)
	}
	err := ch.send(&pb.WatchRequest{Request: &pb.WatchRequest_Calls{Calls: m}})
	if err != nil {
		c.refusals.giveBack(now)
	}
	return err
}

// reportMade tells of calls that were made; reportingCalls is held.
func (c *client) reportMade(ch *channel) error {
	if c.made == nil {
		return nil
	}
	for left := c.made(); len(left) > 0; {
		m, then, more := madeReport(left, c.toldMade)
		left = more
		if len(m.GetMade()) == 0 {
			continue
		}
		if err := ch.send(&pb.WatchRequest{Request: &pb.WatchRequest_Calls{Calls: m}}); err != nil {
			return err
		}
		maps.Copy(c.toldMade, then)
	}
	return nil
}

// callKey names a caller in reports.
type callKey struct {
	catalog.Principal
	others bool
}

// since is the message for the calls that were not reported yet; nil if there are none.
func (c *Calls) since(before Calls) *pb.CallCount {
	if c.Count == before.Count && c.Traffic == before.Traffic {
		return nil
	}
	m := &pb.CallCount{
		Domain: c.Domain, Cluster: c.Cluster, OwnDomain: c.Own,
		LetIn:    c.Count[LetIn] - before.Count[LetIn],
		Observed: c.Count[Observed] - before.Count[Observed],
		Refused:  c.Count[Refused] - before.Count[Refused] + c.Count[Relayed] - before.Count[Relayed],
		NotReady: c.Count[NotReady] - before.Count[NotReady],
		Relayed:  c.Count[Relayed] - before.Count[Relayed],
	}
	news := c.Traffic.Since(&before.Traffic)
	if m.Traffic = news.Wire(); m.Traffic != nil {
		m.Traffic.Exemplars = c.Exemplars.Since(&before.Exemplars)
	}
	if c.App != (catalog.App{}) {
		m.Caller = wire.App(c.App)
	}
	return m
}
