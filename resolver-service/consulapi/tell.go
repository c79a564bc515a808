package consulapi

import (
	"context"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// tell brings the topology, and other replicas, to what is registered, and returns once
// views have it. It does not end with who asked: what was begun is seen through.
func (r *registry) tell(ctx context.Context) error {
	r.telling.Lock()
	defer r.telling.Unlock()
	changed := r.takeDirty()
	change := topology.InstanceChange{Source: Source}
	want := make([]map[string]catalog.Instance, len(changed))
	for n, o := range changed {
		want[n] = o.instances()
		o.differences(want[n], &change)
	}
	if len(change.Put)+len(change.Delete) > 0 {
		if _, err := r.to.Apply(context.WithoutCancel(ctx), topology.Change{Instances: []topology.InstanceChange{change}}); err != nil {
			r.again(changed)
			return &apiError{500, "what is registered can't be published: " + err.Error()}
		}
		r.tellOthers(&change)
	}
	for n, o := range changed {
		o.told = want[n]
	}
	r.left(changed)
	return nil
}

func (r *registry) takeDirty() (changed []*owned) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for app := range r.dirty {
		changed = append(changed, r.known(app))
	}
	clear(r.dirty)
	return changed
}

func (r *registry) again(changed []*owned) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range changed {
		r.dirty[o.app] = true
	}
}

// instances are those of the app that the topology should have, by ID.
func (o *owned) instances() map[string]catalog.Instance {
	all, _ := o.roster.Load()
	want := make(map[string]catalog.Instance, len(all.services))
	for _, s := range all.services {
		if s.address.IsValid() {
			id := s.service.ID
			want[id] = catalog.Instance{ID: id, App: o.app, Address: s.address, Draining: s.status() != passing}
		}
	}
	return want
}

// differences adds what the topology has to be told.
func (o *owned) differences(want map[string]catalog.Instance, change *topology.InstanceChange) {
	for id, i := range want {
		if was, there := o.told[id]; !there || was != i {
			change.Put = append(change.Put, i)
		}
	}
	for id := range o.told {
		if _, stays := want[id]; !stays {
			change.Delete = append(change.Delete, topology.InstanceKey{App: o.app, ID: id})
		}
	}
}

// left forgets what was leaving when the topology was told: no view has it any more.
func (r *registry) left(changed []*owned) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range changed {
		all, _ := o.roster.Load()
		if r.dirty[o.app] { // who is dirty again is told again
			continue
		}
		next := *all
		next.leaving, next.pending = nil, false
		o.roster.Store(&next)
		count, _ := r.changed.Load()
		r.changed.Store(count + 1)
	}
}

func (r *registry) tellOthers(change *topology.InstanceChange) {
	if r.share == nil {
		return
	}
	for _, key := range change.Delete {
		r.share.Withdraw(key)
		delete(r.shared, key)
	}
	for _, i := range change.Put {
		key := topology.InstanceKey{App: i.App, ID: i.ID}
		r.tellings++ // over all, so that a number means one registration
		r.shared[key] = r.tellings
		l := lost{key, r.tellings}
		r.share.Register(i, func() { go r.taken(l) })
	}
}

// settled waits until the topology has been told; the checks call it.
func (r *registry) settled(ctx context.Context) {
	if err := r.tell(ctx); err != nil && ctx.Err() == nil {
		r.log.Error("the topology can't be told of a check", "err", err)
	}
}
