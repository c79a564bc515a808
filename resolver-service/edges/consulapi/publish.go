package consulapi

import (
	"context"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// applier takes changes of instances in. Apply returns once they are published.
type applier interface {
	Apply(ctx context.Context, c topology.Change) (revision uint64, err error)
}

// publish brings the topology, and other replicas, to what is registered, and returns once
// views have it. It goes on after the request that caused it has ended.
func (r *registry) publish(ctx context.Context) error {
	r.publishing.Lock()
	defer r.publishing.Unlock()
	changed := r.takeDirty()
	change := topology.InstanceChange{Source: Source, Rank: topology.Live}
	want := make([]map[string]publication, len(changed))
	var news []publication
	for n, o := range changed {
		want[n] = o.instances()
		news = append(news, o.differences(want[n], &change)...)
	}
	if len(change.Put)+len(change.Delete) > 0 {
		if _, err := r.to.Apply(context.WithoutCancel(ctx), topology.Change{Instances: []topology.InstanceChange{change}}); err != nil {
			r.retry(changed)
			return &apiError{500, "what is registered can't be published: " + err.Error()}
		}
	}
	r.shareChanges(news, change.Delete)
	for n, o := range changed {
		o.published = want[n]
	}
	r.forgetLeaving(changed)
	return nil
}

func (r *registry) takeDirty() (changed []*inventory) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for app := range r.dirty {
		changed = append(changed, r.known(app))
	}
	clear(r.dirty)
	return changed
}

func (r *registry) retry(changed []*inventory) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range changed {
		r.dirty[o.app] = true
	}
}

// publication is an instance as the topology and other replicas should have it.
type publication struct {
	instance catalog.Instance
	restored bool // it registered before a restart
}

// instances are those of the app that the topology should have, by ID.
func (o *inventory) instances() map[string]publication {
	all, _ := o.roster.Load()
	want := make(map[string]publication, len(all.services))
	for _, s := range all.services {
		if s.address.IsValid() {
			id := s.service.ID
			want[id] = publication{catalog.Instance{
				ID: id, App: o.app, Address: s.address, Draining: s.status() != passing, Since: s.since.at, Unverified: s.unverified,
				Version: s.service.Meta[versionMeta],
			}, s.since.restored}
		}
	}
	return want
}

// differences adds to a change what the topology has to be told, and returns what of it other
// replicas have to be told.
func (o *inventory) differences(want map[string]publication, change *topology.InstanceChange) (news []publication) {
	for id, now := range want {
		was, there := o.published[id]
		if !there || was.instance != now.instance {
			change.Put = append(change.Put, now.instance)
		}
		if !there || was != now {
			news = append(news, now)
		}
	}
	for id := range o.published {
		if _, stays := want[id]; !stays {
			change.Delete = append(change.Delete, topology.InstanceKey{App: o.app, ID: id})
		}
	}
	return news
}

// forgetLeaving forgets the addresses that were leaving when the topology was told: no view has them.
func (r *registry) forgetLeaving(changed []*inventory) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range changed {
		all, _ := o.roster.Load()
		if r.dirty[o.app] { // it changed meanwhile, and the topology is told again
			continue
		}
		next := *all
		next.leaving, next.pending = nil, false
		r.show(o, &next)
	}
}

func (r *registry) shareChanges(news []publication, gone []topology.InstanceKey) {
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

// publishNow waits until the topology has been told; the checks call it.
func (r *registry) publishNow(ctx context.Context) {
	if err := r.publish(ctx); err != nil && ctx.Err() == nil {
		r.log.Error("the topology can't be told of a change by a check", "err", err)
	}
}
