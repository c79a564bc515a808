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
	if r.local, err = r.opts.Local(cfg.Local.Component, cfg.Local.Version, cfg.Local.Configuration); err != nil {
		return errors.Join(fmt.Errorf("isthmus configuration: local: %w", err), store.Close())
	}
	file := &lastGood{path: cfg.LastGood, app: r.self.App, cluster: cfg.Cluster, log: r.log}
	p := &plan{app: r.self.App, cluster: cfg.Cluster, domain: catalog.Domain(cfg.Domain)}
	if m, age := file.load(); m != nil {
		r.contact.old(age)
		p.revision = m.revision()
		r.serve(&served{m.view, withoutLocal(m.view)})
	}
	s := &standalone{r: r, plan: p}
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
		v := s.plan.view()
		s.r.serve(&served{v, withoutLocal(v)})
		s.r.mirrors.Store(&mirror{view: v})
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

// resolveStandalone is a lookup without a service: an app of this cluster is the local
// resolver's to find, and what it does not find is sought in the other clusters.
func (r *Resolver) resolveStandalone(ctx context.Context, s *served, app catalog.App) (string, error) {
	entry, ok := s.view.Entries.Get(app)
	if !ok && !s.view.Open {
		return s.view.Resolve(app)
	}
	if ok {
		address, route := entry.Pick()
		if address != "" {
			return address, nil
		}
		if route == nil {
			return "", entry.Refusal()
		}
	}
	address, err := r.askLocal(ctx, app)
	if err == nil {
		return address, nil
	}
	return r.beyondLocal(s, app, err)
}

// askLocal asks the local resolver, for which finding nothing is an error here.
func (r *Resolver) askLocal(ctx context.Context, app catalog.App) (string, error) {
	address, err := r.local.ResolveID(ctx, app, r.self.Port)
	if err == nil && address == "" {
		err = errors.New("it found nothing")
	}
	if err != nil {
		return "", fmt.Errorf("local resolver: %w", err)
	}
	return address, nil
}

// beyondLocal is a lookup for which the local resolver has found nothing.
func (r *Resolver) beyondLocal(s *served, app catalog.App, localErr error) (string, error) {
	rest, ok := s.remote.Get(app)
	if !ok {
		return "", &catalog.Refusal{Outcome: catalog.NotFound, Reason: "this cluster has no app " + app.String() + ": " + localErr.Error()}
	}
	if address, _ := rest.Pick(); address != "" {
		return address, nil
	}
	refusal := rest.Refusal()
	refusal.Reason += "; " + localErr.Error()
	return "", refusal
}

// decideStandalone is resolveStandalone with the reasons.
func (r *Resolver) decideStandalone(ctx context.Context, s *served, app catalog.App) catalog.Decision {
	d := s.view.Explain(app)
	open := s.view.Open && d.Outcome == catalog.NotFound
	if d.Address != "" || d.Outcome != catalog.OK && !open {
		return d
	}
	address, err := r.askLocal(ctx, app)
	if err == nil {
		d.Outcome, d.Address, d.Reason = catalog.OK, address, "found by the local resolver"
		if open {
			d.Cluster, d.Rule = r.cluster, catalog.DefaultRule
		}
		return d
	}
	if rest, ok := s.remote.Get(app); ok {
		d = rest.Explain()
		d.Revision = s.view.Revision
	}
	d.Reason += "; " + err.Error()
	return d
}
