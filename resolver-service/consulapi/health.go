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

// ask finds out who asks, and about which cluster, and waits until that can be answered.
func (q *request) ask() error {
	if err := q.who(); err != nil {
		return err
	}
	return q.ready()
}

// ready waits until what is asked can be answered, and finds out about which cluster it is.
func (q *request) ready() error {
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
	if err := q.who(); err != nil {
		return nil, err
	}
	if answer, err := q.early(onlyPassing); answer != nil || err != nil {
		return answer, err
	}
	if err := q.ready(); err != nil {
		return nil, err
	}
	r, err := ofPath[*entry](q)
	if err != nil {
		return nil, err
	}
	answer, _, err := q.instances(r, onlyPassing)
	return answer, err
}

// early is what is answered before the service has settled: something to call, where there is
// such a thing already, to who does not block. Nil has to wait.
func (q *request) early(onlyPassing bool) (any, error) {
	if q.blocks() || q.s.settled() || q.datacenter() != nil {
		return nil, nil
	}
	r := q.s.service(q.caller, q.path, q.dc)
	if r == nil {
		return nil, nil
	}
	answer, passes, err := q.instances(r, onlyPassing)
	if err != nil || !passes {
		return nil, err
	}
	q.meta(r.index)
	return answer, nil
}

// instances are those of a service that are asked for, and whether any of them can be called.
func (q *request) instances(r *record, onlyPassing bool) (answer any, passes bool, err error) {
	if q.filter == "" && !q.query.Has("tag") && !q.query.Has("node-meta") {
		return &reply{code: http.StatusOK, raw: r.body(onlyPassing)}, slices.ContainsFunc(r.entries, (*entry).passes), nil
	}
	entries := r.entries
	if onlyPassing {
		entries = passingOnly(entries)
	}
	entries = slices.DeleteFunc(slices.Clone(entries), func(e *entry) bool {
		return !q.tagged(e.Service.Tags) || !q.nodeMatches(e.Node)
	})
	entries, err = filtered(q, entries)
	return entries, slices.ContainsFunc(entries, (*entry).passes), err
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
	checks := checksOf(r.entries)
	sortChecks(checks)
	return filtered(q, q.onNodes(checks))
}

// nodeCheck is a check with the node that it is on.
type nodeCheck struct {
	*healthCheck
	on *node
}

// checksOf are the checks of services among entries, without those of nodes.
func checksOf(entries []*entry) []nodeCheck {
	checks := []nodeCheck{}
	for _, e := range entries {
		for _, c := range e.Checks {
			if c.ServiceID != "" {
				checks = append(checks, nodeCheck{c, e.Node})
			}
		}
	}
	return checks
}

// onNodes are those of checks on nodes that are asked for. What is remembered has all of them,
// whoever asked first.
func (q *request) onNodes(all []nodeCheck) []*healthCheck {
	checks := make([]*healthCheck, 0, len(all))
	for _, c := range all {
		if q.nodeMatches(c.on) {
			checks = append(checks, c.healthCheck)
		}
	}
	return checks
}

func sortChecks(checks []nodeCheck) {
	slices.SortFunc(checks, func(a, b nodeCheck) int {
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
		r, err = q.allChecks()
	}
	if err != nil {
		return nil, err
	}
	q.meta(r.index)
	checks := q.onNodes(r.value.([]nodeCheck))
	if q.path != "any" {
		checks = slices.DeleteFunc(checks, func(c *healthCheck) bool { return c.Status != q.path })
	}
	return filtered(q, checks)
}

// ofServices waits for the checks of a few services, each once, however often and in however
// many ways it is written.
func (q *request) ofServices(names []string) (*record, error) {
	w := &world{s: q.s, caller: q.caller}
	for n, name := range names {
		names[n] = w.name(w.app(name))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	answer := func() *record {
		sum := &record{}
		checks := []nodeCheck{}
		for _, name := range names {
			r := q.s.service(q.caller, name, q.dc)
			if r == nil {
				return nil
			}
			sum.index = max(sum.index, r.index)
			checks = append(checks, checksOf(r.entries)...)
		}
		sortChecks(checks)
		sum.value = checks
		return sum
	}
	return q.until(answer, func() <-chan struct{} { return follow(&q.s.registry.changed) })
}

// allChecks waits for the checks of everything that the caller may see.
func (q *request) allChecks() (*record, error) {
	return q.ofAll("checks\x00"+q.dc, func(w *world) any { return w.checks(q.dc) })
}

// checks are those of everything that a caller may see in a cluster.
func (w *world) checks(dc string) []nodeCheck {
	checks := []nodeCheck{}
	if dc == "" && w.caller.app.ID != "" {
		checks = append(checks, nodeCheck{serfHealth(w.s.node), w.s.node})
	}
	for _, name := range w.names() {
		checks = append(checks, checksOf(w.service(name, dc))...)
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
	r, err := q.allChecks()
	if err != nil {
		return nil, err
	}
	q.meta(r.index)
	checks := []*healthCheck{} // whatever node-meta says, as in Consul
	for _, c := range r.value.([]nodeCheck) {
		if c.Node == q.path {
			checks = append(checks, c.healthCheck)
		}
	}
	return filtered(q, checks)
}
