package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
)

// Cluster is one cluster on loopback: a Sentry, a resolver service with its gateway,
// and the sidecars that are started in it.
type Cluster struct {
	*Service
	Name   string
	Sentry *Sentry // nil in plain text

	s         *Sandbox
	authority *Authority
	traces    string
	placement *Placement // nil: sidecars know of no actors
	scheduler *Scheduler // nil: sidecars have no reminders, and no workflows
	cli       string     // directory of the operator's certificate
}

// ClusterOptions say how to run a cluster.
type ClusterOptions struct {
	Name      string
	Authority *Authority // clusters that call each other share one; nil: plain text
	Sentry    *Sentry    // one that runs already; nil: one is started
	NoSentry  bool       // none is started, and the service has its certificate from files
	// TrustDomain is that of its Sentry and service; DefaultTrustDomain by default.
	TrustDomain string
	Traces      string         // OTLP endpoint that spans go to; empty: nowhere
	Store       map[string]any // see ServiceOptions
	Resolver    string         // see ServiceOptions
	Gateway     string         // see ServiceOptions
	Listen      map[string]any // see ServiceOptions
	Host        string         // where its Sentry listens; 127.0.0.1 by default
	Settings    map[string]any // more keys of isthmus.yaml
	Program     string         // see ServiceOptions
	Env         []string       // more of the service's environment
	Secrets     string         // of the service; see [Command]
}

// Cluster starts a cluster without sidecars.
func (s *Sandbox) Cluster(ctx context.Context, o ClusterOptions) (*Cluster, error) {
	c := &Cluster{Name: o.Name, Sentry: o.Sentry, s: s, authority: o.Authority, traces: o.Traces}
	var err error
	if o.Authority != nil && o.Sentry == nil && !o.NoSentry {
		if c.Sentry, err = s.Sentry(ctx, SentryOptions{Cluster: o.Name, Authority: o.Authority, TrustDomain: o.TrustDomain, Host: o.Host}); err != nil {
			return nil, err
		}
	}
	if o.Authority != nil {
		if err := c.operator(); err != nil {
			return nil, err
		}
	}
	c.Service, err = s.Service(ctx, ServiceOptions{
		Cluster: o.Name, Program: o.Program, Sentry: c.Sentry, Authority: o.Authority, Traces: o.Traces, Store: o.Store, Resolver: o.Resolver, Gateway: o.Gateway, Listen: o.Listen, Settings: o.Settings,
		Env: o.Env, Secrets: o.Secrets,
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// operator writes a certificate for the command line.
func (c *Cluster) operator() error {
	files, err := c.s.files("cli-"+c.Name, c.authority, c.Sentry.appTrustDomain(), identity.CLIApp(""))
	if err != nil {
		return err
	}
	c.cli = filepath.Dir(files["ca"].(string))
	return nil
}

// CommandLine is the environment in which "isthmus" speaks to this cluster's service
// as an operator, NAME=value each.
func (c *Cluster) CommandLine() []string {
	if c.cli == "" {
		return []string{"ISTHMUS_SERVER=" + c.Resolver}
	}
	return []string{"ISTHMUS_SERVER=" + c.Resolver, "ISTHMUS_IDENTITY=" + c.cli}
}

// Sidecar is a sidecar with the app behind it.
type Sidecar struct {
	*Daprd
	Behind *App
}

// SidecarOptions say how to run a sidecar in a cluster. What is left out is what the
// files in components/ have.
type SidecarOptions struct {
	App        catalog.App
	Instance   string         // tells two instances of an app apart; empty for the first
	GRPC       bool           // the app speaks gRPC, not HTTP
	Actors     string         // a type of actors that the app hosts
	AtOnce     int            // how many calls the app works on at a time; 0: any number
	AppAddress string         // where the app is, if it is not to be started: Behind stays nil
	HTTPPort   int            // see DaprdOptions
	GRPCPort   int            // see DaprdOptions
	Component  map[string]any // more keys of the component's configuration
	Env        map[string]string
	Args       []string // more arguments of daprd
	Program    string   // see DaprdOptions
	Guard      bool     // an HTTP app's calls pass the guard
	Caller     bool     // an HTTP app is told who calls
}

// Sidecar starts an app and the sidecar before it, with Isthmus for its resolver, and
// waits until it is healthy.
func (c *Cluster) Sidecar(ctx context.Context, o SidecarOptions) (*Sidecar, error) {
	name := c.Name
	if o.Instance != "" {
		name += " " + o.Instance
	}
	var app *App
	if o.AppAddress == "" {
		var err error
		if app, err = c.s.App(AppOptions{Cluster: c.Name, App: o.App, Instance: name, GRPC: o.GRPC, Actors: o.Actors, AtOnce: o.AtOnce}); err != nil {
			return nil, err
		}
		o.AppAddress = app.Address
	}
	configuration, err := c.Configuration(o)
	if err != nil {
		return nil, err
	}
	process := "daprd-" + c.Name + "-" + o.App.Namespace + "-" + o.App.ID
	if o.Instance != "" {
		process += "-" + o.Instance
	}
	protocol := "http"
	if o.GRPC {
		protocol = "grpc"
	}
	if o.Args, err = c.args(o); err != nil {
		return nil, err
	}
	d, err := c.s.Daprd(ctx, DaprdOptions{
		Name: process, Program: o.Program, Cluster: c.Name, App: o.App, AppAddress: o.AppAddress, AppProtocol: protocol,
		Configuration: configuration, Sentry: c.Sentry, Env: o.Env, Args: o.Args, HTTPPort: o.HTTPPort, GRPCPort: o.GRPCPort,
	})
	if err != nil {
		return nil, err
	}
	return &Sidecar{d, app}, nil
}

// args are more arguments of a sidecar in the cluster.
func (c *Cluster) args(o SidecarOptions) ([]string, error) {
	args := slices.Clone(o.Args)
	if o.middleware() != nil {
		dir, err := c.s.middlewares()
		if err != nil {
			return nil, err
		}
		args = append(args, "--resources-path", dir)
	}
	if c.scheduler != nil {
		args = append(args, "--scheduler-host-address", c.scheduler.Address)
	}
	if c.placement != nil {
		args = append(args, "--placement-host-address", c.placement.Address)
	}
	return args, nil
}

// middleware is what the app's calls pass.
func (o *SidecarOptions) middleware() (handlers []any) {
	if o.Guard {
		handlers = append(handlers, map[string]any{"name": "guard", "type": "middleware.http.isthmus"})
	}
	if o.Caller {
		handlers = append(handlers, map[string]any{"name": "caller", "type": "middleware.http.isthmus.caller"})
	}
	return handlers
}

// Configuration is the Dapr Configuration of a sidecar, for one that is started by [Sandbox.Daprd].
func (c *Cluster) Configuration(o SidecarOptions) (string, error) {
	component := map[string]any{"resolver": c.Resolver, "cluster": c.Name, "identity": c.Sentry.identity()}
	for key, value := range o.Component {
		if value == nil {
			delete(component, key)
		} else {
			component[key] = value
		}
	}
	spec := map[string]any{"nameResolution": map[string]any{"component": "isthmus", "version": "v1", "configuration": component}}
	if c.traces != "" {
		spec["tracing"] = map[string]any{"samplingRate": "1", "otel": map[string]any{
			"endpointAddress": c.traces, "isSecure": false, "protocol": "grpc",
		}}
	}
	if handlers := o.middleware(); handlers != nil {
		spec["appHttpPipeline"] = map[string]any{"handlers": handlers}
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "dapr.io/v1alpha1", "kind": "Configuration",
		"metadata": map[string]any{"name": "isthmus"}, "spec": spec,
	})
	if err != nil {
		return "", fmt.Errorf("configure the sidecar of %s: %w", o.App, err)
	}
	return string(text), nil
}

// middlewares are the Dapr components by which an HTTP app's calls are guarded, and it is told who
// calls.
const middlewares = `apiVersion: dapr.io/v1alpha1
kind: Component
metadata: {name: guard}
spec: {type: middleware.http.isthmus, version: v1, metadata: []}
---
apiVersion: dapr.io/v1alpha1
kind: Component
metadata: {name: caller}
spec: {type: middleware.http.isthmus.caller, version: v1, metadata: []}
`

// middlewares is a directory for daprd with those components.
func (s *Sandbox) middlewares() (string, error) {
	dir := filepath.Join(s.dir, "middleware")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("write the components of middleware: %w", err)
	}
	return dir, os.WriteFile(filepath.Join(dir, "middleware.yaml"), []byte(middlewares), 0o600)
}

// Workspace makes a directory for a sandbox below the system's temporary directory,
// and a function that removes it.
func Workspace() (dir string, remove func() error, err error) {
	dir, err = os.MkdirTemp("", "isthmus-")
	if err != nil {
		return "", nil, fmt.Errorf("make a directory for the sandbox: %w", err)
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}
