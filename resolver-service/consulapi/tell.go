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
	change := topology.InstanceChange{Source: Source, Rank: topology.Live}
	want := make([]map[string]shared, len(changed))
	var news []shared
	for n, o := range changed {
		want[n] = o.instances()
		news = append(news, o.differences(want[n], &change)...)
	}
	if len(change.Put)+len(change.Delete) > 0 {
		if _, err := r.to.Apply(context.WithoutCancel(ctx), topology.Change{Instances: []topology.InstanceChange{change}}); err != nil {
			r.again(changed)
			return &apiError{500, "what is registered can't be published: " + err.Error()}
		}
	}
	r.tellOthers(news, change.Delete)
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

// shared is an instance as the topology and other replicas should have it.
type shared struct {
	instance catalog.Instance
	restored bool // it registered before a restart
}

// instances are those of the app that the topology should have, by ID.
func (o *owned) instances() map[string]shared {
	all, _ := o.roster.Load()
	want := make(map[string]shared, len(all.services))
	for _, s := range all.services {
		if s.address.IsValid() {
			id := s.service.ID
			want[id] = shared{catalog.Instance{
				ID: id, App: o.app, Address: s.address, Draining: s.status() != passing, Since: s.since.at, Unverified: s.unverified,
			}, s.since.restored}
		}
	}
	return want
}

// differences adds to a change what the topology has to be told, and returns what of it other
// replicas have to be told.
func (o *owned) differences(want map[string]shared, change *topology.InstanceChange) (news []shared) {
	for id, now := range want {
		was, there := o.told[id]
		if !there || was.instance != now.instance {
			change.Put = append(change.Put, now.instance)
		}
		if !there || was != now {
			news = append(news, now)
		}
	}
	for id := range o.told {
		if _, stays := want[id]; !stays {
			change.Delete = append(change.Delete, topology.InstanceKey{App: o.app, ID: id})
		}
	}
	return news
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

func (r *registry) tellOthers(news []shared, gone []topology.InstanceKey) {
	if r.share == nil {
		return
	}
	for _, key := range gone {
		r.share.Withdraw(key)
	}
	for _, s := range news {
		key := topology.KeyOf(&s.instance)
		l := lost{key, s.instance.Since}
		r.share.Share(s.instance, s.restored, func() { go r.taken(l) })
	}
}

// settled waits until the topology has been told; the checks call it.
func (r *registry) settled(ctx context.Context) {
	if err := r.tell(ctx); err != nil && ctx.Err() == nil {
		r.log.Error("the topology can't be told of a check", "err", err)
	}
}
