package objects

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/identity"
)

// applyOptions says how to make a change.
type applyOptions struct {
	dryRun   bool // only report the effects
	withHeld bool // report the objects of before
	inParts  bool // in as many writes as the store needs
}

// change makes the writes, unless it is a dry run, and reports their effects.
func (s *Server) change(ctx context.Context, writes []configstore.Write, how applyOptions) (*v1alpha1.ApplyResponse, error) {
	if s.store == nil {
		return nil, status.Errorf(codes.FailedPrecondition,
			"store %s: %v: this service only reads it; change the objects where it gets them from", s.cfg.Store, configstore.ErrReadOnly)
	}
	if err := configstore.CheckWrites(writes); err != nil {
		return nil, s.explain(err)
	}
	p, err := s.compare(ctx, writes, how.withHeld)
	if err != nil {
		return nil, s.explain(untouched(err))
	}
	answer := &v1alpha1.ApplyResponse{Results: p.results, Warnings: s.warnings(writes)}
	change := s.feed.changeOf(p.writes)
	if err := s.try(ctx, change, objectsOf(writes), answer); err != nil {
		return nil, err
	}
	if how.dryRun {
		return answer, nil
	}
	defer s.feed.expect(identity.Caller(ctx), p.writes)()
	if len(p.writes) > 0 {
		revisions, err := s.write(ctx, p.writes, how.inParts)
		for i, revision := range revisions {
			p.results[p.places[i]].Revision = revision
		}
		s.logWrites(ctx, p, len(revisions))
		if err != nil {
			return nil, s.explain(err)
		}
	}
	if err := s.await(ctx, p.results); err != nil {
		return nil, err
	}
	answer.Revision = s.topology.Revision()
	return answer, nil
}

// mostNamed bounds the objects in a log line.
const mostNamed = 8

// logWrites logs who has written what, for others who meet a conflict. written counts the writes
// that were made, from the first.
func (s *Server) logWrites(ctx context.Context, p *comparison, written int) {
	if written == 0 {
		return
	}
	var names []string
	for _, place := range p.places[:min(written, mostNamed)] {
		r := p.results[place]
		names = append(names, strings.TrimSpace(fmt.Sprintf("%s %s %s", wire.KeyOf(r.GetKey()), r.GetResult(), r.GetRevision())))
	}
	s.log.Info("objects written", "objects", written, "by", identity.Caller(ctx), "first", strings.Join(names, ", "))
}

// write makes all writes at once, or in parts as large as the store accepts. With an error it
// returns the revisions of the parts that were written.
func (s *Server) write(ctx context.Context, writes []configstore.Write, inParts bool) ([]string, error) {
	if !inParts {
		revisions, err := s.store.Write(ctx, writes...)
		if errors.Is(err, configstore.ErrTooLarge) && len(writes) > 1 {
			err = fmt.Errorf("%w; none of the %d changes was written; use --in-parts to write them in several parts", err, len(writes))
		}
		return revisions, untouched(err)
	}
	var revisions []string
	for size := len(writes); len(revisions) < len(writes); {
		begin := len(revisions)
		part := writes[begin:min(begin+size, len(writes))]
		written, err := s.store.Write(ctx, part...)
		if errors.Is(err, configstore.ErrTooLarge) && len(part) > 1 {
			size = (len(part) + 1) / 2 // the store changed nothing
			continue
		}
		if err != nil && begin == 0 {
			return nil, fmt.Errorf("%w; none of %d changes was written: apply again", err, len(writes))
		}
		if err != nil {
			return revisions, fmt.Errorf("%w; %d of %d changes were made before, up to %s: apply again to go on", err, begin, len(writes), lastKey(writes[:begin]))
		}
		revisions = append(revisions, written...)
	}
	return revisions, nil
}

// untouched adds to a conflict that nothing was written.
func untouched(err error) error {
	if errors.Is(err, configstore.ErrConflict) {
		return fmt.Errorf("%w; nothing was written", err)
	}
	return err
}

func lastKey(writes []configstore.Write) string { return writes[len(writes)-1].Key().String() }

// How long an answer waits for lookups to follow a write, unless its caller waits for less, and
// how often it asks the store meanwhile whether the object was overwritten. answerReserve is kept
// of the caller's time, to report how far the change has come.
const (
	followTimeout = 30 * time.Second
	answerReserve = time.Second
	pollInterval  = 500 * time.Millisecond
)

// followLimit is how long an answer waits.
func followLimit(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return followTimeout
	}
	left := time.Until(deadline)
	return min(left-min(left/4, answerReserve), followTimeout)
}

// await waits until lookups follow the written objects, and the unchanged ones.
func (s *Server) await(ctx context.Context, results []*v1alpha1.ApplyResult) error {
	waits := followLimit(ctx)
	ctx, cancel := context.WithTimeout(ctx, waits)
	defer cancel()
	for _, r := range results {
		revision := r.GetRevision()
		if r.GetResult() == deleted {
			revision = configstore.Absent
		}
		if err := s.awaitOne(ctx, wire.KeyOf(r.GetKey()), revision); err != nil {
			return status.Errorf(codes.DeadlineExceeded, "store %s: %s was written, but lookups do not follow it yet: %s; see isthmus status",
				s.cfg.Store, wire.KeyOf(r.GetKey()), s.lag(waits))
		}
	}
	return nil
}

func (s *Server) awaitOne(ctx context.Context, key catalog.Key, revision string) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		_, _, moved := s.feed.applied.Follow()
		if s.feed.revision(key) == revision {
			return nil
		}
		select {
		case <-moved:
		case <-ticker.C:
			if s.overwritten(ctx, key, revision) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// overwritten tells whether the store has another revision by now.
func (s *Server) overwritten(ctx context.Context, key catalog.Key, revision string) bool {
	held, err := s.store.Get(ctx, key)
	switch {
	case errors.Is(err, configstore.ErrNotFound):
		return revision != configstore.Absent
	case errors.Is(err, configstore.ErrInvalid):
		return true // by an object that lookups never follow
	case err != nil:
		return false
	}
	return held.Revision != revision
}

func (s *Server) lag(waited time.Duration) string {
	if err := s.feed.Status().Err; err != nil {
		return fmt.Sprintf("the store can't be watched: %v", err)
	}
	return fmt.Sprintf("nothing was heard of it within %s", waited.Round(time.Millisecond))
}
