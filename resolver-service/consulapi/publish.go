package consulapi

import (
	"cmp"
	"context"
	"slices"
	"strings"

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
	change := &changeSet{}
	want := make([]map[string]publication, len(changed))
	var news []publication
	for n, o := range changed {
		want[n] = o.instances()
		news = append(news, o.differences(want[n], change)...)
	}
	if all := change.all(); len(all) > 0 {
		if _, err := r.to.Apply(context.WithoutCancel(ctx), topology.Change{Instances: all}); err != nil {
			r.retry(changed)
			return &apiError{500, "what is registered can't be published: " + err.Error()}
		}
	}
	r.shareChanges(news, change.gone)
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
	since    since
}

// changeSet collects news for the topology.
type changeSet struct {
	gone []topology.InstanceKey
	put  map[kind][]publication
}

// kind says how the topology ranks an instance: see topology.InstanceChange.
type kind struct{ standing, unverified, present bool }

// add adds an instance; registered says that it was registered now.
func (c *changeSet) add(s publication, registered bool) {
	k := kind{standing: s.since.restored, unverified: s.instance.Unverified, present: registered && !s.since.restored && !s.instance.Unverified}
	if c.put == nil {
		c.put = map[kind][]publication{}
	}
	c.put[k] = append(c.put[k], s)
}

// all are the changes: deletions first, and new registrations last. Within each, the latest
// registration comes last: of several restored ones for an address, that one has it.
func (c *changeSet) all() (all []topology.InstanceChange) {
	if len(c.gone) > 0 {
		all = append(all, topology.InstanceChange{Source: Source, Delete: c.gone})
	}
	for _, k := range []kind{{standing: true}, {standing: true, unverified: true}, {unverified: true}, {}, {present: true}} {
		change := topology.InstanceChange{Source: Source, Standing: k.standing, Hearsay: k.unverified, Present: k.present}
		slices.SortFunc(c.put[k], func(a, b publication) int {
			return cmp.Or(cmp.Compare(a.since.at, b.since.at), a.instance.App.Compare(b.instance.App), strings.Compare(a.instance.ID, b.instance.ID))
		})
		for _, s := range c.put[k] {
			change.Put = append(change.Put, s.instance)
		}
		if len(change.Put) > 0 {
			all = append(all, change)
		}
	}
	return all
}

// instances are those of the app that the topology should have, by ID.
func (o *inventory) instances() map[string]publication {
	all, _ := o.roster.Load()
	want := make(map[string]publication, len(all.services))
	for _, s := range all.services {
		if s.address.IsValid() {
			id := s.service.ID
			want[id] = publication{catalog.Instance{ID: id, App: o.app, Address: s.address, Draining: s.status() != passing, Unverified: s.unverified}, s.since}
		}
	}
	return want
}

// differences adds what the topology has to be told, and returns what other replicas have to
// be told. To both, a service that registers again without a change has come here now.
func (o *inventory) differences(want map[string]publication, change *changeSet) (news []publication) {
	for id, now := range want {
		was, there := o.published[id]
		registered := !there || was.since != now.since
		if was.instance != now.instance || registered && !(there && now.instance.Unverified) {
			change.add(now, registered)
		}
		if !there || was != now {
			news = append(news, now)
		}
	}
	for id := range o.published {
		if _, stays := want[id]; !stays {
			change.gone = append(change.gone, topology.InstanceKey{App: o.app, ID: id})
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
		l := lost{key, s.since.at}
		r.share.Share(s.instance, s.since.at, s.since.restored, func() { go r.taken(l) })
	}
}

// publishNow waits until the topology has been told; the checks call it.
func (r *registry) publishNow(ctx context.Context) {
	if err := r.publish(ctx); err != nil && ctx.Err() == nil {
		r.log.Error("the topology can't be told of a change by a check", "err", err)
	}
}
