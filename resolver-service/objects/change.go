package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// The results of a write.
const (
	created   = "created"
	changed   = "changed"
	unchanged = "unchanged"
	deleted   = "deleted"
)

// plan is what a request comes to, given what the store holds.
type plan struct {
	results []*v1alpha1.ApplyResult
	writes  []configstore.Write // those that change something
	places  []int               // of each write among the results
}

// change makes the writes, unless it is a dry run, and says what becomes of them.
func (s *Server) change(ctx context.Context, writes []configstore.Write, dryRun bool) (*v1alpha1.ApplyResponse, error) {
	if s.store == nil {
		return nil, status.Errorf(codes.FailedPrecondition,
			"store %s: %v: this service only reads it; change the objects where it gets them from", s.cfg.Store, configstore.ErrReadOnly)
	}
	if err := configstore.CheckWrites(writes); err != nil {
		return nil, s.explain(err)
	}
	p, err := s.plan(ctx, writes)
	if err != nil {
		return nil, s.explain(err)
	}
	answer := &v1alpha1.ApplyResponse{Results: p.results}
	if answer.Effects, err = s.try(ctx, p.writes); err != nil {
		return nil, err
	}
	if dryRun {
		return answer, nil
	}
	if len(p.writes) > 0 {
		revisions, err := s.store.Write(ctx, p.writes...)
		if err != nil {
			return nil, s.explain(err)
		}
		for i, revision := range revisions {
			p.results[p.places[i]].Revision = revision
		}
		s.log.Info("objects written", "objects", len(p.writes))
	}
	if err := s.await(ctx, p.results); err != nil {
		return nil, err
	}
	answer.Revision = s.topology.Revision()
	return answer, nil
}

// plan compares the writes with what the store holds, and leaves out those that would
// change nothing.
func (s *Server) plan(ctx context.Context, writes []configstore.Write) (*plan, error) {
	p := &plan{}
	var refused []error
	get, err := s.reader(ctx, len(writes))
	if err != nil {
		return nil, err
	}
	for _, w := range writes {
		held, err := get(w.Key())
		revision := held.Revision
		switch {
		case errors.Is(err, configstore.ErrNotFound):
			revision = configstore.Absent
		case errors.Is(err, configstore.ErrInvalid):
			// What is there can't be used, so it may be replaced or deleted.
		case err != nil:
			return nil, err
		}
		if err := w.CheckIf(revision); err != nil {
			refused = append(refused, err)
			continue
		}
		p.add(w, held)
	}
	return p, errors.Join(refused...)
}

// few is for how many objects the store is asked one by one. A store of files reads
// all of them for each.
const few = 8

// reader is Get of the store, for that many objects.
func (s *Server) reader(ctx context.Context, objects int) (get func(catalog.Key) (configstore.Stored, error), err error) {
	if objects <= few {
		return func(key catalog.Key) (configstore.Stored, error) { return s.store.Get(ctx, key) }, nil
	}
	stored, refusals, err := s.store.List(ctx)
	if err != nil {
		return nil, err
	}
	held := make(map[catalog.Key]configstore.Stored, len(stored))
	for _, o := range stored {
		held[o.Object.Key()] = o
	}
	invalid := make(map[catalog.Key]bool, len(refusals))
	for _, r := range refusals {
		invalid[r.Key] = true
	}
	return func(key catalog.Key) (configstore.Stored, error) {
		if invalid[key] {
			return configstore.Stored{}, configstore.ErrInvalid
		}
		if o, ok := held[key]; ok {
			return o, nil
		}
		return configstore.Stored{}, configstore.ErrNotFound
	}, nil
}

func (p *plan) add(w configstore.Write, held configstore.Stored) {
	result := &v1alpha1.ApplyResult{Key: keyToWire(w.Key()), Result: changed, Revision: held.Revision}
	switch {
	case w.Object == nil:
		result.Result = deleted
	case held.Object == nil:
		result.Result = created
	case bytes.Equal(api.EncodeJSON(w.Object), api.EncodeJSON(held.Object)):
		result.Result = unchanged
	}
	p.results = append(p.results, result)
	if result.Result != unchanged {
		p.writes = append(p.writes, w)
		p.places = append(p.places, len(p.results)-1)
	}
}

// try tells which decisions the writes would change.
func (s *Server) try(ctx context.Context, writes []configstore.Write) ([]*v1alpha1.Effect, error) {
	change := &topology.ObjectChange{}
	for _, w := range writes {
		if w.Object != nil {
			change.Put = append(change.Put, w.Object)
		} else {
			change.Delete = append(change.Delete, w.Delete)
		}
	}
	effects, err := s.topology.Try(ctx, topology.Change{Objects: change})
	if errors.Is(err, topology.ErrNotSynced) {
		return nil, status.Errorf(codes.FailedPrecondition, "%v; see isthmus status", err)
	}
	if err != nil {
		return nil, s.explain(err)
	}
	all := make([]*v1alpha1.Effect, len(effects))
	for i := range effects {
		all[i] = effectToWire(&effects[i])
	}
	return all, nil
}

// How long an answer waits for lookups to follow a write, and how often the store is
// asked meanwhile whether somebody else has written over it.
const (
	followTimeout = 5 * time.Second
	askAgain      = 500 * time.Millisecond
)

// await waits until lookups follow what the store holds by now, also where that was
// there before.
func (s *Server) await(ctx context.Context, results []*v1alpha1.ApplyResult) error {
	ctx, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	for _, r := range results {
		revision := r.GetRevision()
		if r.GetResult() == deleted {
			revision = configstore.Absent
		}
		if err := s.awaitOne(ctx, keyFromWire(r.GetKey()), revision); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) awaitOne(ctx context.Context, key catalog.Key, revision string) error {
	ticker := time.NewTicker(askAgain)
	defer ticker.Stop()
	for {
		_, _, moved := s.feed.moved.Follow()
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
			return status.Errorf(codes.DeadlineExceeded,
				"store %s: %s was written, but lookups do not follow it yet: %s; see isthmus status", s.cfg.Store, key, s.lag())
		}
	}
}

// overwritten tells whether the store holds another revision by now.
func (s *Server) overwritten(ctx context.Context, key catalog.Key, revision string) bool {
	held, err := s.store.Get(ctx, key)
	switch {
	case errors.Is(err, configstore.ErrNotFound):
		return revision != configstore.Absent
	case err != nil:
		return false
	}
	return held.Revision != revision
}

func (s *Server) lag() string {
	if err := s.feed.Status().Err; err != nil {
		return fmt.Sprintf("the store can't be watched: %v", err)
	}
	return fmt.Sprintf("nothing was heard of it within %s", followTimeout)
}
