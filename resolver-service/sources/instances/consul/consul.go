// Package consul has the instances that Consul's catalog knows, with their health: the
// services that daprd registers through Dapr's Consul resolver, or that anybody else does
// with the port of the sidecar in the service's metadata. So whoever runs that resolver
// keeps their registrations.
//
// Consul can be asked to wait for a change of one service, or to tell that some service
// has changed and not which. A question that waits takes a connection, and an agent takes
// 200 of one client. So three questions wait, however many services there are: for the names
// of services, which Consul answers after any registration, and for the checks that are
// critical or warn. What a check is about is read anew at once, as is a service that is
// new; after a registration all the others are, a few at a time and with rests.
package consul

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/consul/agent"
	"github.com/isthmus-mesh/isthmus/internal/settings"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Config is the settings of instances from Consul.
type Config struct {
	// Address is that of an agent: http://127.0.0.1:8500, which is the default,
	// https://consul.example:8501 or unix:///run/consul.sock.
	Address string           `yaml:"address,omitempty" json:"address,omitempty"`
	Token   *settings.Secret `yaml:"token,omitempty" json:"token,omitempty"` // read for every request, so it can be rotated
	TLS     *settings.TLS    `yaml:"tls,omitempty" json:"tls,omitempty"`

	// What is empty is not sent: then it is what the agent and the token say. Namespace and
	// Partition are of Consul Enterprise.
	Datacenter string `yaml:"datacenter,omitempty" json:"datacenter,omitempty"`
	Namespace  string `yaml:"namespace,omitempty" json:"namespace,omitempty"`
	Partition  string `yaml:"partition,omitempty" json:"partition,omitempty"`

	// PortMeta is the key of a service's metadata that has the port of the sidecar's
	// internal server; DAPR_PORT where empty, as in Dapr's Consul resolver (daprPortMetaKey).
	// Services without it are left alone.
	PortMeta string `yaml:"portMeta,omitempty" json:"portMeta,omitempty"`
	// Tag is one that services must have; any where empty.
	Tag string `yaml:"tag,omitempty" json:"tag,omitempty"`
	// AppNamespace is the namespace of the apps, which Consul has no place for; "default",
	// as it is to daprd, where empty. NamespaceMeta is the key of a service's metadata that
	// has it instead, where it is there.
	AppNamespace  string `yaml:"appNamespace,omitempty" json:"appNamespace,omitempty"`
	NamespaceMeta string `yaml:"namespaceMeta,omitempty" json:"namespaceMeta,omitempty"`
	// ZoneMeta is the key of a service's metadata, or its node's, that says where it runs.
	ZoneMeta string `yaml:"zoneMeta,omitempty" json:"zoneMeta,omitempty"`
	// VersionMeta is the key of a service's metadata that says the version of the app: "version" by default.
	VersionMeta string `yaml:"versionMeta,omitempty" json:"versionMeta,omitempty"`
	// WarningIsReady says that an instance whose checks warn takes new calls. By default it
	// does not, as with Dapr's Consul resolver.
	WarningIsReady bool `yaml:"warningIsReady,omitempty" json:"warningIsReady,omitempty"`
}

// Defaults of a Config.
const (
	DefaultPortMeta     = "DAPR_PORT"
	DefaultAppNamespace = "default"
	DefaultVersionMeta  = "version"
)

// longestKey bounds a key of metadata and a tag; Consul takes keys of 128 bytes.
const longestKey = 128

// Check fills in defaults and returns the mistakes that show without reading a file.
func (c *Config) Check() error {
	for _, d := range []struct {
		value *string
		or    string
	}{{&c.Address, agent.DefaultAddress}, {&c.PortMeta, DefaultPortMeta}, {&c.AppNamespace, DefaultAppNamespace}, {&c.VersionMeta, DefaultVersionMeta}} {
		if *d.value == "" {
			*d.value = d.or
		}
	}
	if err := c.agent().Check(); err != nil {
		return err
	}
	if err := catalog.CheckNamespace(c.AppNamespace); err != nil {
		return strict.Below("appNamespace", err)
	}
	for _, k := range []struct{ key, value string }{{"portMeta", c.PortMeta}, {"tag", c.Tag}, {"namespaceMeta", c.NamespaceMeta}, {"zoneMeta", c.ZoneMeta}, {"versionMeta", c.VersionMeta}} {
		if _, err := quoted(k.value); err != nil || len(k.value) > longestKey {
			return &strict.Error{
				Path: k.key, What: fmt.Sprintf("%.40q can't be asked for", k.value),
				Fix: fmt.Sprintf("write printable text of up to %d characters, without both ` and \"", longestKey),
			}
		}
	}
	return nil
}

func (c *Config) agent() agent.Config {
	return agent.Config{Address: c.Address, Token: c.Token, TLS: c.TLS, Datacenter: c.Datacenter, Namespace: c.Namespace, Partition: c.Partition}
}

var errUnquotable = errors.New("can't be quoted")

// quoted is a text in a filter of Consul's.
func quoted(text string) (string, error) {
	for _, r := range text {
		if !strconv.IsPrint(r) || r == '\\' || r == '"' {
			return "", errUnquotable
		}
	}
	return `"` + text + `"`, nil
}

// filter selects the services that count.
func (c *Config) filter() string {
	port, _ := quoted(c.PortMeta) // was checked
	filter := port + ` in ServiceMeta and ServiceKind == ""`
	if c.Tag != "" {
		tag, _ := quoted(c.Tag)
		filter += " and " + tag + " in ServiceTags"
	}
	return filter
}

// policy is the rules that the token needs.
const policy = `service_prefix "" { policy = "read" } and node_prefix "" { policy = "read" }`

// Source is an instances.Source.
type Source struct {
	config    Config
	log       *slog.Logger
	client    *api.Client
	transport *http.Transport
}

var _ instances.Source = (*Source)(nil)

// New makes a source of its settings, and asks nothing of Consul.
func New(c Config, log *slog.Logger) (*Source, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	s := &Source{config: c, log: log}
	var err error
	if s.client, s.transport, err = c.agent().Connect(); err != nil {
		return nil, err
	}
	return s, nil
}

// Name is that of instances.Source.
func (s *Source) Name() string { return "consul" }

// Rank is that of instances.Source: a catalog may have entries of lost instances.
func (s *Source) Rank() topology.Rank { return topology.Listed }

// Watch is that of instances.Source.
func (s *Source) Watch(ctx context.Context, emit func(instances.Change) error) error {
	defer s.transport.CloseIdleConnections() // to a server that may be gone without a word
	var own error                            // of emit
	err := agent.WithHeartbeat(ctx, s.client, func(inside context.Context) error {
		err := s.follow(inside, func(c instances.Change) error {
			own = emit(c)
			return own
		})
		if cause := context.Cause(inside); cause != nil && ctx.Err() == nil {
			return cause // of the heartbeat
		}
		return err
	})
	switch {
	case own != nil:
		return own
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("instances from consul: watch the catalog at %s: %w", s.config.Address, agent.Explain(err, policy))
}
