package consulapi

import (
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/consul/api"
)

// service waits for the answer about the service that the path names. While that service does
// not change for the caller, the query stays.
func (q *request) service() (*record, error) {
	app := q.caller.appOf(q.name)
	changed := func() <-chan struct{} {
		appeared := follow(&q.s.registry.appeared)
		if o := q.s.registry.known(app); o != nil {
			return follow(&o.roster)
		}
		return appeared // the app may register for the first time
	}
	return q.until(func() *record { return q.s.service(q.caller, q.name, q.dc) }, changed)
}

// whole waits for an answer about everything that the caller may see.
func (q *request) whole(question string, compute func(*scope) any) (*record, error) {
	return q.until(func() *record { return q.s.whole(q.caller, question, q.dc, compute) }, q.registryChanged)
}

func (q *request) registryChanged() <-chan struct{} { return follow(&q.s.registry.changed) }

// healthService is GET /v1/health/service/:service.
func (q *request) healthService() (any, error) {
	onlyPassing := q.query.Has("passing")
	if text := q.query.Get("passing"); text != "" {
		var err error
		if onlyPassing, err = strconv.ParseBool(text); err != nil {
			return nil, badRequest("Invalid value for ?passing")
		}
	}
	if q.name == "" {
		return nil, badRequest("Missing service name")
	}
	if answer, err := q.early(onlyPassing); answer != nil || err != nil {
		return answer, err
	}
	if err := tryFilter[*api.ServiceEntry](q); err != nil {
		return nil, err
	}
	if err := q.ready(); err != nil {
		return nil, err
	}
	r, err := q.service()
	if err != nil {
		return nil, err
	}
	answer, _, err := q.instances(r, onlyPassing)
	return answer, err
}

// early is the answer before the service has settled, to a query that does not block: an
// instance to call, if there is one already. Nil has to wait.
func (q *request) early(onlyPassing bool) (any, error) {
	if q.index != 0 || q.s.settled() || q.datacenter() != nil {
		return nil, nil
	}
	r := q.s.service(q.caller, q.name, q.dc)
	if r == nil {
		return nil, nil
	}
	answer, callable, err := q.instances(r, onlyPassing)
	if err != nil || !callable {
		return nil, err
	}
	q.meta(r.index)
	return answer, nil
}

// instances are those of a service that are asked for, and whether any of them can be called.
func (q *request) instances(r *record, onlyPassing bool) (answer any, callable bool, err error) {
	if q.filter == "" && !q.query.Has("tag") {
		return r.body(onlyPassing), slices.ContainsFunc(r.entries, passes), nil
	}
	entries := tagged(q, r.entries)
	if onlyPassing {
		entries = passingOnly(entries)
	}
	entries, err = filtered(q, entries)
	return entries, slices.ContainsFunc(entries, passes), err
}

// tagged are the entries with every tag that is asked for, in any case.
func tagged(q *request, all []*api.ServiceEntry) []*api.ServiceEntry {
	return slices.DeleteFunc(slices.Clone(all), func(e *api.ServiceEntry) bool {
		return slices.ContainsFunc(q.query["tag"], func(want string) bool {
			return want != "" && !slices.ContainsFunc(e.Service.Tags, func(t string) bool { return strings.EqualFold(t, want) })
		})
	})
}

// named waits for the answer about the service that the path names, which a filter of Ts goes
// through.
func named[T any](q *request) (*record, error) {
	if q.name == "" {
		return nil, badRequest("Missing service name")
	}
	if err := tryFilter[T](q); err != nil {
		return nil, err
	}
	if err := q.ready(); err != nil {
		return nil, err
	}
	return q.service()
}

// healthChecks is GET /v1/health/checks/:service.
func (q *request) healthChecks() (any, error) {
	r, err := named[*api.HealthCheck](q)
	if err != nil {
		return nil, err
	}
	return filtered(q, sortedChecks(checksOf(r.entries)))
}

// healthState is GET /v1/health/state/:state. If the filter names the services that it lets
// through, as that of Dapr's component does, only they are looked at.
func (q *request) healthState() (any, error) {
	if q.name == "" {
		return nil, badRequest("Missing check state")
	}
	p, err := prepare[*api.HealthCheck](q)
	if err != nil {
		return nil, err
	}
	if err := q.ready(); err != nil {
		return nil, err
	}
	var r *record
	if p != nil && p.narrow {
		r, err = q.checksOfServices(p.services)
	} else {
		r, err = q.whole("checks", (*scope).checks)
	}
	if err != nil {
		return nil, err
	}
	checks := slices.Clone(r.value.([]*api.HealthCheck))
	if q.name != api.HealthAny {
		checks = slices.DeleteFunc(checks, func(c *api.HealthCheck) bool { return c.Status != q.name })
	}
	return filtered(q, checks)
}

// checksOfServices waits for the checks of a few services, each once, however often and in
// however many ways its name is written.
func (q *request) checksOfServices(names []string) (*record, error) {
	names = slices.Clone(names)
	for n, name := range names {
		names[n] = q.caller.nameOf(q.caller.appOf(name))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return q.until(func() *record {
		sum, checks := &record{}, []*api.HealthCheck{}
		for _, name := range names {
			r := q.s.service(q.caller, name, q.dc)
			if r == nil {
				return nil
			}
			sum.index = max(sum.index, r.index)
			checks = append(checks, checksOf(r.entries)...)
		}
		sum.value = sortedChecks(checks)
		return sum
	}, q.registryChanged)
}
