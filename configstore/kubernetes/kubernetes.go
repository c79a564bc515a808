// Package kubernetes is the config store of whoever runs on Kubernetes: each object is a custom
// resource of the same kind. deploy/kubernetes has the definitions and the roles.
//
// A resource's name and namespace are those of the object, its spec is the object's. A revision is
// the resource's metadata.generation with its uid, which change when the spec does and not when
// somebody writes a label or a status. A Version is the resourceVersion that each of the kinds has
// been read up to.
//
// A Watch lists each kind once, and then keeps one request open for it. The API server ends that
// every half an hour or so, and the next one goes on where it was. Kubernetes writes one object at
// a time, so a batch holds one.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/configstore/smimcs"
)

// Config is the settings of a store on Kubernetes.
type Config struct {
	// Kubeconfig is the file that says where the API server is and who we are to it. The
	// service account of the pod that this runs in, where empty.
	Kubeconfig string `yaml:"kubeconfig,omitempty" json:"kubeconfig,omitempty" file:""`
	// Context is the one of the kubeconfig to use; its current one where empty.
	Context string `yaml:"context,omitempty" json:"context,omitempty"`
	// Status says whether objects are told in their status what becomes of them; true
	// where left out. A store that is opened for one app never does.
	Status *bool `yaml:"status,omitempty" json:"status,omitempty"`
	// Translate names the other standards whose resources are read besides, smi and mcs.
	// A store that is opened for one app reads none.
	Translate []string `yaml:"translate,omitempty" json:"translate,omitempty"`
}

// Check returns the mistakes that show without reading a file.
func (c *Config) Check() error {
	if err := smimcs.CheckStandards("translate", c.Translate); err != nil {
		return err
	}
	return c.server().Check()
}

func (c *Config) server() apiserver.Config {
	return apiserver.Config{Kubeconfig: c.Kubeconfig, Context: c.Context}
}

// Store is a configstore.ReadWriter.
type Store struct {
	api       *apiserver.Server
	resources []resource // that are read: what the scope has
	status    *reporter  // nil where statuses are not written

	translate []string // standards
	log       *slog.Logger
	lookAgain time.Duration // lookAgain; less in tests

	life *configstore.Life
	kept configstore.Kept[*watch] // what it knew is not in the Version: without it everything is read
}

var _ configstore.ReadWriter = (*Store)(nil)

// Open makes a store of its settings. It reads the kubeconfig, or the pod's service
// account, and does not ask the API server anything.
func Open(c Config, scope configstore.Scope, log *slog.Logger) (*Store, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	api, err := apiserver.New(c.server())
	if err != nil {
		return nil, err
	}
	s := &Store{api: api, resources: resourcesOf(scope), life: configstore.NewLife(), lookAgain: lookAgain, log: log}
	if scope.All() {
		s.translate = c.Translate
	}
	if scope.All() && (c.Status == nil || *c.Status) {
		s.status = newReporter(api, log)
	}
	return s, nil
}

// Close ends every Watch and call, waits for them and for the status that is being written, and
// closes the connections.
func (s *Store) Close() error {
	if s.life.Close() {
		s.api.Close()
	}
	return nil
}

// do makes a call, which ends with the context and with the store.
func (s *Store) do(ctx context.Context, f func(context.Context) error) error {
	return s.life.Do(ctx, func(ctx context.Context) error { return failed(ctx, f(ctx)) })
}

// failed is the error of a call: that the store was closed, if that is why it failed, and otherwise
// whose error it is.
func failed(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), configstore.ErrClosed):
		return configstore.ErrClosed
	}
	return fmt.Errorf("store kubernetes: %w", err)
}
