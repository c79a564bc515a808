package consul

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"time"
	"unique"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/consul/agent"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// callTimeout bounds a question that waits for nothing. Consul itself waits some 10 s for
// a leader before it says that there is none.
const callTimeout = 20 * time.Second

// service is one that counts, as it was read last.
type service struct {
	instances map[topology.InstanceKey]catalog.Instance
	nodes     map[string]bool // that have an instance of it
	refused   []instances.Refusal
}

// read reads a service with its health: what one moment was like. A server that has just
// come to lead may answer with what it knew before it has caught up: so what takes something
// away from what was known, which is nil for nothing, is asked for again, of a leader that
// has made sure.
func (s *Source) read(ctx context.Context, name string, was *service) (service, error) {
	if was != nil {
		now, err := s.readOnce(ctx, name, &api.QueryOptions{})
		if err != nil || !was.better(now) {
			return now, err
		}
	}
	return s.readOnce(ctx, name, &api.QueryOptions{RequireConsistent: true})
}

func (s *Source) readOnce(ctx context.Context, name string, options *api.QueryOptions) (service, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	entries, meta, err := s.client.Health().Service(name, s.config.Tag, false, options.WithContext(ctx))
	if err == nil {
		err = agent.Believe(meta)
	}
	if err != nil {
		return service{}, fmt.Errorf("read service %.100s: %w", name, err)
	}
	return s.config.service(name, entries), nil
}

// better tells whether a service has an instance ready that another state has not.
func (s *service) better(than service) bool {
	for key, i := range s.instances {
		if now, stands := than.instances[key]; !stands || now.Draining && !i.Draining {
			return true
		}
	}
	return false
}

// service is what the entries of a service come to.
func (c *Config) service(name string, entries []*api.ServiceEntry) service {
	now := service{instances: map[topology.InstanceKey]catalog.Instance{}, nodes: map[string]bool{}}
	for _, e := range entries {
		if e == nil || e.Node == nil || e.Service == nil || e.Service.Kind != api.ServiceKindTypical {
			continue // a proxy of Consul's mesh, which has the metadata of its service
		}
		now.nodes[e.Node.Node] = true
		i, err := c.instance(name, e)
		if err != nil {
			now.refused = append(now.refused, instances.Refusal{
				Where: fmt.Sprintf("service %.100s, instance %.100s on node %.100s", name, e.Service.ID, e.Node.Node), Err: err,
			})
			continue
		}
		now.instances[topology.KeyOf(&i)] = i
	}
	return now
}

// instance is one entry of a service. A service's ID is unique on its node only.
func (c *Config) instance(name string, e *api.ServiceEntry) (catalog.Instance, error) {
	i := catalog.Instance{
		ID: e.Node.Node + "/" + e.Service.ID, App: catalog.App{Namespace: c.AppNamespace, ID: name}, Draining: !c.ready(e.Checks),
		Since: int64(min(e.Service.CreateIndex, math.MaxInt64)), // nothing in Consul says more of when one came up
	}
	if ns := e.Service.Meta[c.NamespaceMeta]; c.NamespaceMeta != "" && ns != "" {
		i.App.Namespace = ns
	}
	i.Version = unique.Make(e.Service.Meta[c.VersionMeta]).Value()
	if c.ZoneMeta != "" {
		if i.Zone = e.Service.Meta[c.ZoneMeta]; i.Zone == "" {
			i.Zone = e.Node.Meta[c.ZoneMeta]
		}
	}
	text, ok := e.Service.Meta[c.PortMeta]
	if !ok {
		return i, fmt.Errorf("it has no %s in its metadata, which other instances of the service have", c.PortMeta)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return i, fmt.Errorf("%s is %.40q; want the port of the sidecar's internal server", c.PortMeta, text)
	}
	host := e.Service.Address
	if host == "" {
		host = e.Node.Address
	}
	if host == "" {
		return i, errors.New("neither it nor its node has an address")
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return i, fmt.Errorf("its address %.100q is no IP; register it with the IP that its sidecar listens on", host)
	}
	i.Address = netip.AddrPortFrom(address.Unmap(), uint16(port))
	return i, nil
}

// ready tells whether an instance takes new calls by its checks, those of its node among
// them; maintenance is a check that is critical.
func (c *Config) ready(checks api.HealthChecks) bool {
	for _, check := range checks {
		if check.Status != api.HealthPassing && (check.Status != api.HealthWarning || !c.WarningIsReady) {
			return false
		}
	}
	return true
}
