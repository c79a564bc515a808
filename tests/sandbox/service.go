package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
)

// Service is a running "isthmus serve" of one cluster.
type Service struct {
	*Process
	Cluster  string
	Config   string // path of its configuration
	Resolver string // addresses, host:port, of its gRPC services,
	Gateway  string // its gateway
	Admin    string // and its admin server
}

// ServiceOptions say how to run a service. What is left out is what a user gets who
// leaves it out, but for the addresses, which are free ports of loopback.
type ServiceOptions struct {
	Name     string // in messages and of the log; "isthmus-<cluster>" by default
	Cluster  string
	Program  string         // path of isthmus, as of another release; that of [Binary] by default
	Store    map[string]any // an embedded store in the sandbox's directory by default
	Resolver string         // where its gRPC services listen, host:port
	Gateway  string         // where its gateway listens, host:port, or NoGateway
	Sentry   *Sentry        // identity from it; nil: insecure, or from Authority
	// Authority gives the service a certificate in files, without a Sentry.
	Authority *Authority
	Traces    string         // OTLP endpoint that spans go to; empty: nowhere
	Listen    map[string]any // more keys of "listen", such as dns
	Settings  map[string]any // more keys of the configuration; they win over all above
	Env       []string
	Secrets   string // see [Command]
}

// NoGateway is for a service whose gateway listens nowhere.
const NoGateway = "none"

// Service starts an Isthmus service and waits until it is ready.
func (s *Sandbox) Service(ctx context.Context, o ServiceOptions) (*Service, error) {
	binary, err := programOr(o.Program, "isthmus")
	if err != nil {
		return nil, err
	}
	if o.Name == "" {
		o.Name = "isthmus-" + o.Cluster
	}
	service, err := s.NewService(o)
	if err != nil {
		return nil, err
	}
	service.Process, err = s.run(ctx, Command{
		Name: o.Name, Path: binary, LogDir: s.dir, ReadyURL: "http://" + service.Admin + "/readyz",
		Args: []string{"serve", "-c", service.Config}, Env: o.Env, Secrets: o.Secrets,
	})
	if err != nil {
		return nil, err
	}
	return service, nil
}

// NewService chooses a service's addresses and writes its configuration without
// starting it, for those who need to know them beforehand or run it themselves.
func (s *Sandbox) NewService(o ServiceOptions) (*Service, error) {
	if o.Name == "" {
		o.Name = "isthmus-" + o.Cluster
	}
	var resolver, gateway, admin int
	if err := freePorts(&resolver, &gateway, &admin); err != nil {
		return nil, fmt.Errorf("configure %s: %w", o.Name, err)
	}
	service := &Service{
		Cluster: o.Cluster, Resolver: loopback(resolver), Gateway: loopback(gateway), Admin: loopback(admin),
	}
	service.Resolver = cmp.Or(o.Resolver, service.Resolver)
	service.Gateway = cmp.Or(o.Gateway, service.Gateway)
	configuration := o.configuration(service, s.dir)
	if o.Authority != nil && o.Sentry == nil {
		files, err := s.files(o.Name, o.Authority, o.Sentry.appTrustDomain(), identity.ServiceApp("", o.Cluster))
		if err != nil {
			return nil, fmt.Errorf("configure %s: %w", o.Name, err)
		}
		configuration["identity"] = map[string]any{"files": files}
	}
	text, err := yaml.Marshal(configuration)
	if err != nil {
		return nil, fmt.Errorf("configure %s: %w", o.Name, err)
	}
	service.Config, err = s.file(o.Name+".yaml", text)
	return service, err
}

// files writes a certificate of an app, and names its files as a configuration does.
func (s *Sandbox) files(name string, by *Authority, trustDomain string, app catalog.App) (map[string]any, error) {
	cert, key, err := by.Leaf(trustDomain, app)
	if err != nil {
		return nil, err
	}
	files := map[string]any{}
	for as, f := range map[string]struct {
		name string
		text []byte
	}{"cert": {"cert.pem", cert}, "key": {"key.pem", key}, "ca": {"ca.pem", by.Anchors()}} {
		if files[as], err = s.file(filepath.Join(name+"-identity", f.name), f.text); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func (o *ServiceOptions) configuration(s *Service, dir string) map[string]any {
	c := map[string]any{
		"cluster": o.Cluster,
		"dataDir": filepath.Join(dir, o.Name), // two services must never share one
		"store":   map[string]any{"embedded": map[string]any{"path": filepath.Join(dir, o.Name, "isthmus.db")}},
		"listen": map[string]any{
			"resolver": s.Resolver, "gateway": s.Gateway, "admin": s.Admin,
		},
		"identity": o.Sentry.identity(),
		// All clusters are on this machine, and so are the gateways that lead to their apps.
		"development": map[string]any{"loopback": true},
	}
	if o.Store != nil {
		c["store"] = o.Store
	}
	if o.Traces != "" {
		c["tracing"] = map[string]any{"otlp": map[string]any{"endpoint": o.Traces}, "sampleRatio": 1}
	}
	if o.Gateway == NoGateway {
		delete(c["listen"].(map[string]any), "gateway")
	}
	maps.Copy(c["listen"].(map[string]any), o.Listen)
	maps.Copy(c, o.Settings)
	return c
}
