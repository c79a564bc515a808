package xds

import (
	"encoding/base64"
	"hash/fnv"
	"regexp"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// kind is a type of resources, in the order in which clients get them: what others refer to comes
// first.
type kind int

const (
	clusters kind = iota
	endpoints
	listeners
	routes
	kinds
)

const typePrefix = "type.googleapis.com/"

// url is the type as requests name it.
func (k kind) url() string {
	return [kinds]string{
		typePrefix + "envoy.config.cluster.v3.Cluster", typePrefix + "envoy.config.endpoint.v3.ClusterLoadAssignment",
		typePrefix + "envoy.config.listener.v3.Listener", typePrefix + "envoy.config.route.v3.RouteConfiguration",
	}[k]
}

// short is the type as people call it.
func (k kind) short() string { return [kinds]string{"CDS", "EDS", "LDS", "RDS"}[k] }

// whole tells whether a response of the state of the world has all resources of the type: one
// that is missing is gone.
func (k kind) whole() bool { return k == clusters || k == listeners }

func kindOf(url string) (kind, bool) {
	for k := range kinds {
		if k.url() == url {
			return k, true
		}
	}
	return 0, false
}

// ads says that a resource comes by the stream that has the reference to it.
var ads = &corev3.ConfigSource{
	ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	ResourceApiVersion:    corev3.ApiVersion_V3,
}

// deterministic makes equal resources equal bytes, in every replica of the same version.
var deterministic = proto.MarshalOptions{Deterministic: true}

func packed(m proto.Message) *anypb.Any {
	value, err := deterministic.Marshal(m)
	if err != nil {
		panic("xds: " + err.Error()) // only a text that is not UTF-8 does this, and names are checked
	}
	return &anypb.Any{TypeUrl: typePrefix + string(m.ProtoReflect().Descriptor().FullName()), Value: value}
}

// made encodes a resource.
func made(name string, m proto.Message) *resource {
	a := packed(m)
	h := fnv.New128a()
	h.Write(a.Value)
	return &resource{
		name: name, version: base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:12]),
		any: appendBytes(appendString(make([]byte, 0, len(a.TypeUrl)+len(a.Value)+8), anyType, a.TypeUrl), anyValue, a.Value),
	}
}

// maker makes the resources of one cluster's clients.
type maker struct {
	domain   catalog.Domain
	cluster  string // this one
	provider string // of certificates; empty: plain text
}

// gatewaysOf returns the addresses of the gateways that a route to an app leads through.
type gatewaysOf func(r *catalog.Route, app catalog.App) []string

// resource makes a resource of an app for the clients of a view.
func (m *maker) resource(k kind, n resourceName, plan *catalog.Plan, gateways gatewaysOf) *resource {
	name := n.String()
	switch k {
	case clusters:
		return made(name, m.clusterOf(name, plan.App))
	case listeners:
		return made(name, listenerOf(name))
	case routes:
		return made(name, routesOf(name))
	default:
		return made(name, m.endpointsOf(name, n, plan, gateways))
	}
}

func (m *maker) clusterOf(name string, app catalog.App) *clusterv3.Cluster {
	c := &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads, ServiceName: name},
		LbPolicy:             clusterv3.Cluster_ROUND_ROBIN,
	}
	if m.provider != "" {
		c.TransportSocket = &corev3.TransportSocket{
			Name:       "envoy.transport_sockets.tls",
			ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: packed(m.tls(app))},
		}
	}
	return c
}

// tls has a client check the app's certificate by Dapr's rule: the path of the SPIFFE ID counts,
// the trust domain does not. gRPC reads the rule from the older of two fields, and ignores the
// newer one (gRFC A29). Gateways choose by the server name, which is that of each endpoint (gRFC
// A101).
func (m *maker) tls(app catalog.App) *tlsv3.UpstreamTlsContext {
	path := "spiffe://[^/]+/ns/" + regexp.QuoteMeta(app.Namespace) + "/" + regexp.QuoteMeta(app.ID)
	certificates := func(name string) *tlsv3.CertificateProviderPluginInstance {
		return &tlsv3.CertificateProviderPluginInstance{InstanceName: m.provider, CertificateName: name}
	}
	return &tlsv3.UpstreamTlsContext{
		AutoHostSni: true,
		CommonTlsContext: &tlsv3.CommonTlsContext{
			TlsCertificateProviderInstance: certificates(""),
			ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
				CaCertificateProviderInstance: certificates(""),
				//lint:ignore SA1019 see above
				MatchSubjectAltNames: []*matcherv3.StringMatcher{{
					MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: path}},
				}},
			}},
		},
	}
}

func listenerOf(name string) *listenerv3.Listener {
	return &listenerv3.Listener{Name: name, ApiListener: &listenerv3.ApiListener{ApiListener: packed(&managerv3.HttpConnectionManager{
		StatPrefix:     name,
		RouteSpecifier: &managerv3.HttpConnectionManager_Rds{Rds: &managerv3.Rds{ConfigSource: ads, RouteConfigName: name}},
		HttpFilters: []*managerv3.HttpFilter{{
			Name: "envoy.filters.http.router", ConfigType: &managerv3.HttpFilter_TypedConfig{TypedConfig: packed(&routerv3.Router{})},
		}},
	})}}
}

func routesOf(name string) *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{
		Name: name, Domains: []string{"*"},
		Routes: []*routev3.Route{{
			Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{}},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: name}}},
		}},
	}}}
}

// endpointsOf has a locality for each usable route. Priorities are numbered from 0 without gaps,
// as clients want them.
func (m *maker) endpointsOf(name string, n resourceName, plan *catalog.Plan, gateways gatewaysOf) *endpointv3.ClusterLoadAssignment {
	all := &endpointv3.ClusterLoadAssignment{ClusterName: name}
	priority, last := uint32(0), uint32(0)
	places := plan.Places(nil)
	for i := range plan.Routes {
		r := &plan.Routes[i]
		if !r.Usable() || n.cluster != "" && r.Cluster != n.cluster {
			continue
		}
		lb := m.endpointsBehind(plan.App, r, gateways)
		if len(lb) == 0 {
			continue
		}
		if len(all.Endpoints) > 0 && places[i].Priority != last {
			priority++
		}
		last = places[i].Priority
		all.Endpoints = append(all.Endpoints, &endpointv3.LocalityLbEndpoints{
			Locality:            &corev3.Locality{Region: r.Cluster},
			Priority:            priority,
			LoadBalancingWeight: wrapperspb.UInt32(places[i].Weight),
			LbEndpoints:         lb,
		})
	}
	return all
}

// endpointsBehind are the instances of a route, or the gateways that lead to them. Clients refuse
// a resource that has an address twice.
func (m *maker) endpointsBehind(app catalog.App, r *catalog.Route, gateways gatewaysOf) []*endpointv3.LbEndpoint {
	addresses := r.Addresses
	if r.Gateway {
		addresses = gateways(r, app)
	}
	host := r.ServerName(m.domain, app)
	all := make([]*endpointv3.LbEndpoint, 0, len(addresses))
	for i, a := range addresses {
		if slices.Contains(addresses[:i], a) {
			continue
		}
		if e := endpointAt(a, host); e != nil {
			all = append(all, e)
		}
	}
	return all
}

// empty is a resource without endpoints.
func (m *maker) empty(n resourceName) *resource {
	name := n.String()
	return made(name, &endpointv3.ClusterLoadAssignment{ClusterName: name})
}
