package consulapi

import (
	"slices"

	"github.com/hashicorp/consul/api"
)

// catalogDatacenters is GET /v1/catalog/datacenters: this cluster, and those that the
// caller's view leads to.
func (q *request) catalogDatacenters() (any, error) {
	if err := q.settled(); err != nil {
		return nil, err
	}
	clusters := []string{q.s.cfg.Cluster}
	if view, ok := q.caller.look(); ok {
		for name := range view.Gateways.Addresses {
			clusters = append(clusters, name)
		}
	}
	slices.Sort(clusters[1:])
	return slices.Compact(clusters), nil
}

// catalogNodes is GET /v1/catalog/nodes.
func (q *request) catalogNodes() (any, error) {
	if err := tryFilter[*api.Node](q); err != nil {
		return nil, err
	}
	if err := q.ready(); err != nil {
		return nil, err
	}
	r, err := q.whole("nodes", (*scope).nodes)
	if err != nil {
		return nil, err
	}
	return filtered(q, r.value.([]*api.Node))
}

// catalogServices is GET /v1/catalog/services: the names that the caller may see, and
// the tags of each.
func (q *request) catalogServices() (any, error) {
	if q.filter != "" {
		return nil, badRequest("catalog/services takes no filter here; ask catalog/service/<name> with one")
	}
	if err := q.ready(); err != nil {
		return nil, err
	}
	r, err := q.whole("services", (*scope).tags)
	if err != nil {
		return nil, err
	}
	return r.value, nil
}

// catalogService is GET /v1/catalog/service/:service.
func (q *request) catalogService() (any, error) {
	r, err := named[*api.CatalogService](q)
	if err != nil {
		return nil, err
	}
	all := []*api.CatalogService{}
	for _, e := range tagged(q, r.entries) {
		n, s := e.Node, e.Service
		all = append(all, &api.CatalogService{
			ID: n.ID, Node: n.Node, Address: n.Address, Datacenter: n.Datacenter, TaggedAddresses: n.TaggedAddresses, NodeMeta: n.Meta,
			ServiceID: s.ID, ServiceName: s.Service, ServiceTags: s.Tags, ServiceAddress: s.Address,
			ServiceTaggedAddresses: s.TaggedAddresses, ServiceWeights: api.Weights{Passing: s.Weights.Passing, Warning: s.Weights.Warning},
			ServiceMeta: s.Meta, ServicePort: s.Port, ServiceEnableTagOverride: s.EnableTagOverride, CreateIndex: s.CreateIndex, ModifyIndex: s.ModifyIndex,
		})
	}
	return filtered(q, all)
}
