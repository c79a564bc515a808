package consulapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// own is who asks, and what it has registered.
func (q *request) own() (*owned, error) {
	if err := q.enterprise(); err != nil {
		return nil, err
	}
	if err := q.who(); err != nil {
		return nil, err
	}
	return q.s.registry.own(q.caller.app), nil
}

// reads is own for who wants to know what others have registered too.
func (q *request) reads() (*owned, error) {
	q.filter = q.query.Get("filter")
	o, err := q.own()
	if err != nil {
		return nil, err
	}
	return o, q.settled()
}

// agentSelf is GET /v1/agent/self.
func (q *request) agentSelf() (any, error) {
	if err := q.who(); err != nil {
		return nil, err
	}
	if q.caller.app.ID == "" {
		return nil, q.lacks("agent:read", q.s.node.Node)
	}
	services := strconv.Itoa(len(q.visible(q.s.registry.own(q.caller.app))))
	n, cfg := q.s.node, &q.s.cfg
	return map[string]any{
		"Config": map[string]any{
			"Datacenter": cfg.Cluster, "PrimaryDatacenter": cfg.Cluster, "NodeName": n.Node, "NodeID": n.ID,
			"Revision": "isthmus-" + cfg.Version, "Server": true, "Version": consulVersion, "BuildDate": buildDate,
		},
		"DebugConfig": map[string]any{"Datacenter": cfg.Cluster, "NodeName": n.Node, "ACLsEnabled": true, "Version": consulVersion},
		"Coord":       map[string]any{"Vec": make([]float64, 8), "Error": 1.5, "Adjustment": 0, "Height": 0.00001},
		"Member":      q.s.member(),
		"Stats":       map[string]any{"agent": map[string]string{"services": services}, "build": map[string]string{"version": consulVersion}},
		"Meta":        map[string]string{"consul-network-segment": "", "consul-version": consulVersion},
		"xDS":         nil,
	}, nil
}

// buildDate is what Consul says that was built without one.
const buildDate = "1970-01-01T00:00:01Z"

func (s *Server) member() map[string]any {
	return map[string]any{
		"Name": s.node.Node, "Addr": s.node.Address, "Port": 0, "Status": 1,
		"Tags":        map[string]string{"dc": s.cfg.Cluster, "id": s.node.ID, "role": "consul", "build": consulVersion + ":", "acls": "1"},
		"ProtocolMin": 1, "ProtocolMax": 5, "ProtocolCur": 2, "DelegateMin": 2, "DelegateMax": 5, "DelegateCur": 4,
	}
}

// agentVersion is GET /v1/agent/version, which asks for no token that is known.
func (q *request) agentVersion() (any, error) {
	return map[string]string{"SHA": "", "BuildDate": buildDate, "HumanVersion": consulVersion, "FIPS": ""}, nil
}

// agentMembers is GET /v1/agent/members.
func (q *request) agentMembers() (any, error) {
	if err := q.who(); err != nil {
		return nil, err
	}
	if q.caller.app.ID == "" {
		return []any{}, nil
	}
	return []any{q.s.member()}, nil
}

// statusLeader is GET /v1/status/leader, which asks for no token. Who waits for a leader
// waits until all is known that can be asked for.
func (q *request) statusLeader() (any, error) {
	if !q.s.settled() {
		return "", nil
	}
	return q.s.cfg.Address, nil
}

// statusPeers is GET /v1/status/peers.
func (q *request) statusPeers() (any, error) { return []string{q.s.cfg.Address}, nil }

// agentService is a service as its owner sees it.
func (s *Server) agentServiceOf(r *registered) *agentService {
	n := r.service
	a := &agentService{
		ID: n.ID, Service: n.Service, Tags: notNil(n.Tags), Meta: metaOf(n), Port: n.Port, Address: n.Address,
		TaggedAddresses: n.TaggedAddresses, Weights: n.Weights, EnableTagOverride: n.EnableTagOverride, Datacenter: s.cfg.Cluster,
	}
	return a
}

// agentServices is GET /v1/agent/services.
func (q *request) agentServices() (any, error) {
	o, err := q.reads()
	if err != nil {
		return nil, err
	}
	services := map[string]*agentService{}
	for _, r := range q.visible(o) {
		services[r.service.ID] = q.s.agentServiceOf(r)
	}
	return filtered(q, services)
}

// agentService is GET /v1/agent/service/:id, which blocks by the hash of its content.
func (q *request) agentService() (any, error) {
	if err := q.blocking(); err != nil {
		return nil, err
	}
	o, err := q.reads()
	if err != nil {
		return nil, err
	}
	var timer <-chan time.Time
	for {
		news, changed := follow(&q.caller.news), follow(&q.s.registry.changed)
		r := find(q.visible(o), q.path)
		if r == nil {
			return nil, &apiError{http.StatusNotFound, "unknown service ID: " + q.path}
		}
		service := q.s.agentServiceOf(r)
		service.ContentHash = contentHash(service)
		q.header.Set("X-Consul-ContentHash", service.ContentHash)
		if q.hash == "" || q.hash != service.ContentHash {
			return service, nil
		}
		if timer == nil {
			timer = time.After(q.limit())
		}
		if over, err := q.blocked(news, changed, timer); over || err != nil {
			return service, err
		}
	}
}

// contentHash is the same for the same content.
func contentHash(s *agentService) string {
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode(s) // of a type that can be
	return fmt.Sprintf("%x", h.Sum64())
}

// agentChecks is GET /v1/agent/checks.
func (q *request) agentChecks() (any, error) {
	o, err := q.reads()
	if err != nil {
		return nil, err
	}
	checks := map[string]*healthCheck{}
	for _, r := range q.visible(o) {
		for _, c := range r.checks {
			local := *c
			local.indexes = indexes{} // they are the catalog's
			checks[c.CheckID] = &local
		}
	}
	return q.filteredChecks(checks)
}

// state is a service's health as its owner sees it, with the code that says it.
func (s *Server) state(r *registered) (code int, checks *serviceChecks) {
	checks = &serviceChecks{AggregatedStatus: status(r.checks), Service: s.agentServiceOf(r), Checks: []agentCheck{}}
	for _, c := range r.checks {
		tags := c.ServiceTags
		if len(tags) == 0 {
			tags = nil
		}
		checks.Checks = append(checks.Checks, agentCheck{
			Node: c.Node, CheckID: c.CheckID, Name: c.Name, Status: c.Status, Notes: c.Notes, Output: c.Output,
			ServiceID: c.ServiceID, ServiceName: c.ServiceName, ServiceTags: tags,
			Definition: agentCheckDefinition{Interval: "0s", Timeout: "0s", DeregisterCriticalServiceAfter: "0s"},
		})
	}
	switch checks.AggregatedStatus {
	case passing:
		return http.StatusOK, checks
	case warning:
		return http.StatusTooManyRequests, checks
	}
	return http.StatusServiceUnavailable, checks
}

// wantsText tells whether the client wants the status alone.
func (q *request) wantsText() bool {
	return strings.HasPrefix(q.http.Header.Get("Accept"), "text/plain") || q.query.Get("format") == "text"
}

// health is an answer about health in the form that the client wants.
func (q *request) health(code int, status string, value any) *reply {
	if q.wantsText() {
		return &reply{code: code, reason: status, text: status}
	}
	return &reply{code: code, reason: status, value: value}
}

// agentHealthByID is GET /v1/agent/health/service/id/:id.
func (q *request) agentHealthByID() (any, error) {
	if q.path == "" {
		return nil, badRequest("Missing serviceID")
	}
	o, err := q.reads()
	if err != nil {
		return nil, err
	}
	if r := find(q.visible(o), q.path); r != nil {
		code, checks := q.s.state(r)
		return q.health(code, checks.AggregatedStatus, checks), nil
	}
	none := &serviceChecks{AggregatedStatus: critical}
	return q.health(http.StatusNotFound, "ServiceId "+q.path+" not found", none), nil
}

// agentHealthByName is GET /v1/agent/health/service/name/:name.
func (q *request) agentHealthByName() (any, error) {
	if q.path == "" {
		return nil, badRequest("Missing service Name")
	}
	o, err := q.reads()
	if err != nil {
		return nil, err
	}
	name, may := q.mayRead(q.path)
	if !may {
		return nil, q.lacks("service:read", q.path)
	}
	code, worst := http.StatusNotFound, "ServiceName "+q.path+" Not Found"
	services := []*serviceChecks{}
	for _, r := range q.visible(o) {
		if r.service.Service != name {
			continue
		}
		of, checks := q.s.state(r)
		services = append(services, checks)
		if code == http.StatusNotFound || code < of {
			code, worst = of, checks.AggregatedStatus
		}
	}
	return q.health(code, worst, services), nil
}

// sender is the address that the request comes from.
func (q *request) sender() netip.Addr {
	at, _ := netip.ParseAddrPort(q.http.RemoteAddr) // net/http writes it
	return at.Addr().Unmap()
}

// mayWrite refuses who may not write a service of a name.
func (q *request) mayWrite(name string) error {
	if q.caller.app.ID == "" || name != q.caller.app.ID {
		return q.lacks("service:write", name)
	}
	return nil
}

// registerService is PUT /v1/agent/service/register.
func (q *request) registerService() (any, error) {
	if err := q.enterprise(); err != nil {
		return nil, err
	}
	d := &serviceDefinition{}
	if err := q.decode(d); err != nil {
		return nil, err
	}
	if d.Name == "" {
		return nil, badRequest("Missing service name")
	}
	if ip, err := netip.ParseAddr(d.Address); err == nil && ip.IsUnspecified() {
		return nil, badRequest("Invalid service address")
	}
	if err := q.who(); err != nil {
		return nil, err
	}
	d.normalize()
	if err := d.validate(); err != nil {
		return nil, err
	}
	if err := q.mayWrite(d.Name); err != nil {
		return nil, err
	}
	if err := d.bounded(); err != nil {
		return nil, err
	}
	if q.s.cfg.Alone != "" {
		return nil, &apiError{http.StatusInternalServerError, q.s.cfg.Alone}
	}
	d.Token = ""
	replace := q.query.Has("replace-existing-checks") && slices.Contains([]string{"", "true"}, q.query.Get("replace-existing-checks"))
	return nil, q.s.registry.register(q.http.Context(), q.caller.app, d, q.sender(), replace)
}

// deregisterService is PUT /v1/agent/service/deregister/:id.
func (q *request) deregisterService() (any, error) {
	o, err := q.own()
	if err != nil {
		return nil, err
	}
	return nil, q.s.registry.deregister(q.http.Context(), o.app, q.path)
}

// maintainService is PUT /v1/agent/service/maintenance/:id.
func (q *request) maintainService() (any, error) {
	if q.path == "" {
		return nil, badRequest("Missing service ID")
	}
	if !q.query.Has("enable") {
		return nil, badRequest("Missing value for enable")
	}
	enable, err := strconv.ParseBool(q.query.Get("enable"))
	if err != nil {
		return nil, badRequest("Invalid value for enable: %q", q.query.Get("enable"))
	}
	o, err := q.own()
	if err != nil {
		return nil, err
	}
	return nil, q.s.registry.maintain(q.http.Context(), o, q.path, enable, q.query.Get("reason"))
}

// registerCheck is PUT /v1/agent/check/register.
func (q *request) registerCheck() (any, error) {
	if err := q.enterprise(); err != nil {
		return nil, err
	}
	d := &checkRegistration{}
	if err := q.decode(d); err != nil {
		return nil, err
	}
	d.normalize()
	if d.ServiceID == "" {
		d.ServiceID = d.ServiceIDSnake
	}
	if d.ID == "" {
		d.ID = d.Name
	}
	switch {
	case d.Name == "":
		return nil, badRequest("Missing check name")
	case d.Status != "" && !validStatus(d.Status):
		return nil, badRequest("Bad check status")
	case len(d.ID) > longestID:
		return nil, badRequest("Invalid check: its ID is longer than %d characters", longestID)
	}
	o, err := q.own()
	if err != nil {
		return nil, err
	}
	if err := d.validate(); err != nil {
		return nil, badRequest("Invalid check: %v", err)
	}
	if d.ServiceID == "" {
		return nil, q.lacks("node:write", q.s.node.Node)
	}
	if err := d.runnable(); err != nil {
		return nil, err
	}
	return nil, q.s.registry.addCheck(q.http.Context(), o, d)
}

// deregisterCheck is PUT /v1/agent/check/deregister/:id.
func (q *request) deregisterCheck() (any, error) {
	o, err := q.own()
	if err != nil {
		return nil, err
	}
	return nil, q.s.registry.removeCheck(q.http.Context(), o, q.path)
}

func (q *request) setCheck(status, output string) (any, error) {
	o, err := q.own()
	if err != nil {
		return nil, err
	}
	return nil, q.s.registry.update(q.http.Context(), o, q.path, status, output)
}

// passCheck, warnCheck and failCheck are PUT /v1/agent/check/pass/:id and its siblings.
func (q *request) passCheck() (any, error) { return q.setCheck(passing, q.query.Get("note")) }
func (q *request) warnCheck() (any, error) { return q.setCheck(warning, q.query.Get("note")) }
func (q *request) failCheck() (any, error) { return q.setCheck(critical, q.query.Get("note")) }

// updateCheck is PUT /v1/agent/check/update/:id.
func (q *request) updateCheck() (any, error) {
	var update struct{ Status, Output string }
	if err := q.decode(&update); err != nil {
		return nil, err
	}
	if !validStatus(update.Status) {
		return nil, badRequest("Invalid check status: '%s'", update.Status)
	}
	return q.setCheck(update.Status, update.Output)
}

// pretty is JSON for people.
func pretty(text []byte) []byte {
	var b bytes.Buffer
	if json.Indent(&b, text, "", "    ") != nil {
		return text
	}
	b.WriteByte('\n')
	return b.Bytes()
}
