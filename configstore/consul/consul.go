// Package consul is the config store in Consul's KV, by its HTTP API
// (https://developer.hashicorp.com/consul/api-docs/kv), for Consul 1.14 and newer.
//
// Each object is a key, as in every key-value store. Beside them, under the same prefix, is the key
// ".changes": it names the keys of the last few writes by Isthmus, and has the values of the
// newest. It is written in the same transaction.
//
// Consul tells a watcher that something under a prefix has changed, but not the key. An answer
// about the prefix has all of its keys. So a Watch waits with a question whose answer is small (the
// names of the first level), and with another one for ".changes". It takes the values there, or
// reads the few keys that ".changes" names, in one transaction. Any other change is by another
// program. Then the Watch searches for it, or reads everything. It could take writers of both sorts
// in the same few milliseconds for one. So a while after a change by ".changes", it reads
// everything once.
package consul

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/hashicorp/consul/api"

	isthmus "github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/consul/agent"
	"github.com/isthmus-mesh/isthmus/internal/settings"
)

// Config is the settings of a store in Consul.
type Config struct {
	// Address is that of an agent: http://127.0.0.1:8500, which is the default,
	// https://consul.example:8501 or unix:///run/consul.sock.
	Address string           `yaml:"address,omitempty" json:"address,omitempty"`
	Token   *settings.Secret `yaml:"token,omitempty" json:"token,omitempty"` // read for every request, so it can be rotated
	TLS     *settings.TLS    `yaml:"tls,omitempty" json:"tls,omitempty"`
	Prefix  string           `yaml:"prefix,omitempty" json:"prefix,omitempty"` // what goes before isthmus/v1alpha1/

	// What is empty is not sent: then it is what the agent and the token say. Namespace and
	// Partition are of Consul Enterprise.
	Datacenter string `yaml:"datacenter,omitempty" json:"datacenter,omitempty"`
	Namespace  string `yaml:"namespace,omitempty" json:"namespace,omitempty"`
	Partition  string `yaml:"partition,omitempty" json:"partition,omitempty"`
}

// DefaultAddress is where an agent of Consul listens if it is not told otherwise.
const DefaultAddress = agent.DefaultAddress

// Store is a config store in Consul. It is a configstore.ReadWriter.
type Store struct {
	configstore.KV
	config    Config
	scope     configstore.Scope
	log       *slog.Logger
	client    *api.Client
	transport *http.Transport
	writing   chan struct{} // holds a token while nobody of this process writes
	life      *configstore.Life
}

var (
	_ configstore.ReadWriter = (*Store)(nil)
	_ configstore.ManyGetter = (*Store)(nil)
)

// Open checks the settings. It asks nothing of Consul yet: an agent that is away shows at the first
// call.
func Open(c Config, scope configstore.Scope, log *slog.Logger) (*Store, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	s := &Store{config: c, scope: scope, log: log, writing: make(chan struct{}, 1), life: configstore.NewLife()}
	var err error
	if s.client, s.transport, err = c.agent().Connect(); err != nil {
		return nil, err
	}
	s.writing <- struct{}{}
	s.KV = configstore.NewKV(configstore.KVServer{
		Name: "consul", Prefix: c.Prefix, Life: s.life, MaxObject: isthmus.MaxObjectBytes, AtOnce: maxOps,
		Some: s.pairs, All: s.all, Commit: s.write, Create: s.create, Fail: s.failed,
	})
	return s, nil
}

// Close ends every Watch and every call, and waits for them.
func (s *Store) Close() error {
	if s.life.Close() {
		s.transport.CloseIdleConnections()
	}
	return nil
}

// failed is the error of a call: the end of its context or of the store where that is
// the reason, and otherwise what was tried, with what, and what to do.
func (s *Store) failed(ctx context.Context, tried string, err error) error {
	switch cause := context.Cause(ctx); {
	case cause == nil:
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = ctx.Err()
	case errors.Is(cause, configstore.ErrClosed), errors.Is(cause, context.Canceled):
		return cause
	default:
		err = cause // of the heartbeat
	}
	return fmt.Errorf("store consul: %s at %s: %w", tried, s.config.Address, agent.Explain(err, policy(s, "read")))
}

// base is what the keys of all objects begin with, in this Consul.
func (s *Store) base() string { return s.config.Prefix + isthmus.KeyPrefix }

const clustersPath = isthmus.KeyPrefix + string(catalog.KindCluster) + "/"

// clusters is what the keys of all Clusters begin with.
func (s *Store) clusters() string { return s.config.Prefix + clustersPath }

// headKey is the key that says what was changed last.
func (s *Store) headKey() string { return s.base() + headName }
