package kubernetes

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unique"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// index is all slices and pods that were read, and what they come to.
type index struct {
	config   Config
	slices   map[name]slice
	byApp    map[catalog.App]map[name]bool
	pods     map[name]pod                  // where they are read
	users    map[name]map[catalog.App]bool // apps that have a pod among their instances
	reported map[catalog.App]map[string]reportedInstance
	refused  map[name][]instances.Refusal
	unread   map[name]instances.Refusal // pods whose annotation can't be read
}

// slice is one that is of an app.
type slice struct {
	app     catalog.App
	created int64
	have    []found
}

// pod is what is known of one.
type pod struct {
	zone    string
	version string
	created int64
	calls   catalog.Calls
	account string
}

// reportedInstance is what was said of an instance.
type reportedInstance struct {
	instance catalog.Instance
	pod      name
}

func newIndex(c Config) *index {
	return &index{
		config: c, slices: map[name]slice{}, byApp: map[catalog.App]map[name]bool{}, pods: map[name]pod{},
		users: map[name]map[catalog.App]bool{}, reported: map[catalog.App]map[string]reportedInstance{}, refused: map[name][]instances.Refusal{},
		unread: map[name]instances.Refusal{},
	}
}

// apply takes objects in and tells what has changed, and whether anything has.
func (x *index) apply(objects []object) (c instances.Change, news bool) {
	touched := map[catalog.App]bool{}
	for i := range objects {
		if o := &objects[i]; o.pod {
			news = x.takePod(o, touched) || news
		} else {
			news = x.takeSlice(o, touched) || news
		}
	}
	for app := range touched {
		x.settle(app, &c)
	}
	c.Refused, c.Remarks = x.refusals(), x.remarks()
	return c, news || len(c.Put)+len(c.Delete) > 0
}

// takePod tells whether what can't be read has changed.
func (x *index) takePod(o *object, touched map[catalog.App]bool) bool {
	before := x.unread[o.name]
	delete(x.unread, o.name)
	if o.deleted {
		delete(x.pods, o.name)
	} else {
		calls, err := x.calls(o)
		switch {
		case err != nil && before.Err != nil && err.Error() == before.Err.Error():
			x.unread[o.name] = before
		case err != nil:
			x.unread[o.name] = instances.Refusal{Where: o.name.String() + ", annotation " + CallsAnnotation, Err: err}
		}
		x.pods[o.name] = pod{o.labels[x.config.ZoneLabel], unique.Make(o.labels[x.config.VersionLabel]).Value(), o.created, calls, o.account}
	}
	for app := range x.users[o.name] {
		touched[app] = true
	}
	return before != x.unread[o.name]
}

// calls are what a pod declares.
func (x *index) calls(o *object) (catalog.Calls, error) {
	if !x.config.Calls || o.calls == "" {
		return "", nil
	}
	return catalog.ParseCalls(o.namespace, o.calls)
}

// takeSlice tells whether what is refused has changed.
func (x *index) takeSlice(o *object, touched map[catalog.App]bool) bool {
	if was, ok := x.slices[o.name]; ok {
		touched[was.app] = true
		delete(x.slices, o.name)
		delete(x.byApp[was.app], o.name)
		if len(x.byApp[was.app]) == 0 {
			delete(x.byApp, was.app)
		}
	}
	refusedBefore := x.refused[o.name]
	delete(x.refused, o.name)
	app, ok := o.app()
	if o.deleted || !ok {
		return len(refusedBefore) > 0
	}
	have, refused := o.instances(app)
	if len(refused) > 0 {
		x.refused[o.name] = refused
	}
	touched[app] = true
	x.slices[o.name] = slice{app, o.created, have}
	if x.byApp[app] == nil {
		x.byApp[app] = map[name]bool{}
	}
	x.byApp[app][o.name] = true
	return !slices.EqualFunc(refusedBefore, refused, func(a, b instances.Refusal) bool {
		return a.Where == b.Where && a.Err.Error() == b.Err.Error()
	})
}

// settle works out an app's instances anew and adds to a change what differs.
func (x *index) settle(app catalog.App, c *instances.Change) {
	was, now := x.reported[app], x.instancesOf(app)
	for id, t := range now {
		if before, ok := was[id]; !ok || before.instance != t.instance {
			c.Put = append(c.Put, t.instance)
		}
	}
	for id, t := range was {
		if _, stands := now[id]; !stands {
			c.Delete = append(c.Delete, topology.InstanceKey{App: app, ID: id})
		}
		x.use(t.pod, app, false)
	}
	for _, t := range now {
		x.use(t.pod, app, true)
	}
	if x.reported[app] = now; len(now) == 0 {
		delete(x.reported, app)
	}
}

// use notes that an app has a pod, or not.
func (x *index) use(pod name, app catalog.App, has bool) {
	switch {
	case pod.name == "" || !x.config.readsPods():
	case has && x.users[pod] == nil:
		x.users[pod] = map[catalog.App]bool{app: true}
	case has:
		x.users[pod][app] = true
	default:
		delete(x.users[pod], app)
		if len(x.users[pod]) == 0 {
			delete(x.users, pod)
		}
	}
}

// instancesOf merges an app's slices. An instance's time is when its pod was created or, if pods
// are not read, its slice. One may be in several for a while, as when
// Kubernetes spreads endpoints over slices anew, or in one for each family of addresses.
func (x *index) instancesOf(app catalog.App) map[string]reportedInstance {
	all := map[string]reportedInstance{}
	for slice := range x.byApp[app] {
		for _, f := range x.slices[slice].have {
			t := reportedInstance{instance: f.Instance}
			t.instance.Since = x.slices[slice].created
			if f.pod != "" {
				t.pod = name{true, app.Namespace, f.pod}
				of := x.pods[t.pod]
				t.instance.Zone, t.instance.Since = cmp.Or(of.zone, f.Zone), cmp.Or(of.created, t.instance.Since)
				t.instance.Version, t.instance.Calls, t.instance.Account = of.version, of.calls, of.account
			}
			if other, twice := all[f.ID]; twice {
				since := min(t.instance.Since, other.instance.Since)
				if !x.before(t.instance, other.instance) {
					t = other
				}
				t.instance.Since = since
			}
			all[f.ID] = t
		}
	}
	return all
}

// before tells which of two entries of one instance is taken: that of the family which is
// wanted, then the one that is ready, then any, but always the same.
func (x *index) before(a, b catalog.Instance) bool {
	rank := func(i catalog.Instance) (rank int) {
		if i.Address.Addr().Is6() == (x.config.IPFamily == ipv6) {
			rank += 2
		}
		if !i.Draining {
			rank++
		}
		return rank
	}
	return cmp.Or(cmp.Compare(rank(b), rank(a)), a.Address.Compare(b.Address)) < 0
}

// refusals are all that are refused, in order.
func (x *index) refusals() (all []instances.Refusal) {
	for _, some := range x.refused {
		all = append(all, some...)
	}
	return inOrder(all)
}

// remarks are the annotations that can't be read, in order. Their pods are used all the same.
func (x *index) remarks() []instances.Refusal {
	return inOrder(slices.Collect(maps.Values(x.unread)))
}

func inOrder(all []instances.Refusal) []instances.Refusal {
	slices.SortFunc(all, func(a, b instances.Refusal) int { return strings.Compare(a.Where, b.Where) })
	return all
}
