package instances

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology/destination"
)

// followed is one source and what it has said.
type followed struct {
	source Source
	log    *slog.Logger
	often  *throttle.Log // for lines that what a source has causes

	mu      sync.Mutex
	has     *inventory
	synced  bool // the full set has come from the source
	told    bool // and has been taken for the topology
	dirty   bool // something came since it was last taken
	heard   time.Time
	since   int      // how often the source has failed
	well    bool     // something came since it failed last
	own     refusals // of the source
	remarks refusals
	known   map[string]bool // refusals that were logged
	status  Status          // as it is published
}

// linesEvery is how often what a source has can cause one and the same line of the log.
const linesEvery = 10 * time.Second

func newFollowed(s Source, limit int, rules *destination.Rules, log *slog.Logger) *followed {
	has := newInventory(limit)
	has.rules = rules
	return &followed{source: s, log: log, often: throttle.New(log, linesEvery), has: has, status: Status{Source: s.Name()}}
}

func (s *followed) current() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// errAgain ends a Watch to read the source anew, since there is room again for what was
// refused for being too many.
var errAgain = errors.New("there is room again; reading the source anew")

// errNoReason is that of a source which breaks its contract.
var errNoReason = errors.New("the source ended without a reason; this is a fault in its code")

// run keeps the source watched until ctx ends.
func (s *followed) run(ctx context.Context, noticed, publish func()) error {
	var backoff configstore.Backoff
	for {
		var heard time.Time
		err := s.source.Watch(ctx, func(c Change) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if heard.IsZero() {
				if !c.Full {
					return errors.New("the first change is not the full set; this is a fault in the source's code")
				}
				heard = time.Now()
			}
			again := s.heardOf(c)
			noticed()
			return again
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			err = errNoReason
		}
		if !errors.Is(err, errAgain) {
			s.failed(err)
			publish()
		}
		if !backoff.Wait(ctx, err, heard) {
			return ctx.Err()
		}
	}
}

// heardOf takes news in.
func (s *followed) heardOf(c Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.has.apply(c)
	s.synced, s.dirty, s.well, s.heard = true, true, true, time.Now()
	s.own, s.remarks = firstOf(c.Refused), firstOf(c.Remarks)
	if !c.Full && s.has.roomAgain() {
		return errAgain
	}
	return nil
}

func (s *followed) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since++
	s.well = false
	if s.status.Err == nil {
		s.status.Since = time.Now()
		s.log.Warn("source of instances can't be read; what stands goes on standing", "instances", len(s.has.instances), "err", err)
	}
	s.status.Err = err
}

// snapshot is what a source has said up to a moment.
type snapshot struct {
	of      *followed
	changes []topology.InstanceChange
	status  Status
	since   int
}

// take is what there is to hand on; nil for nothing.
func (s *followed) take() *snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dirty {
		return nil
	}
	refused := s.own.and(s.has.refusals(maxRefused), len(s.has.refused)).and(s.remarks.first, s.remarks.count)
	n := &snapshot{of: s, changes: s.has.flush(s.source.Name(), s.source.Rank(), !s.told), since: s.since, status: Status{
		Source: s.source.Name(), Ready: true, Instances: len(s.has.instances), Heard: s.heard,
		Refused: refused.first, RefusedCount: refused.count,
	}}
	s.dirty, s.told = false, true
	return n
}

// applied says that the topology has it.
func (n *snapshot) applied() {
	s := n.of
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.status
	s.status = n.status
	if was.Err != nil && (n.since != s.since || !s.well) { // it has failed since
		s.status.Err, s.status.Since = was.Err, was.Since
	} else if was.Err != nil {
		s.log.Info("source of instances is back", "away", time.Since(was.Since).Round(time.Millisecond), "instances", s.status.Instances)
	}
	known := make(map[string]bool, len(s.status.Refused))
	for _, r := range s.status.Refused {
		what := r.Where + "\x00" + r.Err.Error()
		known[what] = true
		if !s.known[what] {
			s.often.Warn(r.Where, "something of a source can't be used, or is not as it should be; the rest stands", "what", r.Where, "err", r.Err)
		}
	}
	s.known = known
	s.log.Debug("instances changed", "changes", fmt.Sprint(len(n.changes)), "instances", s.status.Instances)
}
