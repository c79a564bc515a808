package consul

import (
	"context"
	"fmt"
	slashed "path"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/configstore/consul/agent"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

const (
	// callTimeout bounds a request that waits for nothing, and listTimeout one for
	// everything. Consul itself waits some 10 s for a leader before it says that there is
	// none. A Watch is bounded by its heartbeat instead.
	callTimeout = 20 * time.Second
	listTimeout = time.Minute
)

// agent is the settings of the agent.
func (c *Config) agent() agent.Config {
	return agent.Config{Address: c.Address, Token: c.Token, TLS: c.TLS, Datacenter: c.Datacenter, Namespace: c.Namespace, Partition: c.Partition}
}

// check fills in defaults and tells what is wrong, naming the key.
func (c *Config) check() error {
	if c.Address == "" {
		c.Address = DefaultAddress
	}
	if err := c.agent().Check(); err != nil {
		return err
	}
	if strings.HasPrefix(c.Prefix, "/") {
		return &strict.Error{Path: "prefix", What: fmt.Sprintf("%q begins with a slash, and keys of Consul do not", c.Prefix), Fix: "leave it out"}
	}
	if clean := slashed.Clean(c.Prefix + "x"); clean != c.Prefix+"x" {
		return &strict.Error{Path: "prefix", What: fmt.Sprintf("Consul reads %q as %q at one time and not at another", c.Prefix, strings.TrimSuffix(clean, "x")), Fix: "write the latter"}
	}
	return nil
}

// consistent is for answers that something is gone by: the leader makes sure that it
// still is one.
func consistent(ctx context.Context) *api.QueryOptions {
	return (&api.QueryOptions{RequireConsistent: true}).WithContext(ctx)
}

// policy is the rules that a token needs, as Consul's ACLs have them.
func policy(s *Store, access string) string {
	if s.scope.All() || access == "write" {
		return fmt.Sprintf("key_prefix %q { policy = %q }", s.base(), access)
	}
	return fmt.Sprintf("key %q { policy = %q } and key_prefix %q { policy = %q }", s.selection(), access, s.clusters(), access)
}
