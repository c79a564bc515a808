package resolverservice

import (
	"context"

	"github.com/isthmus-mesh/isthmus/resolver-service/consulapi"
	"github.com/isthmus-mesh/isthmus/strict"
)

func (c *Config) checkConsul(doc *strict.Document) {
	if doc.Wrong("consul") {
		return
	}
	if m := c.Consul.Check(c.Listen.Consul); m != nil {
		path := "consul"
		if m.Path != "" {
			path += "." + m.Path
		}
		doc.Refuse(path, m.What, m.Fix)
	}
}

// buildConsul makes the Consul API, if it is asked for.
func (s *Service) buildConsul() (err error) {
	if s.listeners["consul"] == nil {
		return nil
	}
	cfg := consulapi.Config{
		Settings: s.cfg.Consul, Cluster: s.cfg.Cluster, Version: s.cfg.Version, Address: s.Addr("consul").String(),
		Directory: s.consulDirectory(), Kubernetes: s.cfg.DNS.Kubernetes, Topology: s.topology, Destinations: s.destinations, Settled: s.settled, Log: s.log,
		Metrics: s.registry, Prober: s.prober,
	}
	cfg.MaxConnections = s.bounds.consul
	if s.sources.shared != nil {
		cfg.Share = s.sources.shared // and no Sharer that is not nil
	} else if s.cfg.Replicas != nil {
		cfg.Alone = "this is one of several replicas of Isthmus, and what is registered here the others would never know; " +
			"have them share it by instances.etcd in isthmus.yaml, or register where they read instances from"
	}
	s.consul, err = consulapi.New(cfg)
	return err
}

// consulDirectory keeps what is registered. Each replica has its own: a stock sidecar
// registers once, with one of them, and does not come back by itself.
func (s *Service) consulDirectory() string { return s.cfg.own("consul") }

// startConsul starts the Consul API, if there is one.
func (s *Service) startConsul(edges *stage) {
	if s.consul == nil {
		return
	}
	edges.start("consul", s.consul.Run)
	l := s.listeners["consul"]
	edges.start("listen.consul", func(ctx context.Context) error { return s.consul.Serve(ctx, l) })
}
