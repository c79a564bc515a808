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
		Settings: *s, Registering: host.Register, Cluster: host.Cluster.Name, Version: host.Cluster.Version, Kubernetes: host.Cluster.Kubernetes,
		Address: host.Listen.Listener.Addr().String(), Directory: host.Listen.Directory, Topology: host.Views.Topology, Settled: host.Views.Settled,
		Log: host.Tell.Log, Metrics: host.Tell.Metrics,
	}
	cfg.MaxConnections = host.Listen.Connections
	server, err := New(cfg)
	if err != nil {
		return edge.Part{}, err
	}
	return edge.Part{
		Restore: server.Restore,
		Run: edge.Together(server.Run, func(ctx context.Context) error {
			return server.Serve(ctx, host.Listen.Listener)
		}),
		Status:  func(answer *v1alpha1.StatusResponse) { answer.Sources = append(answer.Sources, server.Status()) },
		Trusted: server.Trusted,
	}, nil
}
