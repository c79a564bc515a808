package servers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// ConsulOptions says how an agent of Consul is run. The zero value is in the clear and
// asks for no token.
type ConsulOptions struct {
	// Cert and Key are those of the HTTPS port: files in PEM; empty for none.
	Cert, Key string

	// Management is a token that may do everything. With one, ACLs are on, and who has no
	// token may do nothing. It is a UUID.
	Management string

	// Expect is how many servers make the cluster, 1 by default. With more, this one has
	// no leader, and StartConsul waits only until it answers.
	Expect int

	// Settings are more keys of the agent's configuration, such as "limits".
	Settings map[string]any

	// Place is the network that it is in; nil: the one that this process is in.
	Place sandbox.Place
}

// Consul is a cluster of one Consul server, in a directory of its own. What it was given
// survives Kill: it does not run in Consul's -dev mode, which keeps nothing.
type Consul struct {
	process *sandbox.Process
	http    string // host:port
	https   string // host:port, empty without a certificate
}

// StartConsul starts a server, with its data and its log in dir, and waits until it leads
// and answers.
func StartConsul(ctx context.Context, dir string, o ConsulOptions) (*Consul, error) {
	binary, err := sandbox.Binary("consul")
	if err != nil {
		return nil, err
	}
	c := &Consul{}
	ready := "/v1/kv/?keys&separator=/&consistent" // an error while there is no leader
	if o.Management != "" {
		ready += "&token=" + o.Management // to list may need a right of its own
	}
	if o.Expect > 1 {
		ready = "/v1/status/leader"
	}
	config, err := c.configure(dir, o)
	if err != nil {
		return nil, fmt.Errorf("start consul: %w", err)
	}
	c.process, err = sandbox.Start(sandbox.Command{
		Name: "consul", Path: binary, Args: []string{"agent", "-config-file=" + config}, LogDir: dir, Place: o.Place,
		ReadyURL: "http://" + c.http + ready,
	})
	if err != nil {
		return nil, err
	}
	if err := c.process.WaitReady(ctx); err != nil {
		return nil, errors.Join(err, c.Kill())
	}
	return c, nil
}

// configure writes the agent's configuration and returns its path.
func (c *Consul) configure(dir string, o ConsulOptions) (string, error) {
	ports := map[string]int{"dns": -1, "grpc": -1, "grpc_tls": -1, "serf_wan": -1, "https": -1}
	names := []string{"http", "server", "serf_lan"}
	if o.Cert != "" {
		names = append(names, "https")
	}
	for _, name := range names {
		port, err := sandbox.FreePort()
		if err != nil {
			return "", err
		}
		ports[name] = port
	}
	c.http = hostPort(ports["http"])
	config := map[string]any{
		"server": true, "bootstrap_expect": max(o.Expect, 1), "node_name": "consul", "data_dir": filepath.Join(dir, "consul.data"),
		"bind_addr": "127.0.0.1", "client_addr": "127.0.0.1", "ports": ports, "log_level": "warn",
		"performance": map[string]any{"raft_multiplier": 1}, // Consul's own advice for production
		"connect":     map[string]any{"enabled": false}, "peering": map[string]any{"enabled": false},
		"disable_update_check": true, "disable_host_node_id": true,
	}
	if o.Cert != "" {
		c.https = hostPort(ports["https"])
		config["tls"] = map[string]any{"https": map[string]any{"cert_file": o.Cert, "key_file": o.Key}}
	}
	if o.Management != "" {
		config["acl"] = map[string]any{"enabled": true, "default_policy": "deny", "tokens": map[string]any{
			"initial_management": o.Management, "agent": o.Management,
		}}
	}
	for name, value := range o.Settings {
		config[name] = value
	}
	text, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "consul.json")
	return path, os.WriteFile(path, text, 0o600)
}

// Addr is where clients connect to, host:port: the HTTPS port where there is one.
func (c *Consul) Addr() string {
	if c.https != "" {
		return c.https
	}
	return c.http
}

// Plain is the address of the HTTP port, which is there beside the HTTPS port.
func (c *Consul) Plain() string { return c.http }

// URL is Addr with its scheme: http or https.
func (c *Consul) URL() string {
	if c.https != "" {
		return "https://" + c.https
	}
	return "http://" + c.http
}

// PID is the id of the server's process.
func (c *Consul) PID() int { return c.process.PID() }

// Kill ends the server with SIGKILL.
func (c *Consul) Kill() error { return c.process.Kill() }

// Stop asks the server to end, and waits until it has.
func (c *Consul) Stop(ctx context.Context) error { return c.process.Stop(ctx) }

// Start starts the server again with its data, after a Kill or a Stop, and waits until it
// leads and answers.
func (c *Consul) Start(ctx context.Context) error { return c.process.Restart(ctx) }
