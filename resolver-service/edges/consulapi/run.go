package consulapi

import (
	"context"
	"time"
)

// run runs the checks until ctx ends.
func (r *registry) run(ctx context.Context) error {
	r.mu.Lock()
	r.running = ctx
	for _, o := range r.all() {
		for _, c := range o.checks {
			c.start()
		}
	}
	early := r.early
	r.early = nil
	r.mu.Unlock()
	defer r.stop()
	for _, l := range early {
		r.letGo(ctx, l)
	}
	again := time.NewTicker(saveAgain)
	defer again.Stop()
	for {
		select {
		case l := <-r.lost:
			r.letGo(ctx, l)
		case <-again.C:
			r.saveRest()
		case <-ctx.Done():
			return nil
		}
	}
}

// stop ends the checks, and waits for those under way.
func (r *registry) stop() {
	r.mu.Lock()
	r.running = nil
	for _, o := range r.all() {
		for _, c := range o.checks {
			c.end()
		}
	}
	r.mu.Unlock()
	r.checks.Wait()
}

// saveRest saves what could not be saved before, until something can't. It lets others in
// between two files.
func (r *registry) saveRest() {
	for key := range r.store.troubles() {
		r.mu.Lock()
		s := r.own(key.App).services[key.ID]
		saved := s == nil || r.store.save(key.App, s)
		r.mu.Unlock()
		if !saved {
			return
		}
	}
}

// taken says that a service has registered with another replica since.
func (r *registry) taken(l lost) {
	r.mu.Lock()
	running := r.running
	if running == nil {
		r.early = append(r.early, l)
	}
	r.mu.Unlock()
	if running == nil {
		return
	}
	select {
	case r.lost <- l:
	case <-running.Done():
	}
}

// letGo removes a service that has registered with another replica, unless it has come back
// here since.
func (r *registry) letGo(ctx context.Context, l lost) {
	r.mu.Lock()
	o := r.own(l.key.App)
	s := o.services[l.key.ID]
	if s == nil || s.since.at != l.at {
		r.mu.Unlock()
		return
	}
	r.remove(o, s)
	r.mu.Unlock()
	r.often.Info("moved "+l.key.App.String(), "a service has registered with another replica; this one lets go of it", "app", l.key.App.String(), "service", l.key.ID)
	r.publishNow(ctx)
}
