// Package xds is the edge for clients of xDS: gRPC without a sidecar, and Envoy as the ingress
// gateway of a cluster. An app gets what its view holds, a gateway what its cluster exports.
//
// One stream has all types of resources (ADS), state of the world or delta. A stream keeps which
// names its client follows, and the state that it sent last. Resources are made from a plan, once
// for all streams.
//
// Source: https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol; gRFCs A27, A28, A29
// and A101.
package xds

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
	"github.com/isthmus-mesh/isthmus/resolver-service/limits/bounded"
)

// Settings are the block "xds" of isthmus.yaml.
type Settings struct {
	Gateway        *Gateway `yaml:"gateway"`             // nil: no client is one
	Certificates   string   `yaml:"certificateProvider"` // of gRPC clients, as their bootstrap calls it
	MaxConnections int      `yaml:"maxConnections"`
	TLS            *TLS     `yaml:"tls"` // nil: the service's own certificate
}

// Gateway says which clients are gateways of this cluster, and their resources.
type Gateway struct {
	Apps    []string `yaml:"apps,single"` // as namespace/app-id in their certificates
	Listen  string   `yaml:"listen"`      // "ip:port" that they listen at; DefaultGatewayListen by default
	Peering string   `yaml:"peering"`     // "ip:port" of listen.gateway, where they pass peers on to
}

// TLS names the files of a certificate that has a host name, in PEM.
type TLS struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// The defaults of settings.
const (
	DefaultMaxConnections = 2000
	DefaultProvider       = "default"
	DefaultGatewayListen  = "0.0.0.0:15443"
)

// Edge describes the xDS server that listens at an address; empty for nowhere.
func Edge(address string, s *Settings) edge.Edge {
	return edge.Edge{
		Name:   "xds",
		Listen: edge.At("xds", address),
		Claim:  edge.Claim{Key: "xds.maxConnections", Max: s.MaxConnections, Default: DefaultMaxConnections},
		Check:  s.check,
		Build:  s.build,
	}
}

func (s *Settings) check(doc *strict.Document) {
	if g := s.Gateway; g != nil {
		if len(g.Apps) == 0 {
			doc.Refuse("xds.gateway.apps", "is missing", "name the app in the gateway's certificate, such as mesh/ingress")
		}
		for i, name := range g.Apps {
			if _, err := catalog.ParseApp(name); err != nil {
				doc.Refuse(fmt.Sprintf("xds.gateway.apps[%d]", i), err.Error(), "write namespace/app-id, such as mesh/ingress")
			}
		}
		for path, address := range map[string]string{"listen": g.Listen, "peering": g.Peering} {
			if _, err := netip.ParseAddrPort(address); err != nil && address != "" {
				doc.Refuse("xds.gateway."+path, fmt.Sprintf("%q is no address", address), "write ip:port, such as "+DefaultGatewayListen)
			}
		}
	}
	if s.TLS != nil && (s.TLS.Cert == "" || s.TLS.Key == "") {
		doc.Refuse("xds.tls", "cert and key are both needed", "name a certificate and its private key in PEM")
	}
}

func (s *Settings) build(host edge.Host) (edge.Part, error) {
	server, err := newServer(config{settings: s, host: host})
	if err != nil {
		return edge.Part{}, err
	}
	listener := host.Listen.Bound(bounded.Bounds{Max: host.Listen.Connections, PerClient: max(host.Listen.Connections/2, 1), Pending: host.Listen.Connections, UserTimeout: userTimeout})
	return edge.Part{
		Run:     edge.Together(func(ctx context.Context) error { return server.run(ctx, listener) }, server.hosts.Run),
		Ready:   func() (reasons, notes []string) { return nil, server.hosts.Troubles() },
		Status:  server.clients.status,
		Trusted: server.trusted,
	}, nil
}
