package xds

import (
	"iter"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	inspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// The resources of a gateway that are not an app's.
const (
	gatewayListener = "isthmus-gateway"
	peeringCluster  = "isthmus-peering" // this cluster's resolver service, for those of others
)

// Envoy's own bounds.
const (
	helloTimeout   = 5 * time.Second // until the server name is there
	connectTimeout = 2 * time.Second
)

// gatewayMaker makes the resources of Envoys that are gateways of this cluster. They pass TLS
// through by its server name, as Isthmus' own gateway does.
type gatewayMaker struct {
	listen  netip.AddrPort
	peering string // "ip:port" of this cluster's resolver service for its peers; empty: not through here
}

// gatewayState is what a gateway follows: the exported apps.
type gatewayState struct {
	*gatewayMaker
	table *catalog.GatewayTable
	made  sync.Map // resources by gatewayKey, for all gateways
}

type gatewayKey struct {
	kind kind
	name resourceName
}

func (s *gatewayState) revision() uint64 { return s.table.Revision }

func (s *gatewayState) same(old state) bool {
	o, ok := old.(*gatewayState)
	return ok && s.table == o.table
}

func (s *gatewayState) names(k kind) iter.Seq[resourceName] {
	return func(yield func(resourceName) bool) {
		switch k {
		case listeners:
			yield(resourceName{other: gatewayListener})
			return
		case routes:
			return
		case clusters:
			if s.peering != "" && !yield(resourceName{other: peeringCluster}) {
				return
			}
		}
		for app := range s.table.Backends.All() {
			if !yield(resourceName{app: app}) {
				return
			}
		}
	}
}

func (s *gatewayState) changed(k kind, old state) iter.Seq[resourceName] {
	o, ok := old.(*gatewayState)
	if !ok {
		return s.names(k)
	}
	same := func(a, b *catalog.Backend) bool { return k != endpoints || slices.Equal(a.Instances, b.Instances) }
	return func(yield func(resourceName) bool) {
		for edit := range s.table.Backends.Diff(&o.table.Backends, same) {
			if k == listeners { // any export that comes or goes
				yield(resourceName{other: gatewayListener})
				return
			}
			if !yield(resourceName{app: edit.App}) {
				return
			}
		}
	}
}

func (s *gatewayState) resource(k kind, n resourceName) *resource {
	key := gatewayKey{k, n}
	if r, ok := s.made.Load(key); ok {
		return r.(*resource)
	}
	r := s.make(k, n)
	if r != nil {
		s.made.Store(key, r)
	}
	return r
}

func (s *gatewayState) make(k kind, n resourceName) *resource {
	if n.other != "" {
		switch {
		case k == listeners && n.other == gatewayListener:
			return made(n.other, s.listener())
		case k == clusters && n.other == peeringCluster && s.peering != "":
			return made(n.other, s.peeringCluster())
		}
		return nil
	}
	b, ok := s.table.Backends.Get(n.app)
	if !ok || n.cluster != "" {
		return nil
	}
	switch name := n.String(); k {
	case clusters:
		return made(name, &clusterv3.Cluster{
			Name:                 name,
			ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
			EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads, ServiceName: name},
			ConnectTimeout:       durationpb.New(connectTimeout),
			LbPolicy:             clusterv3.Cluster_LEAST_REQUEST,
		})
	case endpoints:
		return made(name, instancesOf(name, b))
	default:
		return nil
	}
}

func instancesOf(name string, b *catalog.Backend) *endpointv3.ClusterLoadAssignment {
	all := &endpointv3.ClusterLoadAssignment{ClusterName: name}
	var ready []*endpointv3.LbEndpoint
	for _, address := range b.Instances {
		if e := endpointAt(address, ""); e != nil {
			ready = append(ready, e)
		}
	}
	if len(ready) > 0 {
		all.Endpoints = []*endpointv3.LocalityLbEndpoints{{LbEndpoints: ready}}
	}
	return all
}

func (s *gatewayState) peeringCluster() *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 peeringCluster,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:       durationpb.New(connectTimeout),
		LoadAssignment: &endpointv3.ClusterLoadAssignment{ClusterName: peeringCluster, Endpoints: []*endpointv3.LocalityLbEndpoints{{
			LbEndpoints: []*endpointv3.LbEndpoint{endpointAt(s.peering, "")},
		}}},
	}
}

// listener has a chain of filters for each exported app. Who names no such app is disconnected.
func (s *gatewayState) listener() *listenerv3.Listener {
	l := &listenerv3.Listener{
		Name:    gatewayListener,
		Address: socket(s.listen.Addr().String(), s.listen.Port()),
		ListenerFilters: []*listenerv3.ListenerFilter{{
			Name:       "envoy.filters.listener.tls_inspector",
			ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: packed(&inspectorv3.TlsInspector{})},
		}},
		ListenerFiltersTimeout: durationpb.New(helloTimeout),
	}
	if s.peering != "" {
		l.FilterChains = append(l.FilterChains, chain(peeringCluster, []string{s.table.Domain.PeerHost(s.table.Cluster)}))
	}
	apps := make([]catalog.App, 0, s.table.Backends.Len())
	for app := range s.table.Backends.All() {
		apps = append(apps, app)
	}
	slices.SortFunc(apps, catalog.App.Compare)
	for _, app := range apps {
		l.FilterChains = append(l.FilterChains, chain(resourceName{app: app}.String(), s.hosts(app)))
	}
	return l
}

// hosts are the server names that lead to an app: those of [catalog.GatewayTable.Lookup]. Below
// an app's name are those of its shards and instances.
func (s *gatewayState) hosts(app catalog.App) []string {
	host := s.table.Domain.Host(app, s.table.Cluster)
	all := []string{host, "*." + host, app.ID + "." + app.Namespace + "." + string(s.table.Domain)}
	if k := s.table.Kubernetes; k != "" {
		all = append(all, k.Host(app))
	}
	return all
}

func chain(cluster string, hosts []string) *listenerv3.FilterChain {
	return &listenerv3.FilterChain{
		Name:             cluster,
		FilterChainMatch: &listenerv3.FilterChainMatch{ServerNames: hosts},
		Filters: []*listenerv3.Filter{{
			Name: "envoy.filters.network.tcp_proxy",
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed(&tcpv3.TcpProxy{
				StatPrefix: cluster, ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: cluster},
			})},
		}},
	}
}

func socket(ip string, port uint16) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}
}

// endpointAt is nil for what is no "ip:port". host is its server name, if a client is to send one.
func endpointAt(address, host string) *endpointv3.LbEndpoint {
	ip, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if _, bad := netip.ParseAddr(ip); err != nil || bad != nil {
		return nil
	}
	return &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
		Hostname: host, Address: socket(ip, uint16(port)),
	}}}
}
