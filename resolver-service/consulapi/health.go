package consulapi

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/isthmus-mesh/isthmus/live"
)

// begin reads what every query of the catalog takes, and finds out who asks. missing is
// what the path has to name; empty for nothing.
func (q *request) begin(missing string) error {
	if err := q.options(); err != nil {
		return err
	}
	if missing != "" && q.path == "" {
		return badRequest("Missing %s", missing)
	}
	q.failing = true
	return q.ask()
}

// ask finds out who asks, and about which cluster.
func (q *request) ask() error {
	if err := q.who(); err != nil {
		return err
	}
	if err := q.settled(); err != nil {
		return err
	}
	return q.datacenter()
}

// ofService waits for the answer about one service. While nothing of it changes, it
// stays where it is, whatever else does.
func (q *request) ofService(name string) (*record, error) {
	w := &world{s: q.s, caller: q.caller}
	changed := func() <-chan struct{} {
		appeared := follow(&q.s.registry.appeared)
		if o := q.s.registry.known(w.app(name)); o != nil {
			return follow(&o.roster)
		}
		return appeared // it may register for the first time
	}
	return q.until(func() *record { return q.s.service(q.caller, name, q.dc) }, changed)
}

// ofAll waits for an answer about everything that the caller may see.
func (q *request) ofAll(key string, compute func(*world) any) (*record, error) {
	return q.until(func() *record { return q.s.whole(q.caller, key, compute) }, func() <-chan struct{} { return follow(&q.s.registry.changed) })
}

func follow[T any](v *live.Value[T]) <-chan struct{} {
	_, _, changed := v.Follow()
	return changed
}

// boolParam reads a parameter that may stand there without a value.
func (q *request) boolParam(name string) (bool, error) {
	if !q.query.Has(name) {
		return false, nil
	}
	text := q.query.Get(name)
	if text == "" {
		return true, nil
	}
	value, err := strconv.ParseBool(text)
	if err != nil {
		return false, badRequest("Invalid value for ?%s", name)
	}
	return value, nil
}

// healthService is GET /v1/health/service/:service.
func (q *request) healthService() (any, error) {
	if err := q.options(); err != nil {
		return nil, err
	}
	if q.path == "" {
		return nil, badRequest("Missing service name")
	}
	onlyPassing, err := q.boolParam("passing")
	if err != nil {
		return nil, err
	}
	if err := q.ask(); err != nil {
		return nil, err
	}
	r, err := ofPath[*entry](q)
	if err != nil {
		return nil, err
	}
	if q.filter == "" && !q.query.Has("tag") && !q.query.Has("node-meta") {
		return &reply{code: http.StatusOK, raw: r.body(onlyPassing)}, nil
	}
	entries := r.entries
	if onlyPassing {
		entries = passingOnly(entries)
	}
	entries = slices.DeleteFunc(slices.Clone(entries), func(e *entry) bool {
		return !q.tagged(e.Service.Tags) || !q.nodeMatches(e.Node)
	})
	return filtered(q, entries)
}

// tryFilter refuses a filter of a list of T that is wrong before anything is waited for.
func tryFilter[T any](q *request) error {
	_, err := filtered(q, []T{})
	return err
}

// ofPath is what is answered of the service that the path names, by a filter of a list of T.
func ofPath[T any](q *request) (*record, error) {
	if err := tryFilter[T](q); err != nil {
		return nil, err
	}
	r, err := q.ofService(q.path)
	if err != nil {
		return nil, err
	}
	q.meta(r.index)
	return r, nil
}

// tagged tells whether something has every tag that is asked for, in any case.
func (q *request) tagged(tags []string) bool {
	for _, want := range q.query["tag"] {
		if want != "" && !slices.ContainsFunc(tags, func(t string) bool { return strings.EqualFold(t, want) }) {
			return false
		}
	}
	return true
}

// nodeMatches tells whether a node has the metadata that is asked for.
func (q *request) nodeMatches(n *node) bool {
	for _, pair := range q.query["node-meta"] {
		key, value, _ := strings.Cut(pair, ":")
		if got, ok := n.Meta[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// healthChecks is GET /v1/health/checks/:service.
func (q *request) healthChecks() (any, error) {
	if err := q.begin("service name"); err != nil {
		return nil, err
	}
	r, err := ofPath[*healthCheck](q)
	if err != nil {
		return nil, err
	}
	return filtered(q, q.serviceChecks(r.entries))
}

// serviceChecks are the checks of services among entries, without those of nodes.
func (q *request) serviceChecks(entries []*entry) []*healthCheck {
	checks := []*healthCheck{}
	for _, e := range entries {
		for _, c := range e.Checks {
			if c.ServiceID != "" && q.nodeMatches(e.Node) {
				checks = append(checks, c)
			}
		}
	}
	sortChecks(checks)
	return checks
}

func sortChecks(checks []*healthCheck) {
	slices.SortFunc(checks, func(a, b *healthCheck) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.CheckID, b.CheckID), strings.Compare(a.ServiceName, b.ServiceName), strings.Compare(a.ServiceID, b.ServiceID))
	})
}

// healthState is GET /v1/health/state/:state. Where the filter names the services that
// it is about, as that of Dapr's component does, only they are looked at.
func (q *request) healthState() (any, error) {
	if err := q.begin("check state"); err != nil {
		return nil, err
	}
	if err := tryFilter[*healthCheck](q); err != nil {
		return nil, err
	}
	names, narrow, err := q.onlyServices()
	if err != nil {
		return nil, err
	}
	var r *record
	if narrow {
		r, err = q.ofServices(names)
	} else {
		r, err = q.ofAll("checks\x00"+q.dc, q.allChecks)
	}
	if err != nil {
		return nil, err
	}
	q.meta(r.index)
	checks := r.value.([]*healthCheck)
	if q.path != "any" {
		checks = slices.DeleteFunc(slices.Clone(checks), func(c *healthCheck) bool { return c.Status != q.path })
	}
	return filtered(q, checks)
}

// ofServices waits for the checks of a few services.
func (q *request) ofServices(names []string) (*record, error) {
	slices.Sort(names)
	names = slices.Compact(names)
	answer := func() *record {
		sum := &record{}
		checks := []*healthCheck{}
		for _, name := range names {
			r := q.s.service(q.caller, name, q.dc)
			if r == nil {
				return nil
			}
			sum.index = max(sum.index, r.index)
			checks = append(checks, q.serviceChecks(r.entries)...)
		}
		sortChecks(checks)
		sum.value = checks
		return sum
	}
	return q.until(answer, func() <-chan struct{} { return follow(&q.s.registry.changed) })
}

// allChecks are the checks of everything that the caller may see.
func (q *request) allChecks(w *world) any {
	checks := []*healthCheck{}
	if q.dc == "" && w.caller.app.ID != "" {
		checks = append(checks, serfHealth(w.s.node))
	}
	for _, name := range w.names() {
		checks = append(checks, q.serviceChecks(w.service(name, q.dc))...)
	}
	sortChecks(checks)
	return checks
}

// healthNode is GET /v1/health/node/:node.
func (q *request) healthNode() (any, error) {
	if err := q.begin("node name"); err != nil {
		return nil, err
	}
	if err := tryFilter[*healthCheck](q); err != nil {
		return nil, err
	}
	r, err := q.ofAll("checks\x00"+q.dc, q.allChecks)
	if err != nil {
		return nil, err
	}
	q.meta(r.index)
	checks := slices.DeleteFunc(slices.Clone(r.value.([]*healthCheck)), func(c *healthCheck) bool { return c.Node != q.path })
	return filtered(q, checks)
}
