package stream

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Bounds of the check of restored instances. All checks together take refusesWithin at most,
// which is plenty on a network where hosts answer.
const (
	refusesWithin = 300 * time.Millisecond
	refusesAtOnce = 128
)

// withoutRefusing leaves out restored instances that refuse connections. When a whole machine or
// cluster restarts, the service is up before the sidecars. Without this check, callers would be
// sent to instances that are not started yet. An instance that does not answer stays.
func (s *Server) withoutRefusing(ctx context.Context, former []catalog.Instance) []catalog.Instance {
	if s.cfg.Refuses == nil || len(former) == 0 {
		return former
	}
	limit, cancel := context.WithTimeout(ctx, refusesWithin)
	defer cancel()
	gone := make([]bool, len(former))
	var asking errgroup.Group
	asking.SetLimit(refusesAtOnce)
	for n := range former {
		asking.Go(func() error {
			gone[n] = limit.Err() == nil && s.cfg.Refuses(limit, former[n].Address)
			return nil
		})
	}
	_ = asking.Wait() // no check returns an error
	var there []catalog.Instance
	for n, i := range former {
		if !gone[n] {
			there = append(there, i)
		}
	}
	if left := len(former) - len(there); left > 0 {
		s.log.Info("restored instances dropped, since they refuse connections; they return as their sidecars reconnect", "instances", left)
	}
	return there
}
