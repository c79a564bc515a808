package consulapi

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// tell brings the topology, and other replicas, to what is registered, and returns once
// views have it. It does not end with who asked: what was begun is seen through.
func (r *registry) tell(ctx context.Context) error {
	r.telling.Lock()
	defer r.telling.Unlock()
	changed := r.takeDirty()
	change := &changeSet{}
	want := make([]map[string]standing, len(changed))
	var news []standing
	for n, o := range changed {
		want[n] = o.instances()
		news = append(news, o.differences(want[n], change)...)
	}
	if all := change.all(); len(all) > 0 {
		if _, err := r.to.Apply(context.WithoutCancel(ctx), topology.Change{Instances: all}); err != nil {
			r.again(changed)
			return &apiError{500, "what is registered can't be published: " + err.Error()}
		}
	}
	r.tellOthers(news, change.gone)
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

// standing is an instance as the topology and other replicas should have it.
type standing struct {
	instance catalog.Instance
	since    since
	hearsay  bool
}

// changeSet is what the topology has to be told.
type changeSet struct {
	gone []topology.InstanceKey
	put  map[word][]standing
}

// word is how an instance is known.
type word struct{ standing, hearsay, present bool }

// add adds an instance; registered says that it was registered now.
func (c *changeSet) add(s standing, registered bool) {
	w := word{standing: s.since.restored, hearsay: s.hearsay, present: registered && !s.since.restored && !s.hearsay}
	if c.put == nil {
		c.put = map[word][]standing{}
	}
	c.put[w] = append(c.put[w], s)
}

// all are the changes: what is gone before all else, and who tells of itself last. Within
// each, who registered last comes last: of several that stood before, that one has an address.
func (c *changeSet) all() (all []topology.InstanceChange) {
	if len(c.gone) > 0 {
		all = append(all, topology.InstanceChange{Source: Source, Delete: c.gone})
	}
	for _, w := range []word{{standing: true}, {standing: true, hearsay: true}, {hearsay: true}, {}, {present: true}} {
		change := topology.InstanceChange{Source: Source, Standing: w.standing, Hearsay: w.hearsay, Present: w.present}
		slices.SortFunc(c.put[w], func(a, b standing) int {
			return cmp.Or(cmp.Compare(a.since.at, b.since.at), a.instance.App.Compare(b.instance.App), strings.Compare(a.instance.ID, b.instance.ID))
		})
		for _, s := range c.put[w] {
			change.Put = append(change.Put, s.instance)
		}
		if len(change.Put) > 0 {
			all = append(all, change)
		}
	}
	return all
}

// instances are those of the app that the topology should have, by ID.
func (o *owned) instances() map[string]standing {
	all, _ := o.roster.Load()
	want := make(map[string]standing, len(all.services))
	for _, s := range all.services {
		if s.address.IsValid() {
			id := s.service.ID
			want[id] = standing{catalog.Instance{ID: id, App: o.app, Address: s.address, Draining: s.status() != passing, Unverified: s.hearsay}, s.since, s.hearsay}
		}
	}
	return want
}

// differences adds what the topology has to be told. News are what others have to be told
// of it; to both, who registers once more without a change has come here now, and last.
func (o *owned) differences(want map[string]standing, change *changeSet) (news []standing) {
	for id, now := range want {
		was, there := o.told[id]
		registered := !there || was.since != now.since
		if was.instance != now.instance || registered && !(there && now.hearsay) {
			change.add(now, registered)
		}
		if !there || was != now {
			news = append(news, now)
		}
	}
	for id := range o.told {
		if _, stays := want[id]; !stays {
			change.gone = append(change.gone, topology.InstanceKey{App: o.app, ID: id})
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

func (r *registry) tellOthers(news []standing, gone []topology.InstanceKey) {
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

// settled waits until the topology has been told; the checks call it.
func (r *registry) settled(ctx context.Context) {
	if err := r.tell(ctx); err != nil && ctx.Err() == nil {
		r.log.Error("the topology can't be told of a check", "err", err)
	}
}
