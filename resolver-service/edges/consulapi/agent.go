package consulapi

import (
	"fmt"
	"net/http"

	"github.com/hashicorp/consul/api"
)

// agentSelf is GET /v1/agent/self.
func (q *request) agentSelf() (any, error) {
	if q.caller.nobody() {
		return nil, q.denied("read the agent")
	}
	n, cfg := q.s.node, &q.s.cfg
	return map[string]map[string]any{
		"Config": {
			"Datacenter": cfg.Cluster, "PrimaryDatacenter": cfg.Cluster, "NodeName": n.Node, "NodeID": n.ID,
			"Revision": "isthmus-" + cfg.Version, "Server": true, "Version": consulVersion,
		},
		"Member": {
			"Name": n.Node, "Addr": n.Address, "Port": 0, "Status": 1,
			"Tags": map[string]string{"dc": cfg.Cluster, "id": n.ID, "role": "consul", "build": consulVersion + ":"},
		},
		"Meta": {"consul-version": consulVersion},
	}, nil
}

// agentServices is GET /v1/agent/services: those that the caller has registered here.
func (q *request) agentServices() (any, error) {
	services := map[string]*api.AgentService{}
	for _, r := range q.s.registry.rosterOf(q.caller.app).services {
		services[r.service.ID] = r.service
	}
	return filtered(q, services)
}

// denied is Consul's answer to a caller that may not do something, and counts it.
func (q *request) denied(what string) error {
	q.s.metrics.denied.WithLabelValues(noPermission).Inc()
	if q.caller.nobody() {
		return &apiError{http.StatusForbidden, "Permission denied: without a token nobody may " + what + "; give the client a token that isthmus.yaml has in consul.tokens"}
	}
	return &apiError{http.StatusForbidden, fmt.Sprintf("Permission denied: the token of %s may not %s", q.caller.app, what)}
}

// registerService is PUT /v1/agent/service/register.
func (q *request) registerService() (any, error) {
	d := &api.AgentServiceRegistration{}
	if err := q.decode(d); err != nil {
		return nil, err
	}
	switch {
	case d.Name == "":
		return nil, badRequest("Missing service name")
	case q.caller.nobody() || d.Name != q.caller.app.ID:
		return nil, q.denied(fmt.Sprintf("register a service named %s: a service has the app-id of its token as name", quoted(d.Name)))
	case q.s.cfg.Alone != "":
		return nil, &apiError{http.StatusInternalServerError, q.s.cfg.Alone}
	}
	return nil, q.s.registry.register(q.http.Context(), q.caller.app, d, q.sender())
}

// deregisterService is PUT /v1/agent/service/deregister/:id.
func (q *request) deregisterService() (any, error) {
	return nil, q.s.registry.deregister(q.http.Context(), q.caller.app, q.name)
}

// updateCheck is PUT /v1/agent/check/update/:id.
func (q *request) updateCheck() (any, error) {
	var update struct{ Status, Output string }
	if err := q.decode(&update); err != nil {
		return nil, err
	}
	if !validStatus(update.Status) {
		return nil, badRequest("Invalid check status: %s", quoted(update.Status))
	}
	return nil, q.s.registry.update(q.http.Context(), q.caller.app, q.name, update.Status, update.Output)
}
