package consulapi

import (
	"context"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
)

// Edge describes the Consul API that listens at an address; empty for nowhere.
func Edge(address string, settings *Settings) edge.Edge {
	return edge.Edge{
		Name:   "consul",
		Listen: edge.At("consul", address),
		Claim:  edge.Claim{Key: "consul.maxConnections", Max: settings.MaxConnections, Default: DefaultMaxConnections},
		Check:  func(doc *strict.Document) { settings.check(doc, address) },
		Build:  settings.build,
	}
}

func (s *Settings) check(doc *strict.Document, address string) {
	if doc.Wrong("consul") {
		return
	}
	doc.Merge("consul", s.Check(address).Err())
	if doc.Has("consul") && address == "" && !doc.Wrong("listen") && !doc.Wrong("consul") {
		doc.Refuse("consul", "nobody listens for it", "write listen: {consul: \"127.0.0.1:8500\"}, beside the other parts that are to run, or leave consul out")
	}
}

// build makes the server. Each replica has a directory of its own: a stock sidecar registers
// once, with one of them, and does not come back by itself.
func (s *Settings) build(host edge.Host) (edge.Part, error) {
	cfg := Config{
		Settings: *s, Cluster: host.Cluster, Version: host.Version, Address: host.Listener.Addr().String(),
		Directory: host.Directory, Kubernetes: host.Kubernetes, Topology: host.Topology, Clock: host.Clock, Delegates: host.Delegates, Streams: host.Streams, Destinations: host.Destinations,
		Settled: host.Settled, Log: host.Log, Metrics: host.Metrics, Prober: host.Prober, Share: host.Share, Alone: host.Alone,
	}
	cfg.MaxConnections = host.Connections
	server, err := New(cfg)
	if err != nil {
		return edge.Part{}, err
	}
	return edge.Part{
		Restore: server.Restore,
		Run: edge.Together(server.Run, func(ctx context.Context) error {
			return server.Serve(ctx, host.Listener)
		}),
		Status:  func(answer *v1alpha1.StatusResponse) { answer.Sources = append(answer.Sources, server.Status()) },
		Trusted: server.Trusted,
	}, nil
}
