package sandbox

import (
	"context"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// Bridge is the bridge for the actors of a namespace in one cluster.
type Bridge struct {
	*Process
	Internal string // host:port, for sidecars and other bridges
	Metrics  string // host:port
}

// Bridge starts "isthmus actors" for a namespace, and waits until it can pass calls on. instance tells
// two replicas apart; empty for the first. The cluster must have a placement service.
func (c *Cluster) Bridge(ctx context.Context, namespace, instance string) (*Bridge, error) {
	binary, err := Binary("isthmus")
	if err != nil {
		return nil, err
	}
	var listen, metrics int
	if err := freePorts(&listen, &metrics); err != nil {
		return nil, err
	}
	b := &Bridge{Internal: loopback(listen), Metrics: loopback(metrics)}
	name := "actors-" + c.Name + "-" + namespace + instance
	cfg := map[string]any{
		"cluster": c.Name, "namespace": namespace, "resolver": c.Resolver, "identity": c.Sentry.identity(),
		"listen": b.Internal, "placement": c.placement.Address, "metrics": b.Metrics,
	}
	if c.traces != "" {
		cfg["tracing"] = map[string]any{"otlp": map[string]any{"endpoint": c.traces}}
	}
	text, err := yaml.Marshal(cfg)
	if err != nil {
		return nil, fmt.Errorf("configure the bridge of cluster %s for namespace %s: %w", c.Name, namespace, err)
	}
	file, err := c.s.file(name+".yaml", text)
	if err != nil {
		return nil, err
	}
	b.Process, err = c.s.run(ctx, Command{Name: name, Path: binary, Args: []string{"actors", "-c", file}, LogDir: c.s.dir, ReadyURL: "http://" + b.Metrics + "/readyz"})
	return b, err
}
