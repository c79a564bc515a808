// Package kubernetes has the instances that Kubernetes knows: the endpoints of the
// services that Dapr's operator makes for each app, "<app-id>-dapr", as EndpointSlices
// have them. So readiness is that of the pod, by its probes.
//
// The slices are listed once and then watched, by one request for each namespace, or one
// for all. Pods are read only where their labels are asked for.
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Config is the settings of instances from Kubernetes.
type Config struct {
	// Kubeconfig is the file that says where the API server is and who we are to it. The
	// service account of the pod that this runs in, where empty.
	Kubeconfig string `yaml:"kubeconfig,omitempty" json:"kubeconfig,omitempty" file:""`
	// Context is the one of the kubeconfig to use; its current one where empty.
	Context string `yaml:"context,omitempty" json:"context,omitempty"`
	// Namespaces are those whose apps are read; all where empty.
	Namespaces []string `yaml:"namespaces,omitempty" json:"namespaces,omitempty"`
	// IPFamily is the one that is taken of an instance with addresses of both: ipv4, which
	// is the default, or ipv6. An instance with one address is taken with that.
	IPFamily string `yaml:"ipFamily,omitempty" json:"ipFamily,omitempty"`
	// ZoneLabel is the label of pods that says where they run. Where it is empty, or a pod
	// has no such label, that is what Kubernetes says of the pod's node.
	ZoneLabel string `yaml:"zoneLabel,omitempty" json:"zoneLabel,omitempty"`
	// VersionLabel is the label of pods that says the version of the app, such as
	// app.kubernetes.io/version. Where it is empty, none is read.
	VersionLabel string `yaml:"versionLabel,omitempty" json:"versionLabel,omitempty"`
	// ServiceAccounts says that the accounts of pods are read, for policies. Whole pods are read
	// then, and not just their metadata.
	ServiceAccounts bool `yaml:"serviceAccounts,omitempty" json:"serviceAccounts,omitempty"`
	// Calls says that pods' annotation [CallsAnnotation] is read.
	Calls bool `yaml:"-" json:"-"`
}

// CallsAnnotation is the annotation of a pod that declares what its app calls, as
// [catalog.ParseCalls] reads it.
const CallsAnnotation = "isthmus.dev/calls"

func (c *Config) readsPods() bool {
	return c.ZoneLabel != "" || c.VersionLabel != "" || c.Calls || c.ServiceAccounts
}

// Values of Config.IPFamily.
const (
	ipv4 = "ipv4"
	ipv6 = "ipv6"
)

// maxNamespaces bounds how many requests are open at once.
const maxNamespaces = 100

// Check returns the mistakes that show without reading a file.
func (c *Config) Check() error {
	if err := c.server().Check(); err != nil {
		return err
	}
	if c.IPFamily != "" && c.IPFamily != ipv4 && c.IPFamily != ipv6 {
		return &strict.Error{Path: "ipFamily", What: fmt.Sprintf("%q is none", c.IPFamily), Fix: "write " + ipv4 + " or " + ipv6}
	}
	if len(c.Namespaces) > maxNamespaces {
		return &strict.Error{Path: "namespaces", What: fmt.Sprintf("%d are more than %d, and each takes a request that stays open", len(c.Namespaces), maxNamespaces), Fix: "leave the list out to read all"}
	}
	for i, ns := range c.Namespaces {
		if err := catalog.CheckNamespace(ns); err != nil {
			return strict.Below("namespaces", err)
		}
		if slices.Contains(c.Namespaces[:i], ns) {
			return &strict.Error{Path: "namespaces", What: ns + " is there twice", Fix: "leave one out"}
		}
	}
	for _, l := range []struct{ key, value, example string }{
		{"zoneLabel", c.ZoneLabel, "topology.kubernetes.io/zone"}, {"versionLabel", c.VersionLabel, "app.kubernetes.io/version"},
	} {
		if len(l.value) > 317 || strings.ContainsAny(l.value, " \t\n=,") {
			return &strict.Error{Path: l.key, What: fmt.Sprintf("%q is no name of a label", l.value), Fix: "write one such as " + l.example}
		}
	}
	return nil
}

func (c *Config) server() apiserver.Config {
	return apiserver.Config{Kubeconfig: c.Kubeconfig, Context: c.Context}
}

// Source is an instances.Source.
type Source struct {
	config Config
	api    *apiserver.Server
	log    *slog.Logger
}

var _ instances.Source = (*Source)(nil)

// New makes a source of its settings. It reads the kubeconfig, or the pod's service
// account, and does not ask the API server anything.
func New(c Config, log *slog.Logger) (*Source, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	api, err := apiserver.New(c.server())
	if err != nil {
		return nil, err
	}
	return &Source{config: c, api: api, log: log}, nil
}

// Name is that of instances.Source.
func (s *Source) Name() string { return "kubernetes" }

// Rank is that of instances.Source: Kubernetes runs the pods itself.
func (s *Source) Rank() topology.Rank { return topology.Scheduled }

// longEnough is how long what was just read must have been remembered for it to be read
// anew at once when it is forgotten. A server that forgets faster than it can be read is
// asked again with the pauses of a failure.
const longEnough = time.Second

// Watch is that of instances.Source.
func (s *Source) Watch(ctx context.Context, emit func(instances.Change) error) error {
	defer s.api.Close() // connections to a server that may be gone without a word
	for {
		w := &watch{source: s, emit: emit, index: newIndex(s.config)}
		err := w.run(ctx)
		switch {
		case w.emitErr != nil:
			return w.emitErr
		case ctx.Err() != nil:
			return ctx.Err()
		case apiserver.Expired(err) && !w.told.IsZero() && time.Since(w.told) > longEnough:
			s.log.Debug("the API server has forgotten what happened since; reading everything", "source", s.Name(), "err", err)
			continue
		}
		return fmt.Errorf("instances from kubernetes: %w", err)
	}
}

// advise adds what to do about an error.
func advise(err error, verb string, c collection) error {
	switch apiserver.Code(err) {
	case http.StatusForbidden:
		return fmt.Errorf("%w (%w); give the account the verb %q on %s, as the role %s in deploy/kubernetes/rbac.yaml does", err, configstore.ErrDenied, verb, c.resource, c.role)
	case http.StatusUnauthorized:
		return fmt.Errorf("%w (%w); renew the token or the certificate", err, configstore.ErrDenied)
	case http.StatusNotFound:
		return fmt.Errorf("%w; the API server does not know %s; Kubernetes has them since 1.21", err, c.resource)
	}
	return err
}

var errNoName = errors.New("an object has no name; is this an API server?")
