package objects

import (
	"context"
	"errors"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// addTo adds an object to a change. A guest whose time is over counts as not there.
func addTo(change *topology.ObjectChange, o catalog.Object, now time.Time) {
	if catalog.Ended(o, now) {
		change.Delete = append(change.Delete, o.Key())
	} else {
		change.Put = append(change.Put, o)
	}
}

// clockCheck is how long RunGuests waits at most: somebody may set the clock, or a store has failed.
const clockCheck = time.Minute

// RunGuests ends guests when their time is over, and removes their objects from a store that this
// service may write, until ctx ends.
func (s *Server) RunGuests(ctx context.Context) error {
	told := false
	for {
		clusters, _, changed := s.feed.Clusters().Follow()
		wait, ended := clockCheck, false
		for _, c := range clusters {
			if c.Guest != nil {
				wait = min(wait, max(0, time.Until(c.Guest.Until)))
				ended = ended || catalog.Ended(c, time.Now())
			}
		}
		if ended {
			if err := s.feed.endGuests(ctx); err != nil {
				return nil // the topology has ended
			}
			continue
		}
		if err := s.removeEnded(ctx); err != nil && !told {
			told = true
			s.log.Warn("a guest whose time is over could not be removed from the config store; it counts as not there, and this is tried again", "err", err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		timer.Stop()
	}
}

// endGuests takes guests whose time is over out of the topology, and then out of the Cluster objects.
func (f *Feed) endGuests(ctx context.Context) error {
	f.taking.Lock()
	defer f.taking.Unlock()
	clusters, _ := f.clusters.Load()
	left, change := make([]*catalog.Cluster, 0, len(clusters)), &topology.ObjectChange{}
	for _, c := range clusters {
		if !catalog.Ended(c, time.Now()) {
			left = append(left, c)
			continue
		}
		change.Delete = append(change.Delete, c.Key())
		f.log.Info("guest has left: its time is over", "cluster", c.Name, "until", c.Guest.Until)
	}
	revision, err := f.topology.Apply(ctx, topology.Change{Objects: change})
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.clusters.Store(left)
	f.mu.Unlock()
	f.applied.Store(revision)
	return nil
}

// removeEnded removes the objects of guests whose time is over.
func (s *Server) removeEnded(ctx context.Context) error {
	if s.store == nil {
		return nil
	}
	ctx = identity.WithPerson(ctx, "this service, since the guest's time is over")
	var failed error
	for _, stored := range s.feed.all() {
		if !catalog.Ended(stored.Object, time.Now()) || stored.Object.Origin().From != "" {
			continue
		}
		remove := []configstore.Write{{Delete: stored.Object.Key(), If: stored.Revision}}
		end := s.feed.expect(identity.Caller(ctx), remove)
		_, err := s.store.Write(ctx, remove...)
		end()
		gone := errors.Is(err, configstore.ErrNotFound) || errors.Is(err, configstore.ErrConflict) || errors.Is(err, configstore.ErrReadOnly)
		if err == nil {
			s.log.Info("objects written", "objects", 1, "by", identity.Caller(ctx), "first", stored.Object.Key().String()+" "+deleted)
		} else if !gone {
			failed = err
		}
	}
	return failed
}
