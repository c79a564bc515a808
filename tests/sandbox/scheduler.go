package sandbox

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
)

// Scheduler is Dapr's scheduler of one cluster, which has sidecars run reminders and workflows.
type Scheduler struct {
	*Process
	Address string // host:port
}

// Scheduler starts the cluster's scheduler. Sidecars that start later use it.
func (c *Cluster) Scheduler(ctx context.Context) (*Scheduler, error) {
	binary, err := Binary("scheduler")
	if err != nil {
		return nil, err
	}
	const id = "dapr-scheduler-server-0" // for which Sentry writes names into its certificate
	name := "scheduler-" + c.Name
	var port, health, metrics, etcd, peers int
	if err := freePorts(&port, &health, &metrics, &etcd, &peers); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	dir := filepath.Join(c.s.dir, name)
	args := []string{
		"--port", strconv.Itoa(port), "--listen-address", "127.0.0.1", "--override-broadcast-host-port", loopback(port),
		"--healthz-port", strconv.Itoa(health), "--healthz-listen-address", "127.0.0.1",
		"--metrics-port", strconv.Itoa(metrics), "--metrics-listen-address", "127.0.0.1",
		"--id", id, "--etcd-initial-cluster", id + "=http://" + loopback(peers), "--etcd-client-port", strconv.Itoa(etcd),
		"--etcd-data-dir", dir, "--etcd-initial-election-tick-advance", "--identity-directory-write", filepath.Join(dir, "identity"),
	}
	if c.Sentry != nil {
		args = append(args, "--tls-enabled", "--sentry-address", c.Sentry.Address,
			"--trust-anchors-file", c.Sentry.AnchorsFile, "--trust-domain", c.Sentry.TrustDomain)
	}
	s := &Scheduler{Address: loopback(port)}
	s.Process, err = c.s.run(ctx, Command{
		Name: name, Path: binary, LogDir: c.s.dir, ReadyURL: "http://" + loopback(health) + "/healthz", Args: args,
	})
	if err != nil {
		return nil, err
	}
	c.scheduler = s
	return s, nil
}
