package xds

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

const (
	clusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	endpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	listenerType = "type.googleapis.com/envoy.config.listener.v3.Listener"
)

// envoy follows a gateway's resources as Envoy does: clusters and listeners all, and the endpoints
// of the clusters that it has.
type envoy struct {
	t       *testing.T
	send    func(url, nonce string, subscribe, unsubscribe, all []string) error
	receive func() (url, nonce string, resources []*anypb.Any, removed []string, err error)
	whole   bool // a response has all clusters, or all listeners

	clusters  map[string]bool
	endpoints map[string][]string // addresses by cluster
	listener  *listenerv3.Listener
	nonces    map[string]string
}

// ingress is the app that deploy/envoy/bootstrap.yaml names.
var ingress = catalog.App{Namespace: "mesh", ID: "ingress"}

// envoy opens a stream with a gateway's certificate.
func (m *mesh) envoy(t *testing.T, delta bool) *envoy {
	t.Helper()
	dir := m.certificate(ingress)
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(m.authority.Anchors())
	conn, err := grpc.NewClient("passthrough:///"+m.xds, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS12,
	})))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*meshtest.Patience)
	t.Cleanup(func() { cancel(); conn.Close() })
	e := &envoy{t: t, whole: !delta, clusters: map[string]bool{}, endpoints: map[string][]string{}, nonces: map[string]string{}}
	node := &corev3.Node{Id: ingress.String(), Cluster: "isthmus-gateway"}
	ads := discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
	if delta {
		stream, err := ads.DeltaAggregatedResources(ctx)
		if err != nil {
			t.Fatal(err)
		}
		e.send = func(url, nonce string, subscribe, unsubscribe, _ []string) error {
			return stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: url, ResponseNonce: nonce, ResourceNamesSubscribe: subscribe, ResourceNamesUnsubscribe: unsubscribe})
		}
		e.receive = func() (string, string, []*anypb.Any, []string, error) {
			m, err := stream.Recv()
			var all []*anypb.Any
			for _, r := range m.GetResources() {
				all = append(all, r.GetResource())
			}
			return m.GetTypeUrl(), m.GetNonce(), all, m.GetRemovedResources(), err
		}
	} else {
		stream, err := ads.StreamAggregatedResources(ctx)
		if err != nil {
			t.Fatal(err)
		}
		e.send = func(url, nonce string, _, _, all []string) error {
			return stream.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: url, ResponseNonce: nonce, ResourceNames: all})
		}
		e.receive = func() (string, string, []*anypb.Any, []string, error) {
			m, err := stream.Recv()
			return m.GetTypeUrl(), m.GetNonce(), m.GetResources(), nil, err
		}
	}
	e.ask(clusterType, "", nil, nil)
	e.ask(listenerType, "", nil, nil)
	return e
}

// ask sends a request; names are those of endpoints.
func (e *envoy) ask(url, nonce string, subscribe, unsubscribe []string) {
	e.t.Helper()
	var all []string
	if url == endpointType {
		all = slices.Sorted(maps.Keys(e.endpoints))
	}
	if err := e.send(url, nonce, subscribe, unsubscribe, all); err != nil {
		e.t.Fatal(err)
	}
}

// until takes responses until something holds. All the while each chain of filters leads to a
// cluster that the client has.
func (e *envoy) until(what string, holds func() bool) {
	e.t.Helper()
	for !holds() {
		url, nonce, resources, removed, err := e.receive()
		if err != nil {
			e.t.Fatalf("%s: %v; it has clusters %v, endpoints %v, chains %v", what, err, e.clusters, e.endpoints, e.chains())
		}
		e.take(url, resources, removed)
		e.nonces[url] = nonce
		e.ask(url, nonce, nil, nil)
		for name := range e.chains() {
			if !e.clusters[name] {
				e.t.Fatalf("%s: the listener leads to cluster %s before it is there or after it went", what, name)
			}
		}
		if url == clusterType {
			e.followEndpoints()
		}
	}
}

func (e *envoy) take(url string, resources []*anypb.Any, removed []string) {
	e.t.Helper()
	if e.whole && url == clusterType {
		clear(e.clusters)
	}
	for _, r := range resources {
		m, err := r.UnmarshalNew()
		if err != nil {
			e.t.Fatal(err)
		}
		if err := m.(interface{ ValidateAll() error }).ValidateAll(); err != nil {
			e.t.Errorf("Envoy would refuse this: %v", err)
		}
		switch m := m.(type) {
		case *clusterv3.Cluster:
			e.clusters[m.GetName()] = m.GetType() == clusterv3.Cluster_EDS || m.GetLoadAssignment() != nil
		case *endpointv3.ClusterLoadAssignment:
			e.endpoints[m.GetClusterName()] = addresses(m)
		case *listenerv3.Listener:
			e.listener = m
		}
	}
	for _, name := range removed {
		if url == clusterType {
			delete(e.clusters, name)
		}
	}
}

func addresses(m *endpointv3.ClusterLoadAssignment) (all []string) {
	for _, l := range m.GetEndpoints() {
		for _, lb := range l.GetLbEndpoints() {
			a := lb.GetEndpoint().GetAddress().GetSocketAddress()
			all = append(all, net.JoinHostPort(a.GetAddress(), strconv.Itoa(int(a.GetPortValue()))))
		}
	}
	return all
}

// followEndpoints asks for the endpoints of new clusters, and no more for those of old ones.
func (e *envoy) followEndpoints() {
	e.t.Helper()
	var fresh, gone []string
	for name := range e.clusters {
		if _, ok := e.endpoints[name]; !ok && !strings.HasPrefix(name, "isthmus-") {
			fresh = append(fresh, name)
			e.endpoints[name] = nil
		}
	}
	for name := range e.endpoints {
		if !e.clusters[name] {
			gone = append(gone, name)
			delete(e.endpoints, name)
		}
	}
	if len(fresh)+len(gone) > 0 {
		e.ask(endpointType, e.nonces[endpointType], fresh, gone)
	}
}

// chains are the clusters that the listener leads to, each with its server names.
func (e *envoy) chains() map[string][]string {
	all := map[string][]string{}
	for _, c := range e.listener.GetFilterChains() {
		all[c.GetName()] = c.GetFilterChainMatch().GetServerNames()
	}
	return all
}

func TestEnvoyIsAGateway(t *testing.T) {
	t.Parallel()
	for name, delta := range map[string]bool{"delta": true, "state of the world": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := start(t)
			e := m.envoy(t, delta)
			e.until("the peering", func() bool { return e.listener != nil })
			if got := slices.Collect(maps.Keys(e.chains())); !slices.Equal(got, []string{"isthmus-peering"}) {
				t.Errorf("chains to %v with nothing exported", got)
			}
			m.apply(m.west, meshtest.Export("shop", "orders", "east"), meshtest.Export("shop", "ledger", "east"),
				instance(orders, "west-1", "127.0.0.1:20001"), instance(orders, "west-2", "127.0.0.1:20002"), instance(ledger, "west-3", "127.0.0.1:20003"))
			e.until("two apps", func() bool {
				return len(e.chains()) == 3 && len(e.endpoints["orders.shop"]) == 2 && len(e.endpoints["ledger.shop"]) == 1
			})
			if e.listener.GetDefaultFilterChain() != nil {
				t.Error("connections with an unknown server name lead somewhere")
			}
			for chain, names := range e.chains() {
				if len(names) == 0 {
					t.Errorf("every server name leads to %s", chain)
				}
			}
			before := e.listener
			m.remove(m.west, orders, "west-2")
			e.until("an instance less", func() bool { return len(e.endpoints["orders.shop"]) == 1 })
			if e.listener != before {
				t.Error("an instance that goes has changed the listener")
			}

			// Envoy drains the chain that went, and leaves all others alone if nothing but chains differ.
			m.isthmus(m.west, "", "delete", "AppExport", "shop/orders")
			e.until("orders gone", func() bool { return !e.clusters["orders.shop"] })
			isOrders := func(c *listenerv3.FilterChain) bool { return c.GetName() == "orders.shop" }
			before.FilterChains = slices.DeleteFunc(before.GetFilterChains(), isOrders)
			if !proto.Equal(before, e.listener) {
				t.Errorf("more than the chain of orders has changed:\n%v\n%v", before, e.listener)
			}
		})
	}
}
