package stream

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Bounds on looking for the instances of before a restart: all of them together wait for
// no longer than presentWithin, which is much on a network where somebody answers.
const (
	refusesWithin = 300 * time.Millisecond
	refusesAtOnce = 128
)

// present leaves out instances that are gone for certain. When a whole machine or cluster
// starts again, the service is there before its sidecars: without this, callers would be
// sent to what is still to start. One that nobody answers for stands, as before.
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
	_ = asking.Wait() // nothing fails
	var there []catalog.Instance
	for n, i := range former {
		if !gone[n] {
			there = append(there, i)
		}
	}
	if left := len(former) - len(there); left > 0 {
		s.log.Info("instances of before the restart are gone: their sidecars refuse connections; they stand again as those come back", "instances", left)
	}
	return there
}
