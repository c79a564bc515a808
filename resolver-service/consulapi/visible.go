package consulapi

import "strings"

// visible are the services registered here that the caller may see, with the names that
// they have for it: its own, and then those of apps that its view leads to here, in the
// order of the apps. Each has an ID of its own.
func (q *request) visible(o *owned) []*registered {
	all, ids := []*registered{}, newTaken()
	mine, _ := o.roster.Load()
	for _, r := range mine.services {
		all = append(all, ids.apart(r))
	}
	view, ok := q.caller.look()
	if !ok {
		return all
	}
	w := &world{q.s, q.caller, view}
	for _, other := range q.s.registry.owners() {
		e, sees := view.Entries.Get(other.app)
		if other == o || !sees || !hasLocal(e) {
			continue
		}
		theirs, _ := other.roster.Load()
		for _, r := range theirs.services {
			all = append(all, ids.apart(r.named(w.name(other.app))))
		}
	}
	return all
}

// taken are the IDs that are used in an answer where each can stand only once. Apps choose
// theirs without knowing of each other's.
type taken struct{ services, checks map[string]bool }

func newTaken() taken { return taken{map[string]bool{}, map[string]bool{}} }

// apart is a service with IDs that are not taken yet: its own, or else with its name behind.
func (t taken) apart(r *registered) *registered {
	name := r.service.Service
	id := free(t.services, r.service.ID, name)
	if id != r.service.ID {
		r = r.with(func(s *nodeService) { s.ID = id }, func(c *healthCheck) { c.ServiceID = id })
	}
	for _, c := range r.checks {
		if t.checks[c.CheckID] {
			return r.with(func(*nodeService) {}, func(c *healthCheck) { c.CheckID = free(t.checks, c.CheckID, name) })
		}
	}
	for _, c := range r.checks {
		t.checks[c.CheckID] = true
	}
	return r
}

// free takes an ID that is not taken.
func free(taken map[string]bool, id, name string) string {
	for taken[id] {
		id += "~" + name
	}
	taken[id] = true
	return id
}

// find is the service of an ID that the caller may see.
func find(all []*registered, id string) *registered {
	for _, r := range all {
		if r.service.ID == id {
			return r
		}
	}
	return nil
}

// mayRead tells whether the caller may see a service, and its name for the caller. An agent
// of Consul's goes by how it is written, other than the catalog.
func (q *request) mayRead(service string) (name string, may bool) {
	w := &world{s: q.s, caller: q.caller}
	app := w.app(service)
	name = w.name(app)
	view, ok := q.caller.look()
	switch {
	case service != strings.ToLower(service):
		return name, false
	case app == q.caller.app:
		return name, true
	case !ok:
		return name, false
	}
	_, may = view.Entries.Get(app)
	return name, may
}

// named is the service with the name that it has for a caller, in all that tells of it.
func (r *registered) named(name string) *registered {
	if r.service.Service == name {
		return r
	}
	return r.with(func(s *nodeService) { s.Service = name }, func(c *healthCheck) { c.ServiceName = name })
}

// with is the service with changes to it and to each of its checks.
func (r *registered) with(service func(*nodeService), check func(*healthCheck)) *registered {
	next, s := *r, *r.service
	service(&s)
	next.service = &s
	next.checks = copied(r.checks, check)
	next.all = append(r.all[:1:1], next.checks...) // the node's own stays
	return &next
}

// copied are checks with a change to each.
func copied(checks []*healthCheck, change func(*healthCheck)) []*healthCheck {
	all := make([]*healthCheck, len(checks))
	for i, c := range checks {
		next := *c
		change(&next)
		all[i] = &next
	}
	return all
}
