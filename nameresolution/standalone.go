package nameresolution

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// startStandalone starts to follow the config store, without a service.
func (r *Resolver) startStandalone(ctx context.Context, cfg *config) error {
	if r.opts.Local == nil {
		return errors.New("isthmus configuration: store: this program has no resolvers of Dapr's for local apps; use the resolver service")
	}
	store, err := r.openStore(cfg.Store)
	if err != nil {
		return fmt.Errorf("isthmus configuration: %w", err)
	}
	local, err := r.opts.Local(cfg.Local.Component, cfg.Local.Version, cfg.Local.Configuration)
	if err != nil {
		return errors.Join(fmt.Errorf("isthmus configuration: local: %w", err), store.Close())
	}
	r.locals = newLocals(ctx, r, local)
	file := &lastGood{path: cfg.LastGood, app: r.self.App, cluster: cfg.Cluster, log: r.log}
	if m, age := file.load(); m != nil {
		r.contact.old(age)
		r.locals.rebase(m.view)
	}
	s := &standalone{r: r, plan: &plan{app: r.self.App, cluster: cfg.Cluster, domain: catalog.Domain(cfg.Domain)}}
	follower := configstore.NewFollower(store, s.apply, r.log)
	saving, saved := context.WithCancel(context.Background())
	r.parts.Go(func() {
		defer saved() // only now is there nothing left to save
		// Run ends with ctx; what goes wrong before, the follower logs and mends.
		if err := follower.Run(ctx); ctx.Err() == nil {
			r.contact.lose(err)
		}
		if err := store.Close(); err != nil {
			r.log.Warn("close the config store", "err", err)
		}
	})
	r.parts.Go(func() { s.watch(ctx, follower) })
	if cfg.LastGood != "" {
		r.parts.Go(func() { file.follow(saving, &r.mirrors) })
	}
	return nil
}

// standalone makes and publishes this app's view from a config store.
type standalone struct {
	r *Resolver

	mu   sync.Mutex
	plan *plan
}

func (s *standalone) apply(c configstore.Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan.take(c)
	s.publish(c.Refused)
	return nil
}

// publish serves a view if one can be made that is not served yet.
func (s *standalone) publish(refused []configstore.Refusal) {
	if err := s.plan.blocked(refused); err != nil {
		s.r.contact.lose(err)
		return
	}
	if s.plan.changed {
		s.r.mirrors.Store(&mirror{view: s.r.locals.rebase(s.plan.view())})
	}
	s.r.contact.gain("config store")
}

// watch notes whether the store is being heard, and when a bad object is gone, which
// changes nothing else.
func (s *standalone) watch(ctx context.Context, follower *configstore.Follower) {
	for {
		status, ok, changed := follower.Status().Follow()
		switch {
		case ok && status.Err != nil:
			s.r.contact.lose(fmt.Errorf("config store: %w", status.Err))
		case ok && status.Synced:
			s.mu.Lock()
			s.publish(status.Refused)
			s.mu.Unlock()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
