package consulapi

import (
	"cmp"
	"slices"
	"strings"
)

// catalogDatacenters is GET /v1/catalog/datacenters: this cluster, and those that the
// caller's view leads to.
func (q *request) catalogDatacenters() (any, error) {
	if err := q.consistent(); err != nil {
		return nil, err
	}
	clusters := []string{q.s.cfg.Cluster}
	if q.who() == nil {
		if err := q.settled(); err != nil {
			return nil, err
		}
		if view, ok := q.caller.look(); ok {
			for name := range view.Gateways.Addresses {
				clusters = append(clusters, name)
			}
		}
	}
	slices.Sort(clusters[1:])
	return slices.Compact(clusters), nil
}

// catalogNodes is GET /v1/catalog/nodes.
func (q *request) catalogNodes() (any, error) {
	if err := q.begin(""); err != nil {
		return nil, err
	}
	if err := tryFilter[*node](q); err != nil {
		return nil, err
	}
	r, err := q.ofAll("nodes\x00"+q.dc, func(w *world) any { return w.nodes(q.dc) })
	if err != nil {
		return nil, err
	}
	q.meta(r.index)
	nodes := slices.DeleteFunc(slices.Clone(r.value.([]*node)), func(n *node) bool { return !q.nodeMatches(n) })
	return filtered(q, nodes)
}

// nodes are those that a caller may know of in a cluster: this one's is the agent's, that
// of another one is its gateway.
func (w *world) nodes(dc string) []*node {
	switch {
	case w.caller.app.ID == "":
		return []*node{}
	case dc != "":
		return []*node{w.s.clusterNode(w.view, dc)}
	}
	nodes := []*node{w.s.node}
	for cluster := range w.view.Gateways.Addresses {
		nodes = append(nodes, w.s.clusterNode(w.view, cluster))
	}
	slices.SortFunc(nodes, func(a, b *node) int { return strings.Compare(a.Node, b.Node) })
	return nodes
}

// catalogServices is GET /v1/catalog/services: the names that the caller may see, and
// the tags of each.
func (q *request) catalogServices() (any, error) {
	if err := q.begin(""); err != nil {
		return nil, err
	}
	r, err := q.ofAll("services\x00"+q.dc, func(w *world) any { return w.tags(q.dc) })
	if err != nil {
		return nil, err
	}
	q.meta(r.index)
	services := r.value.(map[string][]string)
	if q.filter == "" {
		return services, nil
	}
	return q.filteredServices(services)
}

// tags has the tags of each service.
func (w *world) tags(dc string) map[string][]string {
	services := map[string][]string{}
	for _, name := range w.names() {
		entries := w.service(name, dc)
		if len(entries) == 0 {
			continue
		}
		tags := []string{}
		for _, e := range entries {
			tags = append(tags, e.Service.Tags...)
		}
		slices.Sort(tags)
		services[name] = slices.Compact(tags)
	}
	return services
}

// filteredServices are those of which an instance gets through the filter.
func (q *request) filteredServices(services map[string][]string) (any, error) {
	if err := tryFilter[*serviceNode](q); err != nil {
		return nil, err
	}
	kept := map[string][]string{}
	for name := range services {
		r := q.s.service(q.caller, name, q.dc)
		if r == nil {
			return nil, errNoLeader
		}
		all, err := filtered(q, serviceNodes(r.entries))
		if err != nil {
			return nil, err
		}
		if len(all) > 0 {
			kept[name] = services[name]
		}
	}
	return kept, nil
}

// catalogService is GET /v1/catalog/service/:service.
func (q *request) catalogService() (any, error) {
	if err := q.begin("service name"); err != nil {
		return nil, err
	}
	r, err := ofPath[*serviceNode](q)
	if err != nil {
		return nil, err
	}
	entries := slices.DeleteFunc(slices.Clone(r.entries), func(e *entry) bool {
		return !q.tagged(e.Service.Tags) || !q.nodeMatches(e.Node)
	})
	return filtered(q, serviceNodes(entries))
}

func serviceNodes(entries []*entry) []*serviceNode {
	all := make([]*serviceNode, 0, len(entries))
	for _, e := range entries {
		n, s := e.Node, e.Service
		all = append(all, &serviceNode{
			ID: n.ID, Node: n.Node, Address: n.Address, Datacenter: n.Datacenter, TaggedAddresses: n.TaggedAddresses, NodeMeta: n.Meta,
			ServiceID: s.ID, ServiceName: s.Service, ServiceTags: notNil(s.Tags), ServiceAddress: s.Address,
			ServiceTaggedAddresses: s.TaggedAddresses, ServiceWeights: s.Weights, ServiceMeta: metaOf(s), ServicePort: s.Port,
			ServiceEnableTagOverride: s.EnableTagOverride, indexes: s.indexes,
		})
	}
	return all
}

func notNil(tags []string) []string {
	if tags == nil {
		return []string{}
	}
	return tags
}

// metaOf is a service's metadata as the catalog has it: there it is never null.
func metaOf(s *nodeService) map[string]string {
	if s.Meta == nil {
		return map[string]string{}
	}
	return s.Meta
}

// onNode has the services on a node; its node is nil where the caller knows none of that
// name.
func (q *request) onNode() (*nodeServiceList, error) {
	if err := q.begin("node name"); err != nil {
		return nil, err
	}
	r, err := q.ofAll("node\x00"+q.dc, func(w *world) any {
		var all []*entry
		for _, name := range w.names() {
			all = append(all, w.service(name, q.dc)...)
		}
		return &onNodes{w.nodes(q.dc), all}
	})
	if err != nil {
		return nil, err
	}
	known := r.value.(*onNodes)
	list := &nodeServiceList{}
	for _, n := range known.Nodes {
		if n.Node == q.path {
			list.Node, list.Services = n, []*nodeService{}
		}
	}
	for _, e := range known.Entries {
		if e.Node.Node == q.path {
			list.Services = append(list.Services, e.Service)
		}
	}
	slices.SortFunc(list.Services, func(a, b *nodeService) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), q.foreign(a)-q.foreign(b), strings.Compare(a.Service, b.Service))
	})
	q.meta(r.index)
	return list, nil
}

// foreign is 0 for a service of the caller's own, and 1 for others.
func (q *request) foreign(s *nodeService) int {
	if s.Service == q.caller.app.ID {
		return 0
	}
	return 1
}

// onNodes is everything that a caller may see, with the nodes.
type onNodes struct {
	Nodes   []*node
	Entries []*entry
}

// catalogNode is GET /v1/catalog/node/:node.
func (q *request) catalogNode() (any, error) {
	list, err := q.onNode()
	if err != nil {
		return nil, err
	}
	if list.Node == nil {
		return &reply{code: 200, raw: []byte("null")}, nil
	}
	services, ids := map[string]*nodeService{}, map[string]bool{}
	for _, s := range list.Services {
		if id := free(ids, s.ID, s.Service); id != s.ID {
			again := *s
			again.ID = id
			s = &again
		}
		services[s.ID] = s
	}
	if services, err = filtered(q, services); err != nil {
		return nil, err
	}
	return &nodeServices{list.Node, services}, nil
}

// catalogNodeServices is GET /v1/catalog/node-services/:node.
func (q *request) catalogNodeServices() (any, error) {
	list, err := q.onNode()
	if err != nil {
		return nil, err
	}
	if list.Node == nil {
		return list, nil
	}
	if list.Services, err = filtered(q, list.Services); err != nil {
		return nil, err
	}
	return list, nil
}

// catalogWrite is PUT /v1/catalog/register and deregister: nodes are not for tokens of
// services to write.
func (q *request) catalogWrite() (any, error) {
	if err := q.who(); err != nil {
		return nil, err
	}
	return nil, q.lacks("node:write", q.s.node.Node)
}
