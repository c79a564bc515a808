package sandbox

import (
	"context"
	"fmt"
	"strconv"
)

// Placement is Dapr's placement service of one cluster: sidecars tell it which actor types their
// apps host, and are told where each actor is.
type Placement struct {
	*Process
	Address string // host:port
	State   string // URL of what it knows, in JSON
}

// Placement starts the cluster's placement service. Sidecars that start later use it.
func (c *Cluster) Placement(ctx context.Context) (*Placement, error) {
	binary, err := Binary("placement")
	if err != nil {
		return nil, err
	}
	name := "placement-" + c.Name
	var port, health, metrics, raft int
	if err := freePorts(&port, &health, &metrics, &raft); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	args := []string{
		"--port", strconv.Itoa(port), "--listen-address", "127.0.0.1",
		"--healthz-port", strconv.Itoa(health), "--healthz-listen-address", "127.0.0.1",
		"--metrics-port", strconv.Itoa(metrics), "--metrics-listen-address", "127.0.0.1",
		"--metadata-enabled", "--id", name, "--initial-cluster", name + "=" + loopback(raft),
	}
	if c.Sentry != nil {
		args = append(args, "--tls-enabled", "--sentry-address", c.Sentry.Address,
			"--trust-anchors-file", c.Sentry.AnchorsFile, "--trust-domain", c.Sentry.TrustDomain)
	}
	p := &Placement{Address: loopback(port), State: "http://" + loopback(health) + "/placement/state"}
	p.Process, err = c.s.run(ctx, Command{
		Name: name, Path: binary, LogDir: c.s.dir, ReadyURL: "http://" + loopback(health) + "/healthz", Args: args,
	})
	if err != nil {
		return nil, err
	}
	c.placement = p
	return p, nil
}
